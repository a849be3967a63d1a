// The ops of a row cut into stripes as a partitioned program has them: a module
// per rank, gathers in between, equal to the op on the whole row; and their
// chunked form after --qwen35-lower-gdn.

#include "test/unit/interpreter/ModuleTest.h"

#include "passes/Kernels/Passes.h"
#include "test/support/Striped.h"

#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using qwen35::interpreter::Tensor;

namespace qwen35::test {
namespace {

using Vector = std::vector<double>;
constexpr int64_t kKeyHeads = 1, kHeads = 2, kKeyDim = 6, kValueDim = 4;

/// Values of one delta rule over the whole row.
struct Values {
  Vector q, k, v, g, beta, dO;

  explicit Values(int64_t tokens) {
    Random random(tokens);
    q = random.normals(tokens * kKeyHeads * kKeyDim);
    k = random.normals(q.size());
    v = random.normals(tokens * kHeads * kValueDim);
    dO = random.normals(v.size());
    for (int64_t i = 0; i < tokens * kHeads; ++i) {
      g.push_back(-0.1 * random.uniform());
      beta.push_back(random.uniform());
    }
  }
};

class StripeOpsTest : public ModuleTest,
                      public testing::WithParamInterface<StripedRow> {
protected:
  using Results = SmallVector<Tensor>;

  void useTypes(int64_t tokens, int64_t maxDocs, int64_t ranks) {
    auto tensor = [](std::initializer_list<int64_t> shape) {
      std::string text = "tensor<";
      for (int64_t size : shape)
        text += std::to_string(size) + "x";
      return text + "f32>";
    };
    q = tensor({tokens, kKeyHeads, kKeyDim});
    v = tensor({tokens, kHeads, kValueDim});
    g = tensor({tokens, kHeads});
    m = tensor({2, kHeads, kKeyDim, kKeyDim});
    b = tensor({2, kHeads, kKeyDim, kValueDim});
    allM = tensor({2 * ranks, kHeads, kKeyDim, kKeyDim});
    allB = tensor({2 * ranks, kHeads, kKeyDim, kValueDim});
    seq = llvm::formatv("!qwen35.seq<{0}, {1}>", tokens, maxDocs);
    stripes =
        llvm::formatv("tensor<{0}xi32>", StripeTable{tokens, ranks}.words());
  }

  Results call(StringRef name, ArrayRef<Tensor> arguments) {
    auto results =
        interpreter::interpret(function(name), arguments, params, {});
    EXPECT_TRUE(succeeded(results)) << error;
    return succeeded(results) ? *results : Results();
  }

  std::string q, v, g, m, b, allM, allB, seq, stripes;
};

TEST_P(StripeOpsTest, DeltaRuleOnRanksEqualsTheWholeRow) {
  const StripedRow &row = GetParam();
  Values values(row.tokens);
  SeqTable whole = row.whole(), local = row.local();
  auto tensor = [&](const Vector &x, ArrayRef<int64_t> shape) {
    std::vector<int64_t> full = {static_cast<int64_t>(x.size()) /
                                 std::accumulate(shape.begin(), shape.end(),
                                                 int64_t(1),
                                                 std::multiplies<int64_t>())};
    full.insert(full.end(), shape.begin(), shape.end());
    return Tensor{full, x};
  };
  auto keys = [&](const Vector &x) { return tensor(x, {kKeyHeads, kKeyDim}); };
  auto heads = [&](const Vector &x) { return tensor(x, {kHeads, kValueDim}); };
  auto gates = [&](const Vector &x) { return tensor(x, {kHeads}); };
  auto ints = [&](std::vector<int32_t> words) {
    return Tensor{{static_cast<int64_t>(words.size())}, std::move(words)};
  };

  useTypes(row.tokens, whole.maxDocs, 1);
  parse(
      llvm::formatv(
          R"(func.func @f(%q: {0}, %k: {0}, %v: {1}, %g: {2}, %beta: {2}, %do: {1}, %seq: {3})
                   -> ({1}, {0}, {0}, {1}, {2}, {2}) {{
        %o = qwen35.gated_delta_rule %q, %k, %v, %g, %beta, %seq <{{scale = 0.25, eps = 0.5}>
            : {0}, {0}, {1}, {2}, {2}, {3}
        %dq, %dk, %dv, %dg, %db = qwen35.gated_delta_rule_bwd %do, %q, %k, %v, %g, %beta, %seq
            <{{scale = 0.25, eps = 0.5}> : {1}, {0}, {0}, {1}, {2}, {2}, {3}
        return %o, %dq, %dk, %dv, %dg, %db : {1}, {0}, {0}, {1}, {2}, {2}
      })",
          q, v, g, seq)
          .str());
  Results expected = call("f", {keys(values.q), keys(values.k), heads(values.v),
                                gates(values.g), gates(values.beta),
                                heads(values.dO), ints(row.wholeSeq())});
  ASSERT_EQ(expected.size(), 6u);

  useTypes(local.tokens, local.maxDocs, row.ranks);
  parse(
      llvm::formatv(
          R"(func.func @maps(%q: {0}, %k: {0}, %v: {1}, %g: {2}, %beta: {2}, %do: {1}, %seq: {3}, %stripes: {4})
                   -> ({5}, {6}, {6}) {{
        %m, %b = qwen35.gdn_affine %k, %v, %g, %beta, %seq, %stripes <{{eps = 0.5}> : {0}, {1}, {2}, {2}, {3}, {4}
        %c = qwen35.gdn_state_grad %do, %q, %k, %g, %beta, %seq, %stripes <{{scale = 0.25, eps = 0.5}>
            : {1}, {0}, {0}, {2}, {2}, {3}, {4}
        return %m, %b, %c : {5}, {6}, {6}
      }
      func.func @rule(%q: {0}, %k: {0}, %v: {1}, %g: {2}, %beta: {2}, %do: {1}, %seq: {3}, %stripes: {4},
                      %m: {7}, %b: {8}, %c: {8}) -> ({1}, {0}, {0}, {1}, {2}, {2}) {{
        %before = qwen35.affine_scan %m, %b, %stripes : {7}, {8}, {4}
        %after = qwen35.affine_scan_bwd %m, %c, %stripes : {7}, {8}, {4}
        %o = qwen35.cp_gated_delta_rule %q, %k, %v, %g, %beta, %before, %seq, %stripes
            <{{scale = 0.25, eps = 0.5}> : {0}, {0}, {1}, {2}, {2}, {6}, {3}, {4}
        %dq, %dk, %dv, %dg, %db = qwen35.cp_gated_delta_rule_bwd
            %do, %q, %k, %v, %g, %beta, %before, %after, %seq, %stripes <{{scale = 0.25, eps = 0.5}>
            : {1}, {0}, {0}, {1}, {2}, {2}, {6}, {6}, {3}, {4}
        return %o, %dq, %dk, %dv, %dg, %db : {1}, {0}, {0}, {1}, {2}, {2}
      })",
          q, v, g, seq, stripes, m, b, allM, allB)
          .str());

  const char *names[] = {"o", "dq", "dk", "dv", "dg", "dbeta"};
  for (bool lowered : {false, true}) {
    if (lowered) {
      PassManager passes(&context);
      passes.addNestedPass<func::FuncOp>(createLowerGdn());
      passes.addPass(createCSEPass());
      ASSERT_TRUE(succeeded(passes.run(*module))) << error;
      module->walk([](Operation *op) {
        EXPECT_FALSE((isa<GdnAffineOp, GdnStateGradOp, CpGatedDeltaRuleOp,
                          CpGatedDeltaRuleBwdOp>(op)))
            << op->getName().getStringRef().str();
      });
    }
    std::vector<Vector> ms, bs, cs;
    auto arguments = [&](int64_t r) {
      return Results{keys(row.scatter(values.q, r)),
                     keys(row.scatter(values.k, r)),
                     heads(row.scatter(values.v, r)),
                     gates(row.scatter(values.g, r)),
                     gates(row.scatter(values.beta, r)),
                     heads(row.scatter(values.dO, r)),
                     ints(row.seq(r)),
                     ints(row.stripes(r))};
    };
    for (int64_t r = 0; r < row.ranks; ++r) {
      Results maps = call("maps", arguments(r));
      ASSERT_EQ(maps.size(), 3u);
      ms.push_back(doubles(maps[0]));
      bs.push_back(doubles(maps[1]));
      cs.push_back(doubles(maps[2]));
    }
    std::vector<std::vector<Vector>> parts(6);
    for (int64_t r = 0; r < row.ranks; ++r) {
      Results all = arguments(r);
      all.push_back(tensor(row.gather(ms), {kHeads, kKeyDim, kKeyDim}));
      all.push_back(tensor(row.gather(bs), {kHeads, kKeyDim, kValueDim}));
      all.push_back(tensor(row.gather(cs), {kHeads, kKeyDim, kValueDim}));
      Results results = call("rule", all);
      ASSERT_EQ(results.size(), 6u);
      for (size_t i = 0; i < results.size(); ++i)
        parts[i].push_back(doubles(results[i]));
    }
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_LE(relativeError(row.inOrder(parts[i]), doubles(expected[i])),
                1e-12)
          << names[i] << (lowered ? " lowered" : "");
  }
}

TEST_P(StripeOpsTest, ConvolutionAndAttentionEqualTheWholeRow) {
  const StripedRow &row = GetParam();
  SeqTable whole = row.whole(), local = row.local();
  int64_t words = row.shape().words(), ranks = row.ranks;
  Random random(4);
  auto ints = [&](std::vector<int32_t> words) {
    return Tensor{{static_cast<int64_t>(words.size())}, std::move(words)};
  };
  Vector x = random.normals(row.tokens * 3), dy = random.normals(x.size());
  Vector w = random.normals(3 * 4);
  Vector q = random.normals(row.tokens * 2 * 4), dO = random.normals(q.size());
  Vector k = random.normals(row.tokens * 4), v = random.normals(k.size());
  parse(
      llvm::formatv(
          R"(func.func @f(%x: tensor<{0}x3xf32>, %w: tensor<3x1x4xf32>, %dy: tensor<{0}x3xf32>,
                   %q: tensor<{0}x2x4xf32>, %k: tensor<{0}x1x4xf32>, %v: tensor<{0}x1x4xf32>,
                   %do: tensor<{0}x2x4xf32>, %seq: !qwen35.seq<{0}, {1}>)
        -> (tensor<{0}x3xf32>, tensor<{0}x3xf32>, tensor<3x1x4xf32>, tensor<{0}x2x4xf32>, tensor<{0}x2x4xf32>,
            tensor<{0}x1x4xf32>, tensor<{0}x1x4xf32>, tensor<{0}x2x2xf32>) {{
        %y = qwen35.causal_conv %x, %w, %seq : tensor<{0}x3xf32>, tensor<3x1x4xf32>, !qwen35.seq<{0}, {1}>
        %dx, %dw = qwen35.causal_conv_bwd %dy, %x, %w, %seq
            : tensor<{0}x3xf32>, tensor<{0}x3xf32>, tensor<3x1x4xf32>, !qwen35.seq<{0}, {1}>
        %o, %lse = qwen35.attention %q, %k, %v, %seq <{{scale = 0.5}>
            : tensor<{0}x2x4xf32>, tensor<{0}x1x4xf32>, tensor<{0}x1x4xf32>, !qwen35.seq<{0}, {1}>
        %dq, %dk, %dv = qwen35.attention_bwd %do, %q, %k, %v, %o, %lse, %seq <{{scale = 0.5}>
            : tensor<{0}x2x4xf32>, tensor<{0}x2x4xf32>, tensor<{0}x1x4xf32>, tensor<{0}x1x4xf32>,
              tensor<{0}x2x4xf32>, tensor<{0}x2xf32>, !qwen35.seq<{0}, {1}>
        %rope = qwen35.rope_table %seq <{{theta = 1.0e4, rotary_dim = 4}> : !qwen35.seq<{0}, {1}>
        return %y, %dx, %dw, %o, %dq, %dk, %dv, %rope
            : tensor<{0}x3xf32>, tensor<{0}x3xf32>, tensor<3x1x4xf32>, tensor<{0}x2x4xf32>, tensor<{0}x2x4xf32>,
              tensor<{0}x1x4xf32>, tensor<{0}x1x4xf32>, tensor<{0}x2x2xf32>
      })",
          row.tokens, whole.maxDocs)
          .str());
  Results expected = call("f", {{{row.tokens, 3}, x},
                                {{3, 1, 4}, w},
                                {{row.tokens, 3}, dy},
                                {{row.tokens, 2, 4}, q},
                                {{row.tokens, 1, 4}, k},
                                {{row.tokens, 1, 4}, v},
                                {{row.tokens, 2, 4}, dO},
                                ints(row.wholeSeq())});
  ASSERT_EQ(expected.size(), 8u);

  parse(llvm::formatv(
            R"(func.func @tails(%x: tensor<{0}x3xf32>) -> tensor<2x3x3xf32> {{
        %t = qwen35.stripe_tails %x <{{taps = 4}> : tensor<{0}x3xf32>
        return %t : tensor<2x3x3xf32>
      }
      func.func @conv(%x: tensor<{0}x3xf32>, %t: tensor<{3}x3x3xf32>, %w: tensor<3x1x4xf32>, %dy: tensor<{0}x3xf32>,
                      %seq: !qwen35.seq<{0}, {1}>, %stripes: tensor<{2}xi32>)
          -> (tensor<{0}x3xf32>, tensor<{0}x3xf32>, tensor<2x3x3xf32>, tensor<3x1x4xf32>) {{
        %y = qwen35.cp_causal_conv %x, %t, %w, %seq, %stripes
            : tensor<{0}x3xf32>, tensor<{3}x3x3xf32>, tensor<3x1x4xf32>, !qwen35.seq<{0}, {1}>, tensor<{2}xi32>
        %dx, %dh, %dw = qwen35.cp_causal_conv_bwd %dy, %x, %t, %w, %seq, %stripes
            : tensor<{0}x3xf32>, tensor<{0}x3xf32>, tensor<{3}x3x3xf32>, tensor<3x1x4xf32>, !qwen35.seq<{0}, {1}>,
              tensor<{2}xi32>
        return %y, %dx, %dh, %dw : tensor<{0}x3xf32>, tensor<{0}x3xf32>, tensor<2x3x3xf32>, tensor<3x1x4xf32>
      }
      func.func @back(%dx: tensor<{0}x3xf32>, %h: tensor<{3}x3x3xf32>, %stripes: tensor<{2}xi32>)
          -> tensor<{0}x3xf32> {{
        %sum = qwen35.add_to_tails %dx, %h, %stripes : tensor<{0}x3xf32>, tensor<{3}x3x3xf32>, tensor<{2}xi32>
        return %sum : tensor<{0}x3xf32>
      }
      func.func @attend(%q: tensor<{0}x2x4xf32>, %k: tensor<{4}x1x4xf32>, %v: tensor<{4}x1x4xf32>,
                        %do: tensor<{0}x2x4xf32>, %seq: !qwen35.seq<{0}, {1}>, %stripes: tensor<{2}xi32>)
          -> (tensor<{0}x2x4xf32>, tensor<{0}x2x4xf32>, tensor<{4}x1x4xf32>, tensor<{4}x1x4xf32>, tensor<{0}x2x2xf32>) {{
        %o, %lse = qwen35.cp_attention %q, %k, %v, %seq, %stripes <{{scale = 0.5}>
            : tensor<{0}x2x4xf32>, tensor<{4}x1x4xf32>, tensor<{4}x1x4xf32>, !qwen35.seq<{0}, {1}>, tensor<{2}xi32>
        %dq, %dk, %dv = qwen35.cp_attention_bwd %do, %q, %k, %v, %o, %lse, %seq, %stripes <{{scale = 0.5}>
            : tensor<{0}x2x4xf32>, tensor<{0}x2x4xf32>, tensor<{4}x1x4xf32>, tensor<{4}x1x4xf32>,
              tensor<{0}x2x4xf32>, tensor<{0}x2xf32>, !qwen35.seq<{0}, {1}>, tensor<{2}xi32>
        %rope = qwen35.cp_rope_table %seq, %stripes <{{theta = 1.0e4, rotary_dim = 4}>
            : !qwen35.seq<{0}, {1}>, tensor<{2}xi32>
        return %o, %dq, %dk, %dv, %rope
            : tensor<{0}x2x4xf32>, tensor<{0}x2x4xf32>, tensor<{4}x1x4xf32>, tensor<{4}x1x4xf32>, tensor<{0}x2x2xf32>
      })",
            local.tokens, local.maxDocs, words, 2 * ranks, row.tokens)
            .str());

  std::vector<Vector> tails, halos, y, dx, sums, ks, vs, o, dq, rope;
  Vector dw(w.size()), dk(k.size()), dv(v.size());
  auto addTo = [](Vector &sum, const Vector &part) {
    for (size_t i = 0; i < sum.size(); ++i)
      sum[i] += part[i];
  };
  for (int64_t r = 0; r < ranks; ++r) {
    tails.push_back(
        doubles(call("tails", {{{local.tokens, 3}, row.scatter(x, r)}})[0]));
    ks.push_back(row.scatter(k, r));
    vs.push_back(row.scatter(v, r));
  }
  for (int64_t r = 0; r < ranks; ++r) {
    Results c = call("conv", {{{local.tokens, 3}, row.scatter(x, r)},
                              {{2 * ranks, 3, 3}, row.gather(tails)},
                              {{3, 1, 4}, w},
                              {{local.tokens, 3}, row.scatter(dy, r)},
                              ints(row.seq(r)),
                              ints(row.stripes(r))});
    ASSERT_EQ(c.size(), 4u);
    y.push_back(doubles(c[0]));
    dx.push_back(doubles(c[1]));
    halos.push_back(doubles(c[2]));
    addTo(dw, doubles(c[3]));
    Results a = call("attend", {{{local.tokens, 2, 4}, row.scatter(q, r)},
                                {{row.tokens, 1, 4}, row.gather(ks)},
                                {{row.tokens, 1, 4}, row.gather(vs)},
                                {{local.tokens, 2, 4}, row.scatter(dO, r)},
                                ints(row.seq(r)),
                                ints(row.stripes(r))});
    ASSERT_EQ(a.size(), 5u);
    o.push_back(doubles(a[0]));
    dq.push_back(doubles(a[1]));
    addTo(dk, doubles(a[2]));
    addTo(dv, doubles(a[3]));
    rope.push_back(doubles(a[4]));
  }
  for (int64_t r = 0; r < ranks; ++r)
    sums.push_back(doubles(call("back", {{{local.tokens, 3}, dx[r]},
                                         {{2 * ranks, 3, 3}, row.gather(halos)},
                                         ints(row.stripes(r))})[0]));
  std::pair<const char *, Vector> actual[] = {{"y", row.inOrder(y)},
                                              {"dx", row.inOrder(sums)},
                                              {"dw", dw},
                                              {"o", row.inOrder(o)},
                                              {"dq", row.inOrder(dq)},
                                              {"dk", row.inOrder<double>({dk})},
                                              {"dv", row.inOrder<double>({dv})},
                                              {"rope", row.inOrder(rope)}};
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_LE(relativeError(actual[i].second, doubles(expected[i])), 1e-13)
        << actual[i].first;
}

INSTANTIATE_TEST_SUITE_P(Rows, StripeOpsTest, testing::ValuesIn(stripedRows()),
                         [](const testing::TestParamInfo<StripedRow> &info) {
                           return "Row" + std::to_string(info.index);
                         });

} // namespace
} // namespace qwen35::test
