// Cases recorded for the driver without a GPU, run by qwen35_gpu_kernels.

#include "codegen/cuda/Target.h"
#include "test/support/Command.h"
#include "test/unit/cuda/CudaKernelTest.h"
#include "test/unit/cuda/KernelRecorder.h"

namespace qwen35::codegen::cuda {
namespace {

using test::CommandResult;
using test::TempFolder;

class KernelRecorderTest : public CudaKernelTest {
protected:
  /// Records y = 2 x, once small and once folded.
  void record(const std::string &path) {
    KernelRecorder recorder(*gpuTarget("emulated"));
    for (const std::vector<int64_t> &shape :
         std::vector<std::vector<int64_t>>{{3, 5}, {50, 60}}) {
      Array x = random(shape, 1), y = f32(shape);
      for (int64_t i = 0; i < y.size(); ++i)
        y.set(i, 2 * x[i] + (i == wrong ? 0.01 : 0));
      KernelSpec scale = spec("scale", attrs, {x}, {y});
      test::KernelCase &added =
          recorder.add("Scale", scale, {{"", *plan(scale, "emulated")}});
      describeTensor(x, 0, *added.add_inputs());
      describeExpected(y, 0, *added.add_outputs());
    }
    llvm::Error error = recorder.write(path);
    EXPECT_FALSE(bool(error)) << llvm::toString(std::move(error));
  }

  CommandResult replay(const std::string &more = "") {
    TempFolder folder;
    record(folder / "some.cases");
    return test::run(std::string("QWEN35_LIBCUDA=") +
                     QWEN35_FAKE_CUDA_LIBRARY + " " + QWEN35_GPU_KERNELS +
                     " " + (folder / "some.cases") + " " + more);
  }

  std::string attrs = "{factor = 2.0}";
  int64_t wrong = -1; ///< This element is not what is expected.
};

TEST_F(KernelRecorderTest, WhatTheEmulatorGivesPasses) {
  for (const char *more : {"", "--one-process", "--filter scale"}) {
    CommandResult result = replay(more);
    EXPECT_TRUE(result.ok()) << result.output;
    EXPECT_NE(result.output.find("2 variants of kernels, 2 passed, 0 failed"),
              std::string::npos)
        << result.output;
  }
}

TEST_F(KernelRecorderTest, TakesTimes) {
  CommandResult result = replay("--bench");
  EXPECT_TRUE(result.ok()) << result.output;
  EXPECT_NE(result.output.find(" ms "), std::string::npos) << result.output;
}

TEST_F(KernelRecorderTest, OneWrongElementIsFound) {
  wrong = 7;
  CommandResult result = replay();
  EXPECT_FALSE(result.ok());
  EXPECT_NE(result.output.find("; element 7 is"), std::string::npos)
      << result.output;
  EXPECT_NE(result.output.find("; sum 0 is"), std::string::npos)
      << result.output;
  EXPECT_NE(result.output.find("0 passed, 2 failed"), std::string::npos)
      << result.output;
}

} // namespace
} // namespace qwen35::codegen::cuda
