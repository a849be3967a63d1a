// Runs of the debug models on the GPU from outside: curves, bits, resume.

#include "test/gpu/Kit.h"
#include "test/unit/e2e/E2e.h"

namespace qwen35 {
namespace {

using namespace test;

struct Model {
  const char *name;
  KitBundle bundle;
};

constexpr const char *kArguments =
    "--target cpu,TARGET --tokens 256 --max-docs 17 --set train.rows=2 "
    "--set optim.lr=1e-2";

const Model kModels[] = {{"debug", {"debug", kArguments}},
                         {"debug-moe", {"debug-moe", kArguments}}};

class GpuTrain : public testing::TestWithParam<int> {
protected:
  GpuTrain() { writeFile(folder / "text", sampleText()); }

  std::string command(const std::string &name, int steps,
                      const std::string &more) {
    return kit::tool("qwen35-run") + " " + kModels[GetParam()].bundle.path() +
           " --init 7 --data " + (folder / "text") + " --steps " +
           std::to_string(steps) + " --set train.steps=20 --out " +
           (folder / name) + " --export-hf " + (folder / (name + "-hf")) +
           " " + more;
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

  TempFolder folder;
};

TEST_P(GpuTrain, TwentyStepsFollowTheCpu) {
  int steps = kit::emulated() ? 3 : 20;
  quiet(command("cpu", steps, "--target cpu"));
  quiet(command("gpu", steps, "--target cuda"));
  std::vector<double> cpu = losses("cpu"), gpu = losses("gpu");
  ASSERT_EQ(cpu.size(), size_t(steps));
  ASSERT_EQ(gpu.size(), size_t(steps));
  for (int i = 0; i < steps; ++i)
    EXPECT_NEAR(gpu[i], cpu[i], 2e-2 * cpu[i]) << "step " << i + 1;
}

TEST_P(GpuTrain, TwoRunsAreTheSameBits) {
  int steps = kit::emulated() ? 2 : 10;
  quiet(command("a", steps, "--target cuda"));
  quiet(command("b", steps, "--target cuda"));
  EXPECT_EQ(losses("a"), losses("b"));
  ASSERT_FALSE(weights("a").empty());
  EXPECT_EQ(weights("a"), weights("b"));
}

TEST_P(GpuTrain, ResumedRunsAreTheSameBits) {
  int half = kit::emulated() ? 1 : 5;
  quiet(command("straight", 2 * half, "--target cuda"));
  quiet(command("resumed", half, "--target cuda"));
  quiet(command("resumed", 2 * half, "--target cuda --resume auto"));
  ASSERT_FALSE(weights("straight").empty());
  EXPECT_EQ(weights("straight"), weights("resumed"));
}

TEST_P(GpuTrain, CheckpointsGoFromCpuToGpuAndBack) {
  quiet(command("mixed", 2, "--target cpu"));
  quiet(command("mixed", 4, "--target cuda --resume auto"));
  quiet(command("mixed", 5, "--target cpu --resume auto"));
  quiet(command("cpu", 5, "--target cpu"));
  std::vector<double> mixed = losses("mixed"), cpu = losses("cpu");
  ASSERT_EQ(mixed.size(), 5u);
  for (int i = 0; i < 5; ++i)
    EXPECT_NEAR(mixed[i], cpu[i], 2e-2 * cpu[i]) << "step " << i + 1;
}

INSTANTIATE_TEST_SUITE_P(Models, GpuTrain, testing::Values(0, 1),
                         [](const auto &info) {
                           return std::string(info.param ? "moe" : "dense");
                         });

} // namespace
} // namespace qwen35
