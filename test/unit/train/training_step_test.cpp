#include "runtime/train/training_step.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "test/unit/bundle/tiny_kernels.h"
#include "test/unit/train/train_test_util.h"

namespace qwen35 {
namespace {

using namespace test;

/// A row whose token t is `first + t` with label `label`.
PackedRow makeRow(int first, int label, int64_t real = kTokens) {
  PackedRow row;
  row.ids.assign(kTokens, 0);
  row.labels.assign(kTokens, -100);
  for (int64_t t = 0; t < real; ++t) {
    row.ids[t] = first + static_cast<int>(t);
    row.labels[t] = label;
  }
  SeqTable shape{kTokens, 4};
  row.seq.resize(shape.words());
  EXPECT_TRUE(fillSeqTable(shape, &real, 1, row.seq.data()));
  row.realTokens = row.validLabels = real;
  return row;
}

Batch makeBatch(std::vector<PackedRow> rows) {
  Batch batch;
  batch.rows = std::move(rows);
  for (const PackedRow &row : batch.rows) {
    batch.realTokens += row.realTokens;
    batch.validLabels += row.validLabels;
  }
  return batch;
}

absl::StatusOr<TrainingStep> makeStep(const TinyRun &tiny) {
  auto bundle = BundleFile::open(tiny.folder.in("tiny.q35"));
  EXPECT_TRUE(bundle.ok()) << bundle.status();
  StepOptions options;
  options.threads = 2;
  options.poison = true;
  return TrainingStep::create(*bundle, options);
}

// w starts at zero, labels are 4: an error of -4 everywhere.
TEST(TrainingStepTest, OneStepOverSeveralRows) {
  TinyRun tiny;
  auto step = makeStep(tiny);
  ASSERT_OK(step);
  ASSERT_OK(step->clearMoments());
  absl::Span<float> zeroed = step->weights()[0];
  std::fill(zeroed.begin(), zeroed.end(), 0.0f);
  Batch batch = makeBatch({makeRow(0, 4), makeRow(100, 4), makeRow(150, 4, 32)});
  StepScalars scalars;
  scalars.lr = 128; // the number of labels, so that w moves by the error
  EXPECT_NEAR(*step->evaluate(batch), 8, 1e-6);
  auto result = step->train(batch, scalars);
  ASSERT_OK(result);
  EXPECT_NEAR(result->loss, 8, 1e-6); // 4^2 / 2 over all labels of the step
  EXPECT_EQ(result->auxLoss, 0);
  EXPECT_TRUE(result->committed);
  EXPECT_EQ(step->weights()[0][0], 4);
  EXPECT_EQ(step->weights()[0][150], 4);
  EXPECT_EQ(step->weights()[0][60], 0); // no token
  EXPECT_EQ(step->gradients()[0][181], -4.0f / 128);
  EXPECT_EQ(step->state()[0].m[181], -4.0f / 128);
  std::vector<float> before(step->weights()[0].begin(),
                            step->weights()[0].end());
  EXPECT_NEAR(*step->evaluate(batch), 0, 1e-9);
  EXPECT_EQ(before, std::vector<float>(step->weights()[0].begin(),
                                       step->weights()[0].end()));
}

TEST(TrainingStepTest, ANonFiniteNormChangesNothing) {
  TinyRun tiny;
  auto step = makeStep(tiny);
  ASSERT_OK(step);
  ASSERT_OK(step->initialize(1));
  step->weights()[0][5] = std::numeric_limits<float>::infinity();
  std::vector<float> before(step->weights()[0].begin(),
                            step->weights()[0].end());
  auto result = step->train(makeBatch({makeRow(0, 4)}), {});
  ASSERT_OK(result);
  EXPECT_FALSE(result->committed);
  EXPECT_FALSE(std::isfinite(result->gradNorm));
  EXPECT_EQ(before, std::vector<float>(step->weights()[0].begin(),
                                       step->weights()[0].end()));
}

TEST(TrainingStepTest, ScheduleFollowsStepsAndBiasFollowsTheMoments) {
  Recipe recipe;
  recipe.schedule.kind = "linear";
  recipe.train.steps = 10;
  StepScalars scalars = scalarsOf(recipe, 6, 3); // two of five were skipped
  EXPECT_FLOAT_EQ(scalars.lr, static_cast<float>(recipe.optim.lr * 0.5));
  EXPECT_FLOAT_EQ(scalars.biasCorrection1, 1 - std::pow(0.9f, 4.0f));
  EXPECT_FLOAT_EQ(scalars.biasCorrection2, 1 - std::pow(0.95f, 4.0f));
}

TEST(TrainingStepTest, RowsMustFitTheBundle) {
  TinyRun tiny;
  auto step = makeStep(tiny);
  ASSERT_OK(step);
  expectError(step->train({}, {}).status(), {"at least one row"});
  Batch batch = makeBatch({makeRow(0, 1)});
  batch.rows[0].ids.pop_back();
  expectError(step->train(batch, {}).status(),
              {"a row brings 47 words of ids, the bundle was compiled for 48"});
}

} // namespace
} // namespace qwen35
