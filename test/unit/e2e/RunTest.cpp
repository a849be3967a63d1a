// Runs of the debug model from outside: determinism, kills, resume, signals.

#include "test/unit/e2e/E2e.h"

#include "gtest/gtest.h"

#include <random>

namespace qwen35 {
namespace {

using namespace test;

class RunTest : public testing::Test {
protected:
  RunTest() {
    writeFile(folder / "text", sampleText());
    bundle = bundleOf("debug --tokens 64 --max-docs 4 --set train.rows=2 "
                      "--set optim.lr=1e-2");
  }

  /// A training command; the export goes to NAME-hf.
  std::string train(const std::string &name, int steps,
                    const std::string &more = "") {
    return tool("qwen35-run") + " " + bundle + " --init 7 --data " +
           (folder / "text") + " --steps " + std::to_string(steps) +
           " --set train.steps=" + std::to_string(steps) + " --out " +
           (folder / name) + " --export-hf " + (folder / (name + "-hf")) +
           " " + more;
  }

  std::string weights(const std::string &name) {
    return readFile(folder / (name + "-hf/model.safetensors"));
  }

  /// loss and grad_norm of every step, as written.
  std::vector<std::string> metrics(const std::string &name) {
    std::istringstream lines(readFile(folder / (name + "/metrics.jsonl")));
    std::vector<std::string> result;
    for (std::string line; std::getline(lines, line);) {
      auto record = nlohmann::json::parse(line, nullptr, false);
      result.push_back(record["loss"].dump() + " " +
                       record["grad_norm"].dump());
    }
    return result;
  }

