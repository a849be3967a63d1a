// The flags of qwen35-run, through the program itself.
#include <cstdio>
#include <sys/wait.h>

#include "test/unit/train/train_test_util.h"

namespace qwen35 {
namespace {

using namespace test;

struct Result {
  int status = -1;
  std::string output; // both streams
};

Result runTool(const std::string &arguments) {
  std::string command =
      QWEN35_BINARY_DIR "/bin/qwen35-run " + arguments + " 2>&1";
  Result result;
  std::FILE *pipe = ::popen(command.c_str(), "r");
  char buffer[4096];
  while (size_t count = std::fread(buffer, 1, sizeof buffer, pipe))
    result.output.append(buffer, count);
  int status = ::pclose(pipe);
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

TEST(ToolTest, TrainsResumesAndExports) {
  TinyRun tiny;
  std::string common = absl::StrCat(
      tiny.folder.in("tiny.q35"), " --data ", tiny.folder.in("text"), " --out ",
      tiny.folder.in("run"),
      " --set optim.lr=10 --set schedule.kind=constant --set train.rows=2"
      " --threads 2 --eval-loss");
  Result first = runTool(common + " --init 3 --steps 4");
  EXPECT_EQ(first.status, 0) << first.output;
  expectContains(first.output, "step 4/4 | loss ");
  Result second = runTool(absl::StrCat(common, " --resume auto --steps 6",
                                       " --export-hf ", tiny.folder.in("hf")));
  EXPECT_EQ(second.status, 0) << second.output;
  expectContains(second.output, "resume  step 4 of 6");
  expectContains(second.output, "(reloaded from " + tiny.folder.in("hf"));
  EXPECT_TRUE(exists(tiny.folder.in("hf/model.safetensors")));
}

TEST(ToolTest, SaysWhatIsWrongAndFails) {
  TinyRun tiny;
  std::string bundle = tiny.folder.in("tiny.q35");
  Result missing = runTool(bundle + " --init 1");
  EXPECT_EQ(missing.status, 1);
  EXPECT_EQ(missing.output, "qwen35-run: error: --out RUN_DIR is missing: "
                            "where checkpoints and metrics go\n");
  EXPECT_EQ(runTool("").status, 2);
  EXPECT_EQ(runTool(bundle + " --resume 12").status, 2);
  EXPECT_EQ(runTool(bundle + " --init -1").status, 2);
  EXPECT_EQ(runTool(bundle + " --stepz 3").status, 2);
}

TEST(ToolTest, HelpNamesFlagsAndRecipeKeys) {
  Result help = runTool("--help");
  EXPECT_EQ(help.status, 0);
  for (const char *part :
       {"--weights DIR", "--init SEED", "--resume auto", "--data FILE...",
        "--steps N", "--out RUN_DIR", "--export-hf DIR", "--recipe F.toml",
        "--set section.key=value", "--threads N", "--dry-run",
        "--batch FILE.safetensors", "--dump FILE.safetensors", "optim.lr"})
    expectContains(help.output, part);
}

TEST(ToolTest, ADryRunNeedsNoWeightsAndNoFolder) {
  TinyRun tiny;
  Result dry = runTool(tiny.folder.in("tiny.q35") + " --dry-run");
  EXPECT_EQ(dry.status, 0) << dry.output;
  expectContains(dry.output, "planned peak ");
}

} // namespace
} // namespace qwen35
