#ifndef QWEN35_TEST_UNIT_CUDA_CUDAKERNELTEST_H
#define QWEN35_TEST_UNIT_CUDA_CUDAKERNELTEST_H

// Runs a kernel of the CUDA target on the host and hands the results to a check:
//
//   TEST_F(CudaKernelTest, DoublesItsInput) {
//     for (Kind t : kFloatKinds)
//       run("scale", "{factor = 2.0}", {random(t, {3, 5}, 1)},
//           {zeros(t, {3, 5})}, [&](const Arrays &in, const Arrays &out) {
//             expectNear(out[0], ..., tolerance(t, 1e-6), "y");
//           });
//   }
//
// Every run is done three times: blocks and threads in order; both reversed;
// threads in a random order, with outputs placed on the inputs they may alias.
// All must agree bit for bit. Outputs, workspace, and everything around the
// buffers hold NaN at first, and small numbers in the second run, so whatever
// reads a byte that nobody wrote is found by the check or by the comparison.
// Views start off the 256-byte alignment of buffers: by the elements (up to 8)
// that divide their strides and their columns.
//
// With QWEN35_RECORD_KERNELS=FOLDER runs and what they gave are also written to
// a file there, with their kernels compiled for a GPU (KernelRecorder.h), and
// one run on the host is enough.
//
// The first run of a kernel with given element types also compiles it with
// NVRTC for sm_80 and sm_90a, as planned for these targets.

#include "codegen/cuda/Kernel.h"
#include "test/unit/support/Array.h"
#include "test/unit/support/SequenceCase.h"

#include "mlir/IR/MLIRContext.h"
#include "llvm/ADT/STLFunctionalExtras.h"

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>

namespace qwen35::codegen::cuda {

/// For results of that type: `single`, or bf16's rounding on top of it.
inline double tolerance(Kind kind, double single) {
  return kind == Kind::BF16 ? single + 1.0 / 256 : single;
}

class CudaKernelTest : public ::testing::Test {
protected:
  CudaKernelTest();

  using Check = llvm::function_ref<void(const Arrays &in, const Arrays &out)>;
  /// `attrs` as MLIR text: "{eps = 1.0e-6, inverse = true}".
  void run(const std::string &op, const std::string &attrs, Arrays inputs,
           Arrays outputs, Check check);
  /// Expects `plan` to refuse with exactly this message.
  void expectRefused(const std::string &op, const std::string &attrs,
                     const Arrays &inputs, const Arrays &outputs,
                     const std::string &message);

  KernelSpec spec(const std::string &op, const std::string &attrs,
                  const Arrays &inputs, const Arrays &outputs);
  /// The plan for a target ("sm_90a"); fails the test and returns none on an
  /// error.
  std::optional<KernelPlan> plan(const KernelSpec &spec,
                                 const std::string &target);

  mlir::MLIRContext context;
  /// Whose plan runs; "emulated_sm_90a" for kernels that only Hopper has.
  std::string target = "emulated";
  /// Elements of an output, by its number and theirs, that the op need not
  /// write: runs may differ there. Empty: all are written.
  std::function<bool(size_t, int64_t)> unspecified;
  /// How far from the emulator a GPU may be, by output, for tests of kernels
  /// that round on the way or cancel: see KernelTensor, which has the defaults.
  struct DeviceBound {
    double relative, scale;
  };
  std::vector<DeviceBound> deviceBounds;

private:
  std::optional<KernelPlan> plan(const KernelSpec &spec,
                                 const GpuTarget &target);
  void record(const KernelSpec &spec, const Arrays &inputs,
              const Arrays &expected);
  void checkWithNvrtc(const KernelSpec &spec, const KernelPlan &emulated);
  int runs = 0; ///< Of this test.
};

} // namespace qwen35::codegen::cuda

#endif // QWEN35_TEST_UNIT_CUDA_CUDAKERNELTEST_H
