// Virtual ranks that share the GPU: a partitioned step trains as one rank does.

#include "test/gpu/Kit.h"
#include "test/unit/e2e/E2e.h"

#include <algorithm>
#include <cmath>
#include <sstream>

namespace qwen35 {
namespace {

using namespace test;

#define STEP(dtype)                                                            \
  "--target TARGET --tokens 256 --max-docs 17 --set train.rows=8 --set "       \
  "loss.aux=pooled --set compute.dtype=" dtype

struct Case {
  const char *name;
  int ranks;
  KitBundle bundle;
};

/// One rank, and the meshes compared with it: in f32, then in bf16.
const KitBundle kOne[] = {{"debug-moe", STEP("fp32")},
                          {"debug-moe", STEP("bf16")}};
const Case kCases[][4] = {
    {{"tp2_cp2_dps2_ep8",
      8,
      {"debug-moe", STEP("fp32") " --mesh dps=2,cp=2,tp=2,ep=8"}},
     {"dps4_tp2_ep8", 8, {"debug-moe", STEP("fp32") " --mesh dps=4,tp=2,ep=8"}},
     {"cp4", 4, {"debug-moe", STEP("fp32") " --mesh cp=4"}},
     {"dps2_fsdp",
      2,
      {"debug-moe", STEP("fp32") " --mesh dps=2 --set parallel.zero=3"}}},
    {{"tp2_cp2_dps2_ep8",
      8,
      {"debug-moe", STEP("bf16") " --mesh dps=2,cp=2,tp=2,ep=8"}},
     {"dps4_tp2_ep8", 8, {"debug-moe", STEP("bf16") " --mesh dps=4,tp=2,ep=8"}},
     {"cp4", 4, {"debug-moe", STEP("bf16") " --mesh cp=4"}},
     {"dps2_fsdp",
      2,
      {"debug-moe", STEP("bf16") " --mesh dps=2 --set parallel.zero=3"}}}};

/// Of the loss and of the norm of the gradients, relative, over all steps. In
/// bf16 the partial sums of ranks are rounded where one rank's are not.
constexpr double kLossBound[] = {1e-5, 2e-3}, kNormBound[] = {1e-4, 2e-2};

class GpuRankTrain : public testing::TestWithParam<int> {
protected:
  GpuRankTrain() { writeFile(folder / "text", sampleText()); }

  struct Curve {
    std::vector<double> losses, norms;
  };

  Curve run(const std::string &name, const KitBundle &bundle, int ranks) {
    std::string command = kit::tool("qwen35-run") + " " + bundle.path() +
                          " --init 7 --data " + (folder / "text") +
                          " --steps " + std::to_string(steps) +
                          " --target cuda --no-save --out " + (folder / name);
    if (ranks > 1)
      command += " --virtual-ranks " + std::to_string(ranks);
    quiet(command);
    Curve curve;
    std::istringstream lines(readFile(folder / (name + "/metrics.jsonl")));
    for (std::string line; std::getline(lines, line);) {
      nlohmann::json record = nlohmann::json::parse(line);
      curve.losses.push_back(record["loss"].get<double>());
      curve.norms.push_back(record["grad_norm"].get<double>());
    }
    EXPECT_EQ(curve.losses.size(), size_t(steps));
    return curve;
  }

  static double apart(const std::vector<double> &a,
                      const std::vector<double> &b) {
    double worst = a.size() == b.size() ? 0 : 1;
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
      worst = std::max(worst, std::fabs(a[i] / b[i] - 1));
    return worst;
  }

  const int steps = kit::emulated() ? 2 : 20;
  TempFolder folder;
};

TEST_P(GpuRankTrain, RanksThatShareTheGpuTrainAsOne) {
  int half = GetParam();
  Curve one = run("one", kOne[half], 1);
  for (const Case &c : kCases[half]) {
    SCOPED_TRACE(c.name);
    Curve ranks = run(c.name, c.bundle, c.ranks);
    double loss = apart(ranks.losses, one.losses);
    double norm = apart(ranks.norms, one.norms);
    EXPECT_LT(loss, kLossBound[half]);
    EXPECT_LT(norm, kNormBound[half]);
    std::printf("parity: debug-moe %s on %d ranks of one GPU, %s: losses at "
                "most %.1e, gradient norms %.1e off one rank in %d steps\n",
                half ? "bf16" : "fp32", c.ranks, c.name, loss, norm, steps);
  }
}

TEST_P(GpuRankTrain, TwoRunsAreTheSameBits) {
  const Case &c = kCases[GetParam()][0];
  Curve a = run("a", c.bundle, c.ranks), b = run("b", c.bundle, c.ranks);
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.norms, b.norms);
}

INSTANTIATE_TEST_SUITE_P(DebugMoe, GpuRankTrain, testing::Values(0, 1),
                         [](const auto &info) {
                           return std::string(info.param ? "bf16" : "fp32");
                         });

} // namespace
} // namespace qwen35
