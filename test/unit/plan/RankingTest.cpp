// Rankings against the plans of whole models, and ranks that are simulated
// against one that is predicted.

#include "tools/qwen35-plan/Ranking.h"
#include "frontend/config/ModelFiles.h"
#include "tools/qwen35-plan/Simulate.h"
#include "tools/qwen35-plan/Svg.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace qwen35::plan {
namespace {

using ::testing::HasSubstr;

ModelConfig config(const char *model) {
  llvm::Expected<ModelSource> source = parseModel(model);
  if (source)
    return source->config;
  ADD_FAILURE() << llvm::toString(source.takeError());
  return {};
}

PlanRequest request(int64_t gpus, int64_t tokens) {
  PlanRequest r;
  r.gpus = gpus;
  r.recipe.data.tokens = tokens;
  return r;
}

PlannedMesh predicted(const ModelConfig &model, const PlanRequest &r,
                      const MeshShape &shape, int64_t zero, int64_t rows) {
  std::string error;
  std::optional<PlannedMesh> mesh =
      predictMesh(model, r, *loadHardware("h200"), shape, zero, rows,
                  /*keepEntries=*/true, error);
  EXPECT_TRUE(mesh) << error;
  return mesh ? std::move(*mesh) : PlannedMesh{};
}

// Two periods of layers, extended to six, are the model.
TEST(Ranking, ExtendsPeriodsToTheModel) {
  ModelConfig model = config("0.8b");
  PlanRequest r = request(2, 2048);
  r.candidates = 4;
  r.anyRemat = false;
  std::string error;
  std::optional<Ranking> ranking =
      rankMeshes(model, r, *loadHardware("h200"), error);
  ASSERT_TRUE(ranking) << error;
  EXPECT_EQ(ranking->rows, 2);
  ASSERT_FALSE(ranking->meshes.empty());
  double last = 0;
  for (const RankedMesh &mesh : ranking->meshes) {
    EXPECT_TRUE(mesh.fits);
    EXPECT_GE(mesh.seconds, last);
    EXPECT_GE(mesh.bytes, mesh.leastBytes);
    EXPECT_GE(mesh.seconds, mesh.leastSeconds);
    last = mesh.seconds;
  }
  const RankedMesh &best = ranking->meshes.front();
  PlannedMesh whole = predicted(model, r, best.shape, best.zero, 2);
  EXPECT_NEAR(best.bytes / whole.step.totalBytes, 1, 0.01);
  EXPECT_NEAR(best.seconds / whole.timeline.seconds, 1, 0.01);
}

TEST(Ranking, NamesWhatNoMeshCanDo) {
  PlanRequest r = request(7, 256);
  r.rows = 4;
  std::string error;
  EXPECT_FALSE(rankMeshes(config("debug"), r, *loadHardware("h200"), error));
  EXPECT_THAT(error, HasSubstr("7 GPUs"));
  EXPECT_THAT(error, HasSubstr("4 rows"));
}

class Simulated : public ::testing::Test {
protected:
  const Hardware hardware = *loadHardware("h200");
  PlannedMesh mesh = predicted(config("debug-moe"), request(0, 256),
                               {.dps = 2, .tp = 2, .ep = 4}, 1, 4);
  std::string run(const SimulateOptions &options, Simulation &result) {
    return simulate({&mesh.step}, mesh.microbatches, hardware, {}, options,
                    result);
  }
};

TEST_F(Simulated, EqualRanksAreTheOnePredicted) {
  Simulation all;
  ASSERT_EQ(run({}, all), "");
  EXPECT_EQ(all.waited.size(), 4u);
  EXPECT_GT(all.events, 0);
  EXPECT_NEAR(all.seconds, mesh.timeline.seconds, 1e-12);
  for (double waited : all.waited)
    EXPECT_NEAR(waited, 0, 1e-12);
}

// The others wait for the slow one, and nobody longer than it takes.
TEST_F(Simulated, OthersWaitForASlowRank) {
  Simulation slow;
  ASSERT_EQ(run({.slowRank = 2, .slowdown = 1.5}, slow), "");
  EXPECT_GT(slow.seconds, mesh.timeline.seconds);
  EXPECT_LE(slow.seconds,
            mesh.timeline.seconds + 0.5 * mesh.timeline.compute + 1e-9);
  for (size_t rank : {0, 1, 3})
    EXPECT_GT(slow.waited[rank], slow.waited[2]);
  Simulation jitter, again;
  ASSERT_EQ(run({.jitter = 0.2}, jitter), "");
  ASSERT_EQ(run({.jitter = 0.2}, again), "");
  EXPECT_EQ(jitter.seconds, again.seconds);
  EXPECT_GT(jitter.seconds, mesh.timeline.seconds);
  EXPECT_LE(jitter.seconds, 1.2 * mesh.timeline.seconds);
}

// One rank's plan lacks a collective: nobody hangs, the ranks are named.
TEST_F(Simulated, RanksThatWaitForeverAreNamed) {
  LocalStep other = mesh.step;
  bool removed = false;
  auto &entries = other.programs[stepPrograms(other, mesh.microbatches).back()];
  for (PlannedOp &entry : entries)
    if (entry.kind == PlannedOp::Kind::Collective && !removed) {
      entry.kind = PlannedOp::Kind::Fill;
      removed = true;
    }
  ASSERT_TRUE(removed);
  Simulation result;
  std::string error = simulate({&mesh.step, &other, &mesh.step, &mesh.step},
                               mesh.microbatches, hardware, {}, {}, result);
  EXPECT_THAT(error, HasSubstr("wait for each other forever"));
  EXPECT_THAT(error, HasSubstr("rank 1"));
  EXPECT_THAT(error, HasSubstr("number "));
}

TEST_F(Simulated, PictureHasBothLanesAndTheMemory) {
  std::string text;
  llvm::raw_string_ostream out(text);
  drawStep(mesh, hardware, "a < b & c", out);
  EXPECT_THAT(text, HasSubstr("a &lt; b &amp; c"));
  for (const ClassTime &c : mesh.timeline.collectives)
    EXPECT_THAT(text, HasSubstr(c.name + ": "));
  EXPECT_THAT(text, HasSubstr("memory of the rank"));
  EXPECT_THAT(text, HasSubstr("</svg>"));
}

} // namespace
} // namespace qwen35::plan