  TempFolder folder;
  std::string bundle;
};

TEST_F(RunTest, ThreadsDoNotChangeABit) {
  for (int threads : {1, 2, 4})
    quiet(train("t" + std::to_string(threads), 8,
                "--threads " + std::to_string(threads)));
  ASSERT_FALSE(weights("t1").empty());
  EXPECT_EQ(weights("t1"), weights("t2"));
  EXPECT_EQ(weights("t1"), weights("t4"));
}

TEST_F(RunTest, A29FreshProcessesGiveTheSameCurve) {
  for (const char *name : {"a", "b", "c"})
    quiet(train(name, 20));
  ASSERT_EQ(metrics("a").size(), 20u);
  EXPECT_EQ(metrics("a"), metrics("b"));
  EXPECT_EQ(metrics("a"), metrics("c"));
  EXPECT_EQ(weights("a"), weights("c"));
}

TEST_F(RunTest, A29BundlesAreByteIdentical) {
  std::string arguments = "debug --tokens 64 --max-docs 4 --set train.rows=2 "
                          "--set optim.lr=1e-2 -q -o ";
  quiet("cd / && taskset -c 0 " + tool("qwen35c") + " " + arguments +
        (folder / "again.q35"));
  EXPECT_EQ(readFile(bundle), readFile(folder / "again.q35"));
}

TEST_F(RunTest, KilledTwentyTimesAndResumedGivesTheSameWeights) {
  // Every attempt is killed after at least one more step, at a random moment of
  // the next ones, so that the run ends.
  quiet(train("straight", 60, "--set train.save_every=2"));
  std::mt19937 random(5);
  int kills = 0;
  for (int attempt = 0; attempt < 200 && kills < 20; ++attempt) {
    double seconds = 0.03 + 0.0001 * (random() % 900);
    auto result = run("timeout -s KILL " + std::to_string(seconds) + " " +
                      train("killed", 60,
                            "--set train.save_every=2 --resume auto"));
    if (result.status == 137 || result.status == 124)
      ++kills;
    else if (result.ok() && kills < 20) {
      // Finished early: begin again, the kills count over all runs.
      EXPECT_EQ(weights("straight"), weights("killed"));
      std::filesystem::remove_all(folder / "killed");
    } else {
      FAIL() << result.status << "\n" << result.output;
    }
  }
  EXPECT_EQ(kills, 20);
  quiet(train("killed", 60, "--set train.save_every=2 --resume auto"));
  EXPECT_EQ(weights("straight"), weights("killed"));
}

TEST_F(RunTest, SigtermSavesAndExits) {
  // In the foreground: otherwise timeout signals its group too, and a second
  // SIGTERM means at once.
  auto ended = run("timeout --foreground --preserve-status -s TERM 1 " +
                   train("term", 1000000));
  EXPECT_EQ(ended.status, 0) << ended.output;
  EXPECT_TRUE(std::filesystem::exists(folder / "term/checkpoints/latest"))
      << ended.output;
}

TEST_F(RunTest, ResumeWithNothingThereStarts) {
  quiet(train("fresh", 3, "--resume auto"));
  quiet(train("plain", 3));
  EXPECT_EQ(weights("fresh"), weights("plain"));
}

TEST_F(RunTest, TwoRunsInOneFolderAreRefused) {
  auto result =
      run("(" + train("shared", 1000000) + " > " + (folder / "log") +
          " 2>&1 & echo $! > " + (folder / "pid") + "; sleep 0.7; " +
          train("shared", 5) + "; code=$?; kill $(cat " + (folder / "pid") +
          "); wait; exit $code)");
  EXPECT_EQ(result.status, 1) << result.output;
  EXPECT_NE(result.output.find("is in use by process"), std::string::npos)
      << result.output;
}

TEST_F(RunTest, A33ThePathOfEveryLayerKindIsPrintedAndRecorded) {
  std::string output = quiet(train("paths", 1));
  EXPECT_NE(output.find("3 x linear_attention: "), std::string::npos);
  EXPECT_NE(output.find("1 x full_attention: "), std::string::npos);
  EXPECT_NE(output.find("gdn_scan"), std::string::npos);
  std::string record = readFile(folder / "paths/run.json");
  EXPECT_NE(record.find("gdn_scan"), std::string::npos);
  EXPECT_NE(record.find("attention_bwd"), std::string::npos);
}

TEST_F(RunTest, ReloadedExportHasTheSameLoss) {
  std::string output = quiet(train("eval", 5, "--eval-loss"));
  auto lossAfter = [](const std::string &text, const std::string &where) {
    size_t at = text.find(where);
    EXPECT_NE(at, std::string::npos) << where << " in\n" << text;
    size_t line = text.rfind("eval loss ", at);
    return text.substr(line + 10, text.find(' ', line + 10) - line - 10);
  };
  std::string trained = lossAfter(output, "(step 5)");
  EXPECT_EQ(trained, lossAfter(output, "(reloaded"));
  std::string again =
      quiet(tool("qwen35-run") + " " + bundle + " --weights " +
            (folder / "eval-hf") + " --data " + (folder / "text") +
            " --steps 0 --eval-loss --out " + (folder / "again"));
  EXPECT_EQ(trained, lossAfter(again, "(start)"));
}

TEST_F(RunTest, NoSaveWritesRecordsAndNoCheckpoint) {
  quiet(train("unsaved", 3, "--no-save --set train.save_every=1"));
  EXPECT_EQ(metrics("unsaved").size(), 3u);
  EXPECT_TRUE(!std::filesystem::exists(folder / "unsaved/checkpoints") ||
              std::filesystem::is_empty(folder / "unsaved/checkpoints"));
}

TEST_F(RunTest, RuntimeNeedsNothingButLibc) {
  for (const char *name : {"qwen35-run", "qwen35-verify", "qwen35-data"}) {
    std::istringstream lines(quiet("readelf -d " + tool(name)));
    int needed = 0;
    for (std::string line; std::getline(lines, line);) {
      if (line.find("(NEEDED)") == std::string::npos)
        continue;
      ++needed;
      bool allowed = false;
      for (const char *library : {"[libc.so.6]", "[libm.so.6]", "[ld-linux"})
        allowed |= line.find(library) != std::string::npos;
      EXPECT_TRUE(allowed) << name << ": " << line;
    }
    EXPECT_GE(needed, 1) << name;
  }
}

} // namespace
} // namespace qwen35
