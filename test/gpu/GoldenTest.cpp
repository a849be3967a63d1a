// Steps on the GPU against the reference implementation in float64.

#include "test/gpu/Kit.h"
#include "test/support/Numeric.h"
#include "test/support/Safetensors.h"

#include "nlohmann/json.hpp"

#include <cstring>
#include <map>

namespace qwen35 {
namespace {

using namespace test;

struct Case {
  const char *name;
  const char *dtype;     // fp32 or bf16
  int64_t batch, tokens; // of golden.safetensors
  bool aux;
  KitBundle oneRow, packed, padded;

  Case(const char *name, const char *dtype, int64_t batch, int64_t tokens,
       int64_t packedTokens, int64_t packedDocs, bool aux)
      : name(name), dtype(dtype), batch(batch), tokens(tokens), aux(aux),
        oneRow(name, arguments(batch * tokens, batch) +
                         (aux ? " --set loss.aux=pooled --set "
                                "loss.aux_coef=0.01"
                              : "")),
        packed(name, arguments(packedTokens, packedDocs)),
        padded(name, arguments(96, 2)) {}

  bool isBf16() const { return std::string(dtype) == "bf16"; }

private:
  std::string arguments(int64_t tokens, int64_t docs) const {
    return std::string("--set compute.dtype=") + dtype + " --tokens " +
           std::to_string(tokens) + " --max-docs " + std::to_string(docs) +
           " --set optim.lr=1e-3 --set schedule.kind=constant";
  }
};

const Case kCases[] = {
    {"dense", "fp32", 2, 80, 80, 2, false},
    {"dense_tied", "fp32", 1, 70, 72, 3, false},
    {"moe", "fp32", 2, 80, 80, 2, true},
    {"real_heads", "fp32", 1, 150, 150, 4, false},
    {"dense", "bf16", 2, 80, 80, 2, false},
    {"dense_tied", "bf16", 1, 70, 72, 3, false},
    {"moe", "bf16", 2, 80, 80, 2, true},
    {"real_heads", "bf16", 1, 150, 150, 4, false},
};

class GpuGolden : public testing::TestWithParam<int> {
protected:
  const Case &c = kCases[GetParam()];

  Safetensors expected(const std::string &file) const {
    return Safetensors(kit::golden(c.name) + "/" + file + ".safetensors");
  }

  Safetensors dump(const KitBundle &bundle, const std::string &batch,
                   int steps = 1, const std::string &more = "") const {
    TempFolder folder;
    std::string path = folder / "dump.safetensors";
    CommandResult ran =
        run(kit::tool("qwen35-run") + " " + bundle.path() + " --weights " +
            kit::golden(c.name) + " --batch " + kit::golden(c.name) + "/" +
            batch + ".safetensors --dump " + path + " --steps " +
            std::to_string(steps) + " --target cuda --set " +
            "schedule.kind=constant --set optim.lr=1e-3 " + more);
    EXPECT_TRUE(ran.ok()) << ran.output;
    return Safetensors(path);
  }

  /// What bfloat16 costs the reference implementation on that file: bf16.json
  /// beside the model, made by scripts/reference_bf16.py.
  double reference(const std::string &file, const std::string &name) const {
    static std::map<std::string, nlohmann::json> tables;
    auto &table = tables[c.name];
    if (table.is_null())
      table =
          nlohmann::json::parse(readFile(kit::golden(c.name) + "/bf16.json"));
    return table.at(file).value(name, 0.0);
  }

  /// In bf16 a loss may be 2e-3 off and a gradient 2e-2, or half as much again
  /// as the reference implementation is in bf16. Float32 is held to the bounds
  /// of the CPU.
  double lossBound(const std::string &file) const {
    return c.isBf16() ? std::max(2e-3, 1.5 * reference(file, "loss")) : 1e-5;
  }
  double gradientBound(const std::string &file, const std::string &name) const {
    if (c.isBf16())
      return std::max(2e-2, 1.5 * reference(file, name));
    bool decay = name.find("A_log") != std::string::npos ||
                 name.find("dt_bias") != std::string::npos;
    return decay ? 5e-4 : 2e-4;
  }

