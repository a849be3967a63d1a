#include "runtime/schedule/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

using namespace qwen35;

namespace {

Recipe recipeOf(const char *kind, int64_t steps, int64_t warmup,
                int64_t decay = 0) {
  Recipe r;
  r.optim.lr = 1.0;
  r.schedule.kind = kind;
  r.schedule.minLr = 0.25;
  r.schedule.warmupSteps = warmup;
  r.schedule.decaySteps = decay;
  r.train.steps = steps;
  return r;
}

} // namespace

TEST(ScheduleTest, WarmupRisesFromTheFirstStepToTheFullRate) {
  for (const char *kind : {"constant", "linear", "cosine", "wsd"}) {
    Recipe r = recipeOf(kind, 100, 4);
    EXPECT_EQ(learningRate(r, 1), 0.25) << kind;
    EXPECT_EQ(learningRate(r, 2), 0.5) << kind;
    EXPECT_EQ(learningRate(r, 3), 0.75) << kind;
    EXPECT_EQ(learningRate(r, 4), 1.0) << kind;
    EXPECT_EQ(learningRate(r, 5), 1.0) << kind; // p = 0
  }
}

TEST(ScheduleTest, WithoutWarmupTheFirstStepHasTheFullRate) {
  for (const char *kind : {"constant", "linear", "cosine", "wsd"})
    EXPECT_EQ(learningRate(recipeOf(kind, 20, 0), 1), 1.0) << kind;
}

TEST(ScheduleTest, ConstantStays) {
  Recipe r = recipeOf("constant", 10, 0);
  EXPECT_EQ(learningRate(r, 10), 1.0);
  EXPECT_EQ(learningRate(r, 1000), 1.0);
}

TEST(ScheduleTest, LinearFallsByEqualParts) {
  Recipe r = recipeOf("linear", 5, 1); // four steps from p = 0 to 3/4
  EXPECT_EQ(learningRate(r, 2), 1.0);
  EXPECT_EQ(learningRate(r, 3), 0.25 + 0.75 * 0.75);
  EXPECT_EQ(learningRate(r, 4), 0.25 + 0.75 * 0.5);
  EXPECT_EQ(learningRate(r, 5), 0.25 + 0.75 * 0.25);
  EXPECT_EQ(learningRate(r, 6), 0.25);
  EXPECT_EQ(learningRate(r, 7), 0.25);
}

TEST(ScheduleTest, CosineHasItsKnownPoints) {
  Recipe r = recipeOf("cosine", 6, 0);
  EXPECT_EQ(learningRate(r, 1), 1.0);
  EXPECT_NEAR(learningRate(r, 3), 0.25 + 0.75 * 0.75, 1e-15); // cos(pi/3)
  EXPECT_NEAR(learningRate(r, 4), 0.25 + 0.75 * 0.5, 1e-15);  // cos(pi/2)
  EXPECT_NEAR(learningRate(r, 5), 0.25 + 0.75 * 0.25, 1e-15);
  EXPECT_EQ(learningRate(r, 7), 0.25);
  EXPECT_EQ(learningRate(r, 1000000), 0.25);
}

TEST(ScheduleTest, WsdHoldsThenFallsInItsLastSteps) {
  Recipe r = recipeOf("wsd", 10, 2, 4);
  for (int64_t step = 2; step <= 7; ++step)
    EXPECT_EQ(learningRate(r, step), 1.0) << step;
  EXPECT_EQ(learningRate(r, 8), 0.25 + 0.75 * 0.75);
  EXPECT_EQ(learningRate(r, 9), 0.25 + 0.75 * 0.5);
  EXPECT_EQ(learningRate(r, 10), 0.25 + 0.75 * 0.25);
  EXPECT_EQ(learningRate(r, 11), 0.25);
}

TEST(ScheduleTest, WsdDecaysInATenthOfTheStepsByDefault) {
  Recipe r = recipeOf("wsd", 20, 0);
  EXPECT_EQ(learningRate(r, 19), 1.0);
  EXPECT_EQ(learningRate(r, 20), 0.25 + 0.75 * 0.5);
  r = recipeOf("wsd", 21, 0); // ceil(2.1) = 3
  EXPECT_EQ(learningRate(r, 20), 0.25 + 0.75 * (2.0 / 3.0));
}

TEST(ScheduleTest, WsdDecayNeverReachesIntoWarmup) {
  Recipe r = recipeOf("wsd", 6, 4, 100);
  EXPECT_EQ(learningRate(r, 4), 1.0);
  EXPECT_EQ(learningRate(r, 5), 1.0);
  EXPECT_EQ(learningRate(r, 6), 0.25 + 0.75 * 0.5);
}

TEST(ScheduleTest, WarmupLongerThanTheRunKeepsRising) {
  Recipe r = recipeOf("cosine", 3, 8);
  EXPECT_EQ(learningRate(r, 3), 0.375);
  EXPECT_EQ(learningRate(r, 8), 1.0);
  EXPECT_EQ(learningRate(r, 9), 0.25); // beyond warmup and beyond the run
}

TEST(ScheduleTest, OneStepRun) {
  for (const char *kind : {"constant", "linear", "cosine", "wsd"})
    EXPECT_EQ(learningRate(recipeOf(kind, 1, 0), 1), 1.0) << kind;
}

TEST(ScheduleTest, BiasCorrectionsAreExactWhereFloatsAre) {
  EXPECT_DOUBLE_EQ(biasCorrection(0.5, 1), 0.5);
  EXPECT_DOUBLE_EQ(biasCorrection(0.5, 3), 0.875);
  EXPECT_DOUBLE_EQ(biasCorrection(0.9, 1), 0.1);
  EXPECT_DOUBLE_EQ(biasCorrection(0.75, 2), 0.4375);
  EXPECT_EQ(biasCorrection(0.0, 1), 1.0);
  EXPECT_DOUBLE_EQ(biasCorrection(0.999, 100000), 1.0);
}
