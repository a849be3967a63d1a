#include "test/unit/interpreter/ModuleTest.h"

#include "passes/Kernels/Passes.h"

#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using qwen35::interpreter::Tensor;

namespace qwen35::test {
namespace {

struct Layout {
  const char *name;
  int64_t tokens, maxDocs;
  std::vector<int64_t> documents;
  int64_t keyHeads, valueHeads;
  double meanDecay; // of g, which is exponentially distributed below 0
};

void PrintTo(const Layout &layout, std::ostream *out) { *out << layout.name; }

class LowerGdnTest : public ModuleTest,
                     public testing::WithParamInterface<Layout> {
protected:
  void parseRules(const Layout &l) {
    std::string q = llvm::formatv("tensor<{0}x{1}x16xf32>", l.tokens,
                                  l.keyHeads);
    std::string v = llvm::formatv("tensor<{0}x{1}x8xf32>", l.tokens,
                                  l.valueHeads);
    std::string g = llvm::formatv("tensor<{0}x{1}xf32>", l.tokens,
                                  l.valueHeads);
    std::string seq = llvm::formatv("!qwen35.seq<{0}, {1}>", l.tokens,
                                    l.maxDocs);
    parse(llvm::formatv(
              R"(func.func @f(%q: {0}, %k: {0}, %v: {1}, %g: {2}, %beta: {2},
                              %seq: {3}, %do: {1})
                     -> ({1}, {0}, {0}, {1}, {2}, {2}) {{
        %o = qwen35.gated_delta_rule %q, %k, %v, %g, %beta, %seq
            <{{scale = 0.25, eps = 1.0e-6}> : {0}, {0}, {1}, {2}, {2}, {3}
        %dq, %dk, %dv, %dg, %dbeta = qwen35.gated_delta_rule_bwd
            %do, %q, %k, %v, %g, %beta, %seq <{{scale = 0.25, eps = 1.0e-6}>
            : {1}, {0}, {0}, {1}, {2}, {2}, {3}
        return %o, %dq, %dk, %dv, %dg, %dbeta : {1}, {0}, {0}, {1}, {2}, {2}
      })",
              q, v, g, seq)
              .str());
  }

  SmallVector<Tensor> arguments(const Layout &l) {
    Random random(7);
    int64_t gates = l.tokens * l.valueHeads;
    auto normals = [&](int64_t heads, int64_t columns) {
      return Tensor{{l.tokens, heads, columns},
                    random.normals(l.tokens * heads * columns)};
    };
    Tensor q = normals(l.keyHeads, 16), k = normals(l.keyHeads, 16);
    Tensor v = normals(l.valueHeads, 8), dO = normals(l.valueHeads, 8);
    std::vector<double> g(gates), beta(gates);
    for (double &value : g)
      value = l.meanDecay * std::log(1 - random.uniform());
    for (double &value : beta)
      value = random.uniform();
    auto table = interpreter::documentTable(
        SeqType::get(&context, l.tokens, l.maxDocs), l.documents);
    EXPECT_TRUE(table);
    return {q,
            k,
            v,
            {{l.tokens, l.valueHeads}, std::move(g)},
            {{l.tokens, l.valueHeads}, std::move(beta)},
            *table,
            dO};
  }
};

TEST_P(LowerGdnTest, MeansTheSameBeforeAndAfter) {
  parseRules(GetParam());
  SmallVector<Tensor> inputs = arguments(GetParam());
  auto before = run(inputs);
  ASSERT_TRUE(succeeded(before)) << error;

  PassManager passes(&context);
  passes.addNestedPass<func::FuncOp>(createLowerGdn());
  passes.addPass(createCSEPass());
  ASSERT_TRUE(succeeded(passes.run(*module))) << error;
  int64_t rules = 0, prepared = 0;
  module->walk([&](Operation *op) {
    rules += isa<GatedDeltaRuleOp, GatedDeltaRuleBwdOp>(op);
    prepared += isa<qkern::GdnPrepOp>(op);
  });
  EXPECT_EQ(rules, 0);
  EXPECT_EQ(prepared, 1); // forward and backward share it

  auto after = run(inputs);
  ASSERT_TRUE(succeeded(after)) << error;
  const char *names[] = {"o", "dq", "dk", "dv", "dg", "dbeta"};
  for (auto [name, expected, actual] :
       llvm::zip_equal(names, *before, *after))
    EXPECT_LE(relativeError(doubles(actual), doubles(expected)), 1e-12)
        << name;
}

INSTANTIATE_TEST_SUITE_P(
    Documents, LowerGdnTest,
    testing::Values(
        Layout{"OneToken", 1, 1, {1}, 1, 1, 0.1},
        Layout{"OneChunk", 64, 1, {64}, 2, 2, 0.1},
        Layout{"OneTokenMoreThanAChunk", 65, 1, {65}, 1, 2, 0.1},
        Layout{"ManyShort", 20, 24, {1, 1, 2, 3, 1, 5, 1, 6}, 2, 4, 0.1},
        Layout{"UnevenWithUnusedChunks", 193, 9, {63, 1, 64, 65}, 2, 4, 0.1},
        Layout{"WithPadding", 160, 4, {37, 51, 40}, 1, 3, 0.1},
        Layout{"Long", 300, 1, {300}, 1, 2, 0.02},
        Layout{"PaddingOnly", 70, 2, {}, 1, 2, 0.1},
        Layout{"NoDecay", 130, 2, {70, 60}, 2, 2, 0},
        Layout{"StrongDecay", 130, 2, {70, 60}, 2, 2, 5}),
    [](const testing::TestParamInfo<Layout> &info) {
      return std::string(info.param.name);
    });

} // namespace
} // namespace qwen35::test
