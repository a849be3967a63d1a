// Steps on the GPU against the reference implementation in float64.

#include "test/gpu/Kit.h"
#include "test/support/Numeric.h"
#include "test/support/Safetensors.h"

#include "nlohmann/json.hpp"

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

  double lossBound() const { return c.isBf16() ? 2e-3 : 1e-5; }

  /// In bf16 a gradient may be 2e-2 off, or half as much again as the reference
  /// implementation itself is in bf16 on this case (bf16.json beside the model,
  /// measured with torch). Float32 is held to the bound of the CPU.
  double gradientBound(const std::string &name) const {
    if (!c.isBf16()) {
      bool decay = name.find("A_log") != std::string::npos ||
                   name.find("dt_bias") != std::string::npos;
      return decay ? 5e-4 : 2e-4;
    }
    double reference = 0;
    std::string path = kit::golden(c.name) + "/bf16.json";
    if (std::filesystem::exists(path)) {
      auto table = nlohmann::json::parse(readFile(path));
      reference = table.value(name, 0.0);
    }
    return std::max(2e-2, 1.5 * reference);
  }

  void expectGradients(const Safetensors &expected,
                       const Safetensors &actual) const {
    int compared = 0;
    double worst = 0;
    std::string worstName;
    for (const std::string &name : expected.names()) {
      if (name.rfind("grad.", 0) != 0)
        continue;
      ++compared;
      ASSERT_TRUE(actual.has(name)) << name;
      double error =
          relativeError(actual.reals(name), expected.reals(name), 1e-12);
      EXPECT_LT(error, gradientBound(name)) << name;
      if (error > worst) {
        worst = error;
        worstName = name;
      }
    }
    if (compared > 0)
      EXPECT_GT(compared, 40);
    RecordProperty("worst_gradient", worstName);
    std::printf("%s %s: worst gradient %.2e %s\n", c.name, c.dtype, worst,
                worstName.c_str());
  }

  void expectLoss(const Safetensors &expected, const Safetensors &actual) {
    double loss = expected.reals("loss")[0], got = actual.reals("loss")[0];
    EXPECT_NEAR(got, loss, lossBound() * loss);
    std::printf("%s %s: loss off by %.2e\n", c.name, c.dtype,
                std::fabs(got - loss) / loss);
  }
};

TEST_P(GpuGolden, OneStep) {
  Safetensors want = expected("golden"), got = dump(c.oneRow, "golden");
  expectLoss(want, got);
  if (c.aux)
    EXPECT_NEAR(got.reals("aux_loss")[0], want.reals("aux_loss")[0],
                lossBound() * want.reals("aux_loss")[0]);
  expectGradients(want, got);
}

TEST_P(GpuGolden, EagerAndCapturedAreTheSameBits) {
  Safetensors captured = dump(c.oneRow, "golden", 2),
              eager = dump(c.oneRow, "golden", 2, "--eager");
  for (const std::string &name : captured.names())
    EXPECT_EQ(captured.reals(name), eager.reals(name)) << name;
}

TEST_P(GpuGolden, PackedDocuments) {
  Safetensors want = expected("packed"), got = dump(c.packed, "packed");
  expectLoss(want, got);
  expectGradients(want, got);
}

TEST_P(GpuGolden, TwoMicrobatchesWithPadding) {
  if (c.batch == 1 || c.aux)
    GTEST_SKIP() << "needs two rows and a loss that is a sum over rows";
  Safetensors want = expected("golden"), got = dump(c.padded, "golden");
  expectLoss(want, got);
  expectGradients(want, got);
}

TEST_P(GpuGolden, FiveOptimizerSteps) {
  Safetensors want = expected("adamw"), got = dump(c.oneRow, "golden", 5);
  auto losses = want.reals("loss");
  ASSERT_EQ(got.reals("loss").size(), 5u);
  for (int i = 0; i < 5; ++i)
    EXPECT_NEAR(got.reals("loss")[i], losses[i],
                (c.isBf16() ? 5e-3 : 1e-3) * losses[i])
        << i;
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
