#include "runtime/checkpoint/train_checkpoint.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <limits>
#include <random>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "absl/strings/str_replace.h"
#include "test/unit/checkpoint/checkpoint_test_util.h"

namespace qwen35 {
namespace {

using namespace test;

std::vector<ParamSpec> someParams(int64_t rows = 4) {
  return {{"model.embed_tokens.weight", {rows, 8}, "", ElementType::BF16},
          {"model.layers.0.linear_attn.A_log", {3}, "", ElementType::F32},
          {"model.norm.weight", {8}, "", ElementType::BF16}};
}

/// Weights and moments whose every value tells parameter, role and step.
class State {
public:
  State(std::vector<ParamSpec> params, int64_t step)
      : params(std::move(params)) {
    for (const ParamSpec &param : this->params)
      for (int role = 0; role < 3; ++role) {
        std::vector<float> values(param.elements());
        for (size_t i = 0; i < values.size(); ++i)
          values[i] = std::sin(static_cast<float>(
              step * 31 + role * 7 + static_cast<int64_t>(i)));
        arrays.push_back(std::move(values));
      }
  }
  std::vector<ParamArrays<float>> mut() {
    std::vector<ParamArrays<float>> result;
    for (size_t i = 0; i < params.size(); ++i)
      result.push_back({absl::MakeSpan(arrays[3 * i]),
                        absl::MakeSpan(arrays[3 * i + 1]),
                        absl::MakeSpan(arrays[3 * i + 2])});
    return result;
  }
  std::vector<ParamArrays<const float>> view() const {
    std::vector<ParamArrays<const float>> result;
    for (size_t i = 0; i < params.size(); ++i)
      result.push_back({arrays[3 * i], arrays[3 * i + 1], arrays[3 * i + 2]});
    return result;
  }
  bool operator==(const State &other) const { return arrays == other.arrays; }

