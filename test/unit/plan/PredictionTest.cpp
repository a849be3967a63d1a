// What one GPU does is predicted against what an H200 was measured to do.

#include "frontend/config/ModelFiles.h"
#include "tools/qwen35-plan/Timeline.h"

#include <gtest/gtest.h>

namespace qwen35::plan {
namespace {

std::unique_ptr<LocalStep> compile(const std::string &model, int64_t tokens,
                                   MeshShape mesh = {}, int64_t zero = 0) {
  llvm::Expected<ModelSource> source = parseModel(model);
  if (!source) {
    ADD_FAILURE() << llvm::toString(source.takeError());
    return nullptr;
  }
  CompileOptions options;
  options.recipe.data.tokens = tokens;
  options.mesh = mesh;
  options.zero = zero;
  std::string error;
  std::unique_ptr<LocalStep> step = compileStep(source->config, options, error);
  EXPECT_TRUE(step) << error;
  return step;
}

struct Measured {
  const char *name, *model;
  int64_t rows;
  double milliseconds; // docs/status.md, "CUDA target"
};

class OneGpu : public ::testing::TestWithParam<Measured> {};

TEST_P(OneGpu, StepTimeIsWithin15Percent) {
  const Measured &m = GetParam();
  std::string model = m.model;
  if (model.find('/') != std::string::npos)
    model = std::string(QWEN35_SOURCE_DIR "/") + model;
  std::unique_ptr<LocalStep> step = compile(model, 8192);
  ASSERT_TRUE(step);
  EXPECT_TRUE(step->missingKernels.empty());
  Timeline t = predictStep(*step, m.rows, *loadHardware("h200"), {});
  double predicted = t.seconds * 1e3;
  std::printf("%s, %d rows: predicted %.1f ms, measured %.1f ms (%+.1f %%)\n",
              m.name, int(m.rows), predicted, m.milliseconds,
              100 * (predicted / m.milliseconds - 1));
  EXPECT_NEAR(predicted / m.milliseconds, 1, 0.15);
}

INSTANTIATE_TEST_SUITE_P(
    H200, OneGpu,
    ::testing::Values(
        Measured{"m08b", "0.8b", 1, 97.2}, Measured{"m08b", "0.8b", 4, 382.7},
        Measured{"m9b_slice", "test/gpu/models/9b-slice.json", 1, 170.7},
        Measured{"m9b_slice", "test/gpu/models/9b-slice.json", 4, 634.0},
        Measured{"m35b_slice", "test/gpu/models/35b-a3b-slice.json", 1, 106.8},
        Measured{"m35b_slice", "test/gpu/models/35b-a3b-slice.json", 4, 349.3}),
    [](const auto &info) {
      return std::string(info.param.name) + "_" +
             std::to_string(info.param.rows) + "rows";
    });

// docs/status.md: 29.58 GiB planned, 29.59 in use.
TEST(Memory, TableAddsUpToThePlan) {
  std::unique_ptr<LocalStep> step = compile("0.8b", 8192);
  ASSERT_TRUE(step);
  double sum = 0;
  for (const auto &[what, bytes] : step->memory) {
    EXPECT_GE(bytes, 0) << what;
    sum += bytes;
  }
  EXPECT_NEAR(sum, step->totalBytes, 1);
  EXPECT_NEAR(step->totalBytes / (1 << 30), 29.58, 0.03 * 29.58);
}

// S (n - 1) / n over a link of NVLink, plus its latency; between nodes every
// GPU sends its share over its own NIC.
TEST(Collectives, FollowTheFormulas) {
  Hardware h = *loadHardware("h200");
  double s = 1e9;
  EXPECT_DOUBLE_EQ(collectiveCost("all_gather", s, 8, 1, h).seconds,
                   s * 7 / 8 / 370e9 + 12e-6);
  EXPECT_DOUBLE_EQ(collectiveCost("all_reduce", s, 8, 1, h).seconds,
                   2 * (s * 7 / 8 / 370e9 + 12e-6));
  Cost wide = collectiveCost("reduce_scatter", s, 64, 8, h);
  // Eight NICs of 45 GB/s carry 7/8, NVLink at 370 GB/s 63/64: the longer one.
  EXPECT_DOUBLE_EQ(wide.seconds, s * 63 / 64 / 370e9 + 12e-6 + 3 * 30e-6);
  EXPECT_EQ(wide.bound, Bound::Nvlink);
  // One rank per node has one NIC.
  Cost rail = collectiveCost("reduce_scatter", s, 8, 8, h);
  EXPECT_DOUBLE_EQ(rail.seconds, s * 7 / 8 / 45e9 + 12e-6 + 3 * 30e-6);
  EXPECT_EQ(rail.bound, Bound::Nic);
  EXPECT_EQ(collectiveCost("all_reduce", 4, 8, 1, h).bound, Bound::Latency);
}

// A step on two data ranks has the kernels of one, and collectives; nothing is
// hidden on one stream, and something on two.
TEST(Ranks, OneStreamIsTheSumOfAllEntries) {
  std::unique_ptr<LocalStep> step =
      compile("debug", 256, {.dpr = 1, .dps = 2}, 1);
  ASSERT_TRUE(step);
  Hardware h = *loadHardware("h200");
  Timeline one = predictStep(*step, 2, h, {.twoStreams = false});
  Timeline two = predictStep(*step, 2, h, {});
  EXPECT_GT(one.communication, 0);
  EXPECT_NEAR(one.seconds, one.compute + one.communication, 1e-9);
  EXPECT_NEAR(one.exposed, one.communication, 1e-9);
  EXPECT_LE(two.seconds, one.seconds);
  EXPECT_GE(two.seconds, two.compute);
  EXPECT_NEAR(two.compute, one.compute, 1e-12);
}

} // namespace
} // namespace qwen35::plan
