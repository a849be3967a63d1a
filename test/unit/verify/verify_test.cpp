// qwen35-verify as a user calls it.
#include "codegen/bundle/bundle_writer.h"
#include "runtime/bundle/plan_report.h"
#include "test/unit/bundle/tiny_bundle.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sys/wait.h>

namespace qwen35 {
namespace {

struct Outcome {
  int code = -1;
  std::string text; // both streams
};

Outcome run(const std::string &arguments) {
  std::string command = std::string(QWEN35_BINARY_DIR) + "/bin/qwen35-verify " +
                        arguments + " 2>&1";
  Outcome outcome;
  FILE *pipe = popen(command.c_str(), "r");
  char buffer[4096];
  while (size_t count = fread(buffer, 1, sizeof(buffer), pipe))
    outcome.text.append(buffer, count);
  int status = pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

class VerifyTest : public ::testing::Test {
protected:
  void SetUp() override {
    path = ::testing::TempDir() + "qwen35-verify-" +
           ::testing::UnitTest::GetInstance()->current_test_info()->name() +
           ".q35";
  }
  void TearDown() override { std::filesystem::remove(path); }

  void write(const std::string &bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
  }

  std::string path;
};

TEST_F(VerifyTest, SummarisesABundle) {
  write(tinyBundle());
  Outcome outcome = run(path);
  EXPECT_EQ(outcome.code, 0);
  for (const char *part :
       {": ok\n", "  target    cpu x86-64, 6 kernels in ",
        "  model     'tiny', 0 layers, 256 parameters, vocabulary 256 (bytes), "
        "4 flops per token\n",
        "  params    1 tensors, 0 of them with weight decay\n",
        "  row       48 tokens, at most 4 documents with padding\n",
        "  arenas    state 4.1 kB, io 1.3 kB, act 192 B; together 5.6 kB\n",
        "at entry 0 of accumulate ('tiny/forward', kernel tiny_forward), where "
        "act holds 192 B of its 192 B\n",
        "  finish    6 launches (56 tasks), 0 memsets, act 192 B at most\n",
        "       1.0 kB  'w', f32[256], weights (state)\n",
        "        192 B  'error', f32[48], activations (act, entries 0 to 2)\n"})
    EXPECT_NE(outcome.text.find(part), std::string::npos)
        << part << "is not in\n"
        << outcome.text;
}

TEST_F(VerifyTest, PrintsJson) {
  write(tinyBundle());
  Outcome outcome = run(path + " --json");
  EXPECT_EQ(outcome.code, 0);
  auto json = nlohmann::json::parse(outcome.text, nullptr, false);
  ASSERT_FALSE(json.is_discarded()) << outcome.text;
  EXPECT_EQ(json["ok"], true);
  EXPECT_EQ(json["model"]["parameters"], 256);
  EXPECT_EQ(json["memory"]["arenas"]["state"], 4096);
  EXPECT_EQ(json["memory"]["peak_act_bytes"], 192);
  EXPECT_EQ(json["programs"][2]["name"], "finish");
  EXPECT_EQ(json["programs"][2]["launches"], 6);
  EXPECT_EQ(json["largest_buffers"].size(), 10u);
}

TEST_F(VerifyTest, SaysWhichCheckFailed) {
  auto failure = [&](const std::string &bytes) {
    write(bytes);
    Outcome text = run(path);
    EXPECT_EQ(text.code, 1);
    EXPECT_EQ(text.text.rfind("qwen35-verify: " + path + ": ", 0), 0u)
        << text.text;
    Outcome json = run(path + " --json");
    EXPECT_EQ(json.code, 1);
    auto parsed = nlohmann::json::parse(json.text, nullptr, false);
    EXPECT_EQ(parsed["ok"], false);
    return parsed["check"].get<std::string>();
  };
  EXPECT_EQ(failure(tinyBundle().substr(0, 1000)), "integrity");
  EXPECT_EQ(failure(tinyBundle(
                [](bundle::Bundle &m) { m.mutable_header()->set_major(2); })),
            "version");
  EXPECT_EQ(failure(tinyBundle([](bundle::Bundle &m) {
              launch(m, "finish", "tiny_loss")->set_grid(0);
            })),
            "bounds");
  EXPECT_EQ(failure(tinyBundle([](bundle::Bundle &m) {
              program(m, "finish")->mutable_entries()->SwapElements(2, 3);
            })),
            "plan");
  std::vector<uint8_t> import = tinyKernels("tiny_import.so");
  EXPECT_EQ(failure(serializeBundle(tinyMessage(), {{"k", import}}).value()),
            "code");
}

TEST_F(VerifyTest, ReportsFilesAndUsage) {
  EXPECT_EQ(run("/nowhere.q35").code, 1);
  EXPECT_EQ(run("/nowhere.q35").text,
            "qwen35-verify: /nowhere.q35: cannot open: No such file or "
            "directory\n");
  EXPECT_EQ(run("").code, 1);
  EXPECT_EQ(run("--help").code, 0);
  EXPECT_EQ(run("a b").code, 1);
}

// Control characters in names do not reach the terminal.
TEST_F(VerifyTest, EscapesNames) {
  write(tinyBundle([](bundle::Bundle &m) {
    m.mutable_buffers(0)->set_name("w\033[31m");
    m.mutable_buffers(0)->set_category("weights\033");
    m.mutable_model()->set_name("red\033[0m");
  }));
  Outcome outcome = run(path);
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.text.find('\033'), std::string::npos);
  EXPECT_NE(outcome.text.find("'w\\x1b[31m'"), std::string::npos);
}

// The peak is where lives overlap, not where most was ever used.
TEST(PlanReportTest, FindsThePeak) {
  bundle::Bundle message = tinyMessage();
  PlanReport report = reportPlan(message, 3);
  ASSERT_EQ(report.programs.size(), 4u);
  EXPECT_EQ(report.programs[0].memsets, 2u);
  EXPECT_EQ(report.programs[0].peakEntry, -1); // begin uses nothing of act
  EXPECT_EQ(report.programs[2].tasks, 56u);
  EXPECT_EQ(report.peakProgram, 1);
  EXPECT_EQ(report.largest.size(), 3u);

  // The partial sums live from entry 3 to 4; let `error` live until then too.
  launch(message, "finish", "tiny_norm")
      ->mutable_args(1)
      ->set_buffer(bufferIndex(message, "error"));
  report = reportPlan(message, 3);
  EXPECT_EQ(report.peakProgram, 2);
  EXPECT_EQ(report.programs[2].liveBytes, 192u + 128u);
  EXPECT_EQ(report.programs[2].peakEntry, 3);
  uint64_t workspace = 0;
  for (const PlanReport::Sum &sum : report.peak)
    workspace += sum.name == "workspace" ? sum.bytes : 0;
  EXPECT_EQ(workspace, 128u);
}

} // namespace
} // namespace qwen35