  std::vector<ParamSpec> params;
  std::vector<std::vector<float>> arrays;
};

absl::Status saveStep(const CheckpointStore &store, const State &state,
                      int64_t step, int64_t keepLast = 0) {
  TrainState train;
  train.step = step;
  train.loader = R"({"epoch":2})";
  return store.save(train, state.params, state.view(), {.keepLast = keepLast})
      .status();
}

int64_t newestStep(const CheckpointStore &store,
                   std::vector<std::string> *refused = nullptr) {
  auto newest = store.findNewest(refused);
  EXPECT_TRUE(newest.ok()) << newest.status();
  if (!newest.ok() || !newest->has_value())
    return -1;
  return (*newest)->step();
}

TEST(TrainCheckpointTest, RestoresEveryBit) {
  TempFolder run;
  auto store = CheckpointStore::open(run.path);
  ASSERT_OK(store);
  State state(someParams(), 10);
  state.arrays[0][0] = -0.0f; // bits, not values
  state.arrays[1][1] = std::numeric_limits<float>::denorm_min();
  state.arrays[2][2] = std::numeric_limits<float>::infinity();
  TrainState saved{10,
                   1,
                   12345,
                   R"({"cursor":7,"epoch":3})",
                   R"({"seed":5})",
                   "[train]\nsteps = 20\n",
                   "abcdef"};
  auto report = store->save(saved, state.params, state.view(),
                            {.maxShardBytes = 100});
  ASSERT_OK(report);
  EXPECT_EQ(report->path, run.in("checkpoints/step-00000010"));
  EXPECT_TRUE(exists(report->path + "/m-00002-of-00002.safetensors"));
  EXPECT_TRUE(exists(run.in("checkpoints/latest/manifest.json")));

  auto newest = store->findNewest();
  ASSERT_OK(newest);
  ASSERT_TRUE(newest->has_value());
  const TrainState &read = (*newest)->state;
  EXPECT_EQ(read.step, 10);
  EXPECT_EQ(read.skipped, 1);
  EXPECT_EQ(read.realTokens, 12345);
  EXPECT_EQ(read.loader, saved.loader);
  EXPECT_EQ(read.rng, saved.rng);
  EXPECT_EQ(read.recipe, saved.recipe);
  EXPECT_EQ(read.bundleSha256, saved.bundleSha256);
  State loaded(someParams(), 99);
  ASSERT_OK(CheckpointStore::load(**newest, loaded.params, loaded.mut()));
  for (size_t i = 0; i < state.arrays.size(); ++i)
    EXPECT_EQ(std::string(reinterpret_cast<char *>(loaded.arrays[i].data()),
                          loaded.arrays[i].size() * 4),
              std::string(reinterpret_cast<char *>(state.arrays[i].data()),
                          state.arrays[i].size() * 4));
}

TEST(TrainCheckpointTest, AnEmptyRunHasNone) {
  TempFolder run;
  auto store = CheckpointStore::open(run.path);
  ASSERT_OK(store);
  EXPECT_EQ(newestStep(*store), -1);
}

TEST(TrainCheckpointTest, KeepsTheLastAndNeverRemovesTheNewestValidOne) {
  TempFolder run;
  auto store = CheckpointStore::open(run.path);
  ASSERT_OK(store);
  State state(someParams(), 0);
  for (int64_t step : {10, 20, 30, 40})
    ASSERT_OK(saveStep(*store, state, step, 2));
  EXPECT_EQ(*store->steps(), (std::vector<int64_t>{30, 40}));
  // 30 and 40 get damaged, and a run that resumes from nothing saves step 5:
  // it must survive although its number is the smallest.
  for (const char *step : {"step-00000030", "step-00000040"})
    ASSERT_OK(writeFile(
        run.in(absl::StrCat("checkpoints/", step, "/manifest.json")), "{}"));
  ASSERT_OK(saveStep(*store, state, 5, 1));
  ASSERT_OK(saveStep(*store, state, 6, 1));
  EXPECT_EQ(*store->steps(), (std::vector<int64_t>{6, 30, 40}));
  EXPECT_EQ(newestStep(*store), 6);
}

TEST(TrainCheckpointTest, SavingAStepAgainReplacesItWhole) {
  TempFolder run;
  auto store = CheckpointStore::open(run.path);
  ASSERT_OK(store);
  State first(someParams(), 1), second(someParams(), 2);
  ASSERT_OK(saveStep(*store, first, 10));
  ASSERT_OK(saveStep(*store, second, 10));
  State loaded(someParams(), 3);
  ASSERT_OK(CheckpointStore::load(**store->findNewest(), loaded.params,
                                  loaded.mut()));
  EXPECT_TRUE(loaded == second);
  EXPECT_EQ(*listFolder(store->path()),
            (std::vector<std::string>{"latest", "step-00000010"}));
}

// Every file of the newest checkpoint, damaged in turn: the one before it is
// taken and the reason is said.
TEST(TrainCheckpointTest, DamagedCheckpointsAreRefusedWithAReason) {
  TempFolder run;
  auto store = CheckpointStore::open(run.path);
  ASSERT_OK(store);
  State state(someParams(), 0);
  ASSERT_OK(saveStep(*store, state, 10));
  ASSERT_OK(saveStep(*store, state, 20));
  std::string newest = store->pathOf(20);
  std::vector<std::string> names = *listFolder(newest);
  for (const std::string &name : names) {
    std::string path = joinPath(newest, name), good = readAll(path);
    std::string flipped = good, brief = good.substr(0, good.size() / 2);
    flipped[good.size() / 3] ^= 4;
    for (const std::string &bad : {flipped, brief, std::string()}) {
      ASSERT_OK(writeFile(path, bad));
      std::vector<std::string> refused;
      EXPECT_EQ(newestStep(*store, &refused), 10) << name;
      ASSERT_EQ(refused.size(), 1u);
      EXPECT_NE(refused[0].find(path), std::string::npos) << refused[0];
    }
    ASSERT_OK(removeAll(path));
    EXPECT_EQ(newestStep(*store), 10) << name;
    ASSERT_OK(writeFile(path, good));
    EXPECT_EQ(newestStep(*store), 20) << name;
  }
  // A whole checkpoint under another step's name is no good either.
  ASSERT_EQ(::rename(newest.c_str(), store->pathOf(30).c_str()), 0);
  std::vector<std::string> refused;
  EXPECT_EQ(newestStep(*store, &refused), 10);
  EXPECT_NE(refused[0].find("holds step 20"), std::string::npos);
}

TEST(TrainCheckpointTest, OpeningRemovesWhatAKilledRunLeft) {
  TempFolder run;
  ASSERT_OK(makeFolders(run.in("checkpoints/.tmp-step-00000030")));
  ASSERT_OK(writeFile(run.in("checkpoints/.tmp-step-00000030/m"), "half"));
  ASSERT_OK(makeFolders(run.in("checkpoints/notes")));
  ASSERT_OK(CheckpointStore::open(run.path));
  EXPECT_EQ(*listFolder(run.in("checkpoints")),
            std::vector<std::string>{"notes"});
}

TEST(TrainCheckpointTest, AnotherModelIsRefusedAndNothingIsWritten) {
  TempFolder run;
  auto store = CheckpointStore::open(run.path);
  ASSERT_OK(store);
  ASSERT_OK(saveStep(*store, State(someParams(), 0), 10));
  Checkpoint checkpoint = **store->findNewest();
  State wider(someParams(5), 1), before = wider;
  expectError(
      CheckpointStore::load(checkpoint, wider.params, wider.mut()),
      {"belongs to another model: weights of model.embed_tokens.weight is F32 "
       "[4, 8], expected F32 [5, 8]"});
  EXPECT_TRUE(wider == before);
  std::vector<ParamSpec> more = someParams();
  more.push_back({"lm_head.weight", {4, 8}, "", ElementType::F32});
  State untied(more, 1);
  expectError(CheckpointStore::load(checkpoint, untied.params, untied.mut()),
              {"weights of lm_head.weight [4, 8] is missing"});
  std::vector<ParamSpec> fewer = someParams();
  fewer.pop_back();
  State less(fewer, 1);
  expectError(CheckpointStore::load(checkpoint, less.params, less.mut()),
              {"model.norm.weight is no parameter of the bundle"});
}

TEST(TrainCheckpointTest, WrongArraysAndStateAreRefused) {
  TempFolder run;
  auto store = CheckpointStore::open(run.path);
  ASSERT_OK(store);
  State state(someParams(), 0);
  auto arrays = state.view();
  arrays[1].m = arrays[1].m.subspan(1);
  expectError(store->save({}, state.params, arrays, {}).status(),
              {"saving step 0: m of model.layers.0.linear_attn.A_log has 2 "
               "elements, expected 3"});
  TrainState broken;
  broken.loader = "{";
  expectError(
      store->save(broken, state.params, state.view(), {}).status(),
      {"saving step 0: loader state: not valid JSON"});
  EXPECT_TRUE(listFolder(store->path())->empty());
}

// The disk fills up at every possible place of a save: one clear error, the
// checkpoint before it valid, no trace of the new one, the state as it was.
TEST(TrainCheckpointTest, AFullDiskLosesNothing) {
  ignoreFileSizeSignal();
  TempFolder run;
  auto store = CheckpointStore::open(run.path);
  ASSERT_OK(store);
  State state(someParams(200), 7), before = state;
  ASSERT_OK(saveStep(*store, state, 10));
  struct rlimit unlimited;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &unlimited), 0);
  bool saved = false;
  int failures = 0;
  for (rlim_t limit = 0; !saved; limit += 611) {
    struct rlimit tight = unlimited;
    tight.rlim_cur = limit;
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &tight), 0);
    absl::Status status = saveStep(*store, state, 20);
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &unlimited), 0);
    saved = status.ok();
    EXPECT_EQ(newestStep(*store), saved ? 20 : 10);
    if (saved)
      break;
    ++failures;
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    expectError(status, {"writing ", ": File too large"});
    EXPECT_EQ(*listFolder(store->path()),
              (std::vector<std::string>{"latest", "step-00000010"}));
  }
  EXPECT_GT(failures, 8);
  EXPECT_TRUE(state == before);
}

