// Bad input to a run: one clear error each, before the first step.
#include "runtime/checkpoint/run_lock.h"
#include "test/unit/train/train_test_util.h"

namespace qwen35 {
namespace {

using namespace test;

TEST(RunErrorsTest, OneClearErrorEach) {
  TinyRun tiny;
  std::string hf = tiny.folder.in("hf"), empty = tiny.folder.in("empty");
  ASSERT_OK(makeFolders(hf));
  ASSERT_OK(writeTensors(hf + "/model.safetensors",
                         {makeTensor("model.w", ElementType::F32, {255})}));
  ASSERT_OK(makeFolders(empty));
  ASSERT_OK(writeFile(empty + "/precious", "x"));
  ASSERT_OK(writeFile(tiny.folder.in("short.q35"),
                      tinyBundle().substr(0, 500)));
  ASSERT_OK(writeFile(tiny.folder.in("blank"), " \n\n"));
  ASSERT_OK(writeFile(tiny.folder.in("odd.toml"), "[optim]\nlearning = 1\n"));
  struct Bad {
    std::function<void(RunOptions &)> change;
    std::vector<std::string> message;
  } table[] = {
      {[](auto &o) { o.bundle += "x"; }, {"tiny.q35x", "No such file"}},
      {[&](auto &o) { o.bundle = tiny.folder.in("short.q35"); },
       {"short.q35"}},
      {[](auto &o) { o.initSeed.reset(); },
       {"where do the weights come from"}},
      {[&](auto &o) { o.weights = hf; }, {"--weights or --init, not both"}},
      {[&](auto &o) {
         o.initSeed.reset();
         o.weights = hf;
       },
       {"tensor model.w has shape [255], expected [256]"}},
      {[&](auto &o) {
         o.initSeed.reset();
         o.weights = empty;
       },
       {"has neither model.safetensors.index.json nor"}},
      {[](auto &o) { o.data.clear(); }, {"--data FILE is missing"}},
      {[](auto &o) { o.data[0] += "x"; }, {"textx"}},
      {[&](auto &o) { o.data = {tiny.folder.in("blank")}; }, {"blank"}},
      {[](auto &o) { o.out.clear(); }, {"--out RUN_DIR is missing"}},
      {[&](auto &o) { o.out = tiny.folder.in("text"); },
       {"creating folder", "text"}},
      {[](auto &o) { o.steps = -1; }, {"--steps -1, expected at least 0"}},
      {[](auto &o) { o.threads = -1; }, {"-1 threads"}},
      {[](auto &o) { o.maxSkipped = 0; }, {"--max-skipped 0"}},
      {[](auto &o) { o.sets.push_back("optim.lrr=1"); },
       {"optim.lrr", "optim.lr"}},
      {[&](auto &o) { o.recipeFiles = {tiny.folder.in("odd.toml")}; },
       {"odd.toml:2", "optim.learning"}},
      {[](auto &o) { o.sets.push_back("optim.weight_decay=0.3"); },
       {"optim.weight_decay"}},
      {[](auto &o) { o.sets.push_back("data.tokens=64"); }, {"data.tokens"}},
      {[&](auto &o) { o.exportHf = empty; }, {"is no earlier export"}},
      {[](auto &o) { o.batch = "b"; }, {"--batch and --dump go together"}},
      {[](auto &o) { o.batch = o.dump = "b"; }, {"runs the given batch alone"}},
      {[](auto &o) {
         o.initSeed.reset();
         o.resume = true;
       },
       {"has no valid checkpoint to resume from"}},
  };
  for (const Bad &bad : table) {
    SCOPED_TRACE(bad.message.back());
    RunOptions options = tiny.options(5);
    bad.change(options);
    expectError(tiny.run(options), bad.message);
    EXPECT_EQ(countLines(tiny.output, "step 1/"), 0);
    ASSERT_OK(removeAll(tiny.folder.in("run")));
  }
  EXPECT_EQ(readAll(empty + "/precious"), "x");
}

TEST(RunErrorsTest, TwoRunsInOneFolder) {
  TinyRun tiny;
  RunOptions options = tiny.options(5);
  auto lock = RunLock::acquire(options.out);
  ASSERT_OK(lock);
  expectError(tiny.run(options), {"run folder ", "is in use by process"});
}

TEST(RunErrorsTest, AnOldRunIsNotOverwritten) {
  TinyRun tiny;
  ASSERT_OK(tiny.run(tiny.options(5)));
  expectError(tiny.run(tiny.options(5)),
              {"has checkpoints up to step 5; go on with --resume auto"});
  RunOptions other = tiny.options(9);
  other.resume = true;
  other.initSeed = 8;
  expectError(tiny.run(other), {"--init 8, but the run in ", "seed 7"});
}

// Other data, seed or rows than the checkpoint's place in the data refers to.
TEST(RunErrorsTest, ResumingOnOtherDataIsRefused) {
  TinyRun tiny;
  ASSERT_OK(tiny.run(tiny.options(5)));
  ASSERT_OK(writeFile(tiny.folder.in("text"), "Something else.\n\nAgain.\n"));
  RunOptions options = tiny.options(9);
  options.resume = true;
  EXPECT_FALSE(tiny.run(options).ok());
  EXPECT_EQ(countLines(tiny.output, "step 6/"), 0);
}

TEST(RunErrorsTest, ADamagedNewestCheckpointIsPassedOverAloud) {
  TinyRun tiny;
  RunOptions options = tiny.options(6);
  options.sets.push_back("train.save_every=3");
  ASSERT_OK(tiny.run(options));
  std::string want = tiny.state("run", 6);
  ASSERT_OK(writeFile(options.out + "/checkpoints/step-00000006/"
                                    "m-00001-of-00001.safetensors",
                      "x"));
  options.resume = true;
  ASSERT_OK(tiny.run(options));
  expectContains(tiny.output, "passed over a damaged checkpoint: ");
  expectContains(tiny.output, "resume  step 3 of 6");
  EXPECT_EQ(tiny.state("run", 6), want);
}

} // namespace
} // namespace qwen35