  /// Of `actual` against `file`.safetensors; prints how far it is off.
  void expectStep(const std::string &file, const Safetensors &actual) const {
    Safetensors want = expected(file);
    double loss = want.reals("loss")[0];
    double lossOff = std::fabs(actual.reals("loss")[0] - loss) / loss;
    EXPECT_LT(lossOff, lossBound(file));
    int compared = 0, beyond = 0;
    double worst = 0;
    std::string worstName;
    for (const std::string &name : want.names()) {
      if (name.rfind("grad.", 0) != 0)
        continue;
      ++compared;
      ASSERT_TRUE(actual.has(name)) << name;
      double error = relativeError(actual.reals(name), want.reals(name), 1e-12);
      double share = error / gradientBound(file, name);
      if (!(share < 1) && ++beyond <= 8)
        ADD_FAILURE() << name << " is " << error << " off, allowed are "
                      << gradientBound(file, name);
      if (share > worst) {
        worst = share;
        worstName = name;
      }
    }
    EXPECT_EQ(beyond, 0) << "gradients of " << compared;
    if (compared > 0)
      EXPECT_GT(compared, 40);
    std::printf("parity: %s %s %s: loss %.1e off", c.name, c.dtype,
                file.c_str(), lossOff);
    if (compared > 0)
      std::printf(", gradients at most %.0f %% of their bound (%s)",
                  100 * worst, worstName.c_str() + std::strlen("grad."));
    std::printf("\n");
  }
};

TEST_P(GpuGolden, OneStep) {
  Safetensors got = dump(c.oneRow, "golden");
  expectStep("golden", got);
  if (c.aux) {
    double aux = expected("golden").reals("aux_loss")[0];
    EXPECT_NEAR(got.reals("aux_loss")[0], aux, lossBound("golden") * aux);
  }
}

TEST_P(GpuGolden, EagerAndCapturedAreTheSameBits) {
  Safetensors captured = dump(c.oneRow, "golden", 2),
              eager = dump(c.oneRow, "golden", 2, "--eager");
  for (const std::string &name : captured.names())
    EXPECT_TRUE(captured.reals(name) == eager.reals(name)) << name;
}

TEST_P(GpuGolden, PackedDocuments) {
  expectStep("packed", dump(c.packed, "packed"));
}

TEST_P(GpuGolden, TwoMicrobatchesWithPadding) {
  if (c.batch == 1 || c.aux)
    GTEST_SKIP() << "needs two rows and a loss that is a sum over rows";
  expectStep("golden", dump(c.padded, "golden"));
}

/// Squares are summed up here and there on the way; of one microbatch and of two.
TEST_P(GpuGolden, NormIsThatOfTheGradients) {
  std::vector<const KitBundle *> bundles = {&c.oneRow};
  if (c.batch > 1)
    bundles.push_back(&c.padded);
  for (const KitBundle *bundle : bundles) {
    Safetensors got = dump(*bundle, "golden");
    double sum = 0;
    for (const std::string &name : got.names())
      if (name.rfind("grad.", 0) == 0)
        for (double g : got.reals(name))
          sum += g * g;
    double norm = got.reals("grad_norm")[0];
    EXPECT_GT(norm, 0);
    EXPECT_NEAR(norm, std::sqrt(sum), 1e-6 * norm) << bundle->path();
  }
}

TEST_P(GpuGolden, FiveOptimizerSteps) {
  Safetensors want = expected("adamw"), got = dump(c.oneRow, "golden", 5);
  auto losses = want.reals("loss");
  ASSERT_EQ(got.reals("loss").size(), 5u);
  for (int i = 0; i < 5; ++i) {
    double bound = 1e-3;
    if (c.isBf16())
      bound = std::max(5e-3, 1.5 * reference("adamw", std::to_string(i)));
    EXPECT_NEAR(got.reals("loss")[i], losses[i], bound * losses[i]) << i;
  }
  if (c.isBf16())
    return; // updates are signs of gradients about zero
  for (const std::string &name : want.names())
    if (name.rfind("param.", 0) == 0)
      EXPECT_LT(relativeError(got.reals(name), want.reals(name), 1e-12), 1e-3)
          << name;
}

INSTANTIATE_TEST_SUITE_P(Cases, GpuGolden,
                         testing::Range(0, int(std::size(kCases))),
                         [](const auto &info) {
                           const Case &c = kCases[info.param];
                           return std::string(c.name) + "_" + c.dtype;
                         });

} // namespace
} // namespace qwen35