// A process saves as fast as it can and is killed at random moments. Whenever
// it is, the newest checkpoint is whole, at least as new as the last save that
// returned, and holds the numbers of its step.
TEST(TrainCheckpointTest, AKillAtAnyMomentLosesAtMostTheSaveUnderWay) {
  TempFolder run;
  std::mt19937 random(20); // fixed moments up to the machine's own jitter
  int64_t resumed = 0;
  for (int round = 0; round < 20; ++round) {
    int progress[2];
    ASSERT_EQ(::pipe(progress), 0);
    pid_t child = ::fork();
    if (child == 0) {
      auto store = CheckpointStore::open(run.path);
      if (!store.ok())
        ::_exit(2);
      for (int64_t step = resumed + 1;; ++step) {
        State state(someParams(500), step);
        if (!saveStep(*store, state, step, 2).ok())
          ::_exit(3);
        if (::write(progress[1], &step, sizeof step) != sizeof step)
          ::_exit(4);
      }
    }
    ::close(progress[1]);
    // Wait for one whole save, then for a moment anywhere in the next few.
    int64_t done = 0;
    ASSERT_EQ(::read(progress[0], &done, sizeof done), ssize_t{sizeof done});
    std::this_thread::sleep_for(
        std::chrono::microseconds(random() % 20000));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child failed by itself";
    while (::read(progress[0], &done, sizeof done) == ssize_t{sizeof done}) {
    }
    ::close(progress[0]);

    auto store = CheckpointStore::open(run.path);
    ASSERT_OK(store);
    std::vector<std::string> refused;
    auto newest = store->findNewest(&refused);
    ASSERT_OK(newest);
    ASSERT_TRUE(newest->has_value());
    EXPECT_TRUE(refused.empty()) << refused[0];
    EXPECT_GE((*newest)->step(), done);
    EXPECT_LE((*newest)->step(), done + 1);
    State loaded(someParams(500), -1);
    ASSERT_OK(CheckpointStore::load(**newest, loaded.params, loaded.mut()));
    EXPECT_TRUE(loaded == State(someParams(500), (*newest)->step()));
    std::vector<std::string> names = *listFolder(store->path());
    for (const std::string &name : names)
      EXPECT_NE(name[0], '.') << name;
    resumed = (*newest)->step();
  }
}

} // namespace
} // namespace qwen35
