#include "runtime/train/run.h"

#include <chrono>
#include <csignal>
#include <cstring>
#include <limits>
#include <random>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "runtime/checkpoint/json.h"
#include "test/unit/train/train_test_util.h"

namespace qwen35 {
namespace {

using namespace test;

double lossOf(const std::string &output, const std::string &when) {
  size_t end = output.find(" on the first batch (" + when);
  EXPECT_NE(end, std::string::npos) << when << " in\n" << output;
  size_t begin = output.rfind("eval loss ", end) + 10;
  return std::stod(output.substr(begin, end - begin));
}

TEST(RunTest, TrainsRecordsAndSaves) {
  TinyRun tiny;
  RunOptions options = tiny.options(30);
  options.sets.push_back("train.save_every=10");
  options.evalLoss = true;
  options.profile = true;
  ASSERT_OK(tiny.run(options));

  EXPECT_EQ(countLines(tiny.output, " | loss "), 30);
  expectContains(tiny.output, "step 30/30 | loss ");
  expectContains(tiny.output, "model   tiny: 256 parameters in 1 tensor");
  expectContains(tiny.output, "weights seed 7");
  expectContains(tiny.output, "time per class of op over 30 steps");
  EXPECT_LT(lossOf(tiny.output, "step 30"), 0.3 * lossOf(tiny.output, "start"));
  std::string run = options.out;
  EXPECT_EQ(countLines(readAll(run + "/metrics.jsonl"), "\"loss\""), 30);
  EXPECT_EQ(listFolder(run + "/tensorboard")->size(), 1u);
  EXPECT_EQ(*listFolder(run + "/checkpoints"), // keep_last 2
            (std::vector<std::string>{"latest", "step-00000020",
                                      "step-00000030"}));
  expectContains(readAll(run + "/recipe.toml"), "lr = 10.0");
  auto record = parseJson(readAll(run + "/run.json"), "run.json");
  ASSERT_OK(record);
  EXPECT_EQ((*record)["target"]["threads"], 1);
}

TEST(RunTest, ResumingGivesTheBitsOfAStraightRun) {
  TinyRun tiny;
  ASSERT_OK(tiny.run(tiny.options(20, "straight")));
  RunOptions options = tiny.options(8, "parts");
  options.sets.push_back("train.steps=20");
  ASSERT_OK(tiny.run(options));
  options.steps = 20;
  options.resume = true;
  options.threads = 2;
  options.initSeed.reset(); // the checkpoint knows
  ASSERT_OK(tiny.run(options));
  expectContains(tiny.output, "resume  step 8 of 20 from ");
  EXPECT_EQ(tiny.state("straight", 20), tiny.state("parts", 20));
  std::string metrics = readAll(options.out + "/metrics.jsonl");
  EXPECT_EQ(countLines(metrics, "\"step\""), 20);
  ASSERT_OK(tiny.run(options));
  expectContains(tiny.output, "nothing to do: step 20 of 20 is done");
}

// Killed at 20 random moments, of start-up, steps and saves, and resumed each
// time: the weights of the straight run, bit for bit.
TEST(RunTest, AKilledRunResumesToTheSameWeights) {
  TinyRun tiny;
  constexpr int64_t kSteps = 40;
  RunOptions options = tiny.options(kSteps, "straight");
  options.sets.push_back("train.save_every=1");
  ASSERT_OK(tiny.run(options));
  options.out = tiny.folder.in("killed");
  options.resume = true;
  std::mt19937 random(1);
  for (int kill = 0; kill < 20; ++kill) {
    pid_t child = ::fork();
    if (child == 0) {
      std::FILE *out = std::fopen("/dev/null", "w");
      ::_exit(runBundle(options, out).ok() ? 0 : 1);
    }
    std::this_thread::sleep_for(
        std::chrono::microseconds(5000 + random() % 100000));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
  }
  ASSERT_OK(tiny.run(options));
  EXPECT_EQ(tiny.state("straight", kSteps), tiny.state("killed", kSteps));
}

TEST(RunTest, ASignalSavesAndEnds) {
  for (int signal : {SIGTERM, SIGINT}) {
    TinyRun tiny;
    RunOptions options = tiny.options(1000000);
    pid_t child = ::fork();
    if (child == 0) {
      std::FILE *out = std::fopen(tiny.folder.in("child").c_str(), "w");
      absl::Status status = runBundle(options, out);
      std::fclose(out);
      ::_exit(status.ok() ? 0 : 1);
    }
    std::string metrics = options.out + "/metrics.jsonl";
    for (int i = 0; i < 2000; ++i) { // until it trains
      auto text = readFile(metrics, 1 << 24);
      if (text.ok() && text->size() > 1000)
        break;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    ::kill(child, signal);
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
    std::string output = readAll(tiny.folder.in("child"));
    expectContains(output, signal == SIGTERM ? "stopped by SIGTERM after step"
                                             : "stopped by SIGINT after step");
    auto store = CheckpointStore::open(options.out);
    ASSERT_OK(store);
    auto newest = store->findNewest();
    ASSERT_OK(newest);
    ASSERT_TRUE(newest->has_value());
    EXPECT_GT((*newest)->step(), 0);
    EXPECT_EQ((*newest)->step(),
              countLines(readAll(metrics), "\"step\"")); // none lost
  }
}

TEST(RunTest, AnExportReloadsToTheSameLoss) {
  // float32 on file: nothing is rounded.
  TinyRun tiny([](bundle::Bundle &message) {
    message.mutable_params(0)->set_file_dtype(bundle::F32);
  });
  RunOptions options = tiny.options(10);
  options.exportHf = tiny.folder.in("model");
  options.evalLoss = true;
  ASSERT_OK(tiny.run(options));
  double trained = lossOf(tiny.output, "step 10");
  EXPECT_EQ(lossOf(tiny.output, "reloaded from"), trained);
  EXPECT_EQ(readAll(options.exportHf + "/config.json"), "{}");

  // Another run starts from the folder, trains nothing and sees the same loss.
  RunOptions again = tiny.options(0, "again");
  again.initSeed.reset();
  again.weights = options.exportHf;
  again.evalLoss = true;
  ASSERT_OK(tiny.run(again));
  EXPECT_EQ(lossOf(tiny.output, "start"), trained);
  expectContains(tiny.output, "1 parameters from 1 tensors in 1 file");
}

TEST(RunTest, AResumedRunStillExportsLikeItsOriginal) {
  TinyRun tiny;
  MadeTensor w = makeTensor("model.language_model.w", ElementType::F16, {256});
  ASSERT_OK(makeFolders(tiny.folder.in("hf")));
  ASSERT_OK(writeTensors(tiny.folder.in("hf/model.safetensors"),
                         {w, makeTensor("mtp.x", ElementType::BF16, {3})}));
  RunOptions options = tiny.options(3);
  options.initSeed.reset();
  options.weights = tiny.folder.in("hf");
  ASSERT_OK(tiny.run(options));
  expectContains(tiny.output, "kept aside: 1 mtp, 0 vision; names composite");
  options.weights.clear();
  options.steps = 6;
  options.resume = true;
  options.exportHf = tiny.folder.in("model");
  ASSERT_OK(tiny.run(options));
  auto before = tensorsOf(tiny.folder.in("hf")),
       after = tensorsOf(options.exportHf);
  EXPECT_EQ(after.size(), 2u);
  EXPECT_EQ(after["mtp.x"], before["mtp.x"]);
  EXPECT_EQ(after["model.language_model.w"].substr(0, 10), "F16 [256] ");
  EXPECT_NE(after["model.language_model.w"], before["model.language_model.w"]);
}

/// Takes what a run reports, and fills the disk (a file size limit stands for
/// it) as soon as the run reports step 5.
struct FillingReport {
  static ssize_t write(void *self, const char *text, size_t size) {
    auto &report = *static_cast<FillingReport *>(self);
    report.text.append(text, size);
    if (report.text.find("step 5/8 |") != std::string::npos) {
      struct rlimit tight = report.before;
      tight.rlim_cur = 1100; // below a file of 256 floats with its header
      EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &tight), 0);
    }
    return static_cast<ssize_t>(size);
  }
  std::string text;
  struct rlimit before;
};

// Training goes on, the run ends with the one error of the last save, and the
// checkpoint before is where it resumes.
TEST(RunTest, AFullDiskEndsWithOneErrorAndLosesNothing) {
  ignoreFileSizeSignal();
  TinyRun tiny;
  ASSERT_OK(tiny.run(tiny.options(8, "straight")));
  RunOptions options = tiny.options(8);
  options.sets.push_back("train.save_every=2");
  FillingReport report;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &report.before), 0);
  std::FILE *out =
      ::fopencookie(&report, "w", {nullptr, FillingReport::write, nullptr,
                                   nullptr});
  absl::Status status = runBundle(options, out);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &report.before), 0);
  std::fclose(out);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  expectError(status, {"writing ", "step-00000008/", ": File too large"});
  expectContains(report.text,
                 "training goes on, the newest checkpoint is step 4");
  expectContains(report.text, "step 8/8 |");
  options.resume = true;
  ASSERT_OK(tiny.run(options));
  expectContains(tiny.output, "resume  step 4 of 8");
  EXPECT_EQ(tiny.state("straight", 8), tiny.state("run", 8));
}

