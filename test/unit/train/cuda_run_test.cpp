// Runs on the GPU plan of the tiny bundle, on the driver of
// test/support/fake_cuda: the same bits as on the CPU, whoever wrote the
// checkpoint.
#include "test/unit/train/train_test_util.h"

#include <cstdlib>

namespace qwen35::test {
namespace {

class CudaRunTest : public ::testing::Test {
protected:
  void SetUp() override {
    ::setenv("QWEN35_LIBCUDA", QWEN35_FAKE_CUDA_LIBRARY, 1);
    ::setenv("QWEN35_LIBCUBLASLT", QWEN35_FAKE_CUDA_LIBRARY, 1);
    ASSERT_TRUE(writeFile(tiny.folder.in("tiny.q35"),
                          tinyGpuBundle(TinyPlans::CpuAndGpu))
                    .ok());
  }

  RunOptions options(const std::string &target, int64_t steps,
                     const std::string &out) {
    RunOptions result = tiny.options(steps, out);
    result.target = target;
    return result;
  }

  TinyRun tiny;
};

TEST_F(CudaRunTest, TrainsToTheSameBitsAsTheCpu) {
  ASSERT_OK(tiny.run(options("cpu", 6, "cpu")));
  expectContains(tiny.output, "target  cpu x86-64, 1 thread");
  ASSERT_OK(tiny.run(options("cuda", 6, "cuda")));
  expectContains(tiny.output, "target  cuda emulated on emulated\n");
  EXPECT_EQ(tiny.state("cpu", 6), tiny.state("cuda", 6));
  RunOptions eager = options("cuda", 6, "eager");
  eager.eager = true;
  ASSERT_OK(tiny.run(eager));
  expectContains(tiny.output, "target  cuda emulated on emulated, eager\n");
  EXPECT_EQ(tiny.state("cpu", 6), tiny.state("eager", 6));
}

TEST_F(CudaRunTest, ResumesWhatTheOtherTargetSaved) {
  ASSERT_OK(tiny.run(options("cpu", 6, "whole")));
  RunOptions run = options("cpu", 2, "mixed");
  ASSERT_OK(tiny.run(run));
  for (auto [target, steps] : {std::pair("cuda", 4), std::pair("cpu", 6)}) {
    run = options(target, steps, "mixed");
    run.initSeed.reset();
    run.resume = true;
    ASSERT_OK(tiny.run(run));
  }
  EXPECT_EQ(tiny.state("whole", 6), tiny.state("mixed", 6));
}

TEST_F(CudaRunTest, ExportsWhatTheCpuExports) {
  for (const char *target : {"cpu", "cuda"}) {
    RunOptions run = options(target, 3, absl::StrCat("run-", target));
    run.exportHf = tiny.folder.in(absl::StrCat("hf-", target));
    run.evalLoss = true;
    ASSERT_OK(tiny.run(run));
    expectContains(tiny.output, "(reloaded from ");
  }
  EXPECT_EQ(readAll(tiny.folder.in("hf-cpu/model.safetensors")),
            readAll(tiny.folder.in("hf-cuda/model.safetensors")));
}

} // namespace
} // namespace qwen35::test
