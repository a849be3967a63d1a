// Runs of the debug models on the GPU from outside: curves, bits, resume.

#include "test/gpu/Kit.h"
#include "test/unit/e2e/E2e.h"

#include <algorithm>
#include <cmath>

namespace qwen35 {
namespace {

using namespace test;

struct Model {
  const char *name;
  KitBundle bundle;
};

constexpr const char *kArguments =
    "--target cpu,TARGET --tokens 256 --max-docs 17 --set train.rows=2 "
    "--set optim.lr=1e-3";

const Model kModels[] = {{"debug", {"debug", kArguments}},
                         {"debug-moe", {"debug-moe", kArguments}}};

class GpuTrain : public testing::TestWithParam<int> {
protected:
  GpuTrain() { writeFile(folder / "text", sampleText()); }

  std::string command(const std::string &name, int steps,
                      const std::string &more) {
    return kit::tool("qwen35-run") + " " + kModels[GetParam()].bundle.path() +
           " --init 7 --data " + (folder / "text") + " --steps " +
           std::to_string(steps) + " --set schedule.kind=constant --out " +
           (folder / name) + " --export-hf " + (folder / (name + "-hf")) + " " +
           more;
  }

  std::vector<double> losses(const std::string &name) {
    std::istringstream lines(readFile(folder / (name + "/metrics.jsonl")));
    std::vector<double> result;
    for (std::string line; std::getline(lines, line);)
      result.push_back(nlohmann::json::parse(line)["loss"].get<double>());
    return result;
  }

  std::string weights(const std::string &name) {
    return readFile(folder / (name + "-hf/model.safetensors"));
  }

  /// The same bytes; says where two files part instead of printing them.
  void expectSameWeights(const std::string &a, const std::string &b) {
    std::string left = weights(a), right = weights(b);
    ASSERT_FALSE(left.empty());
    ASSERT_EQ(left.size(), right.size());
    size_t at = std::mismatch(left.begin(), left.end(), right.begin()).first -
                left.begin();
    EXPECT_EQ(at, left.size()) << "the first byte of " << a << " and " << b
                               << " that differs, of this many";
  }

  /// Losses within 2 % step by step; prints how far they are apart.
  void expectSameCurve(const std::string &a, const std::string &b, int steps) {
    std::vector<double> left = losses(a), right = losses(b);
    ASSERT_EQ(left.size(), size_t(steps));
    ASSERT_EQ(right.size(), size_t(steps));
    double worst = 0;
    for (int i = 0; i < steps; ++i)
      worst = std::max(worst, std::fabs(left[i] / right[i] - 1));
    EXPECT_LT(worst, 2e-2);
    std::printf(
        "parity: %s, %s and %s: losses %.4f and %.4f after %d steps, at "
        "most %.1e apart\n",
        kModels[GetParam()].name, a.c_str(), b.c_str(), left.back(),
        right.back(), steps, worst);
  }

  TempFolder folder;
};

TEST_P(GpuTrain, TwentyStepsFollowTheCpu) {
  int steps = kit::emulated() ? 3 : 20;
  quiet(command("cpu", steps, "--target cpu"));
  quiet(command("gpu", steps, "--target cuda"));
  expectSameCurve("gpu", "cpu", steps);
}

TEST_P(GpuTrain, TwoRunsAreTheSameBits) {
  int steps = kit::emulated() ? 2 : 10;
  quiet(command("a", steps, "--target cuda"));
  quiet(command("b", steps, "--target cuda"));
  EXPECT_EQ(losses("a"), losses("b"));
  expectSameWeights("a", "b");
}

TEST_P(GpuTrain, ResumedRunsAreTheSameBits) {
  int half = kit::emulated() ? 1 : 5;
  quiet(command("straight", 2 * half, "--target cuda"));
  quiet(command("resumed", half, "--target cuda"));
  quiet(command("resumed", 2 * half, "--target cuda --resume auto"));
  expectSameWeights("straight", "resumed");
}

TEST_P(GpuTrain, CheckpointsGoFromCpuToGpuAndBack) {
  quiet(command("mixed", 2, "--target cpu"));
  quiet(command("mixed", 4, "--target cuda --resume auto"));
  quiet(command("mixed", 5, "--target cpu --resume auto"));
  quiet(command("cpu", 5, "--target cpu"));
  expectSameCurve("mixed", "cpu", 5);
}

INSTANTIATE_TEST_SUITE_P(Models, GpuTrain, testing::Values(0, 1),
                         [](const auto &info) {
                           return std::string(info.param ? "moe" : "dense");
                         });

} // namespace
} // namespace qwen35