TEST(RunTest, StepsWithoutAFiniteGradientEndTheRun) {
  TinyRun tiny;
  MadeTensor w = makeTensor("model.w", ElementType::F32, {256});
  float infinity = std::numeric_limits<float>::infinity();
  std::memcpy(&w.bytes[4 * 'e'], &infinity, 4);
  ASSERT_OK(makeFolders(tiny.folder.in("hf")));
  ASSERT_OK(writeTensors(tiny.folder.in("hf/model.safetensors"), {w}));
  RunOptions options = tiny.options(30);
  options.initSeed.reset();
  options.weights = tiny.folder.in("hf");
  options.maxSkipped = 3;
  absl::Status status = tiny.run(options);
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  expectError(status, {"3 steps in a row, up to step 3, had a gradient norm "
                       "that is not finite"});
  EXPECT_EQ(countLines(tiny.output, "changed nothing"), 3);
  EXPECT_EQ(countLines(readAll(options.out + "/metrics.jsonl"),
                       "\"committed\":false"),
            3);
}

TEST(RunTest, ADryRunPrintsRecipeParametersAndPlan) {
  TinyRun tiny;
  RunOptions options;
  options.bundle = tiny.folder.in("tiny.q35");
  options.dryRun = true;
  options.data = {tiny.folder.in("text")};
  options.sets = {"optim.lr=0.5"};
  ASSERT_OK(tiny.run(options));
  for (const char *part :
       {"lr = 0.5", "model.w ", "[256]", "normal(0.02)", "BF16",
        "256 elements in 1 tensors", "arena state", "weights",
        "largest buffers:", "program finish", "data    40 documents"})
    expectContains(tiny.output, part);
  EXPECT_EQ(*listFolder(tiny.folder.path),
            (std::vector<std::string>{"out", "text", "tiny.q35"}));
}

} // namespace
} // namespace qwen35
