#ifndef QWEN35_TEST_UNIT_CUDA_KERNELRECORDER_H
#define QWEN35_TEST_UNIT_CUDA_KERNELRECORDER_H

#include "codegen/cuda/Compile.h"
#include "test/gpu/KernelCases.h"
#include "test/unit/support/Array.h"

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace qwen35::codegen::cuda {

/// A kernel planned for one target; `name` as in KernelVariant.
struct PlannedVariant {
  std::string name;
  KernelPlan plan;
};

/// The targets that recorded cases are planned for, of which the first is
/// `target` itself, under the name "":
/// - few        with four multiprocessors, so that blocks do several tiles;
/// - own        without a library for products, and with kernels that the target
///              does not choose by itself;
/// - portable   without Hopper's instructions, and as "few" and "own".
std::vector<std::pair<std::string, GpuTarget>>
recordedTargets(const GpuTarget &target);

/// Collects cases, compiles their kernels and writes one file of them.
class KernelRecorder {
public:
  explicit KernelRecorder(GpuTarget target) : target(std::move(target)) {}

  /// That of this process, if QWEN35_RECORD_KERNELS names the folder that its
  /// file, PROGRAM.cases, goes to. QWEN35_RECORD_TARGET: instead of sm_90a.
  static KernelRecorder *ofProcess();

  const GpuTarget &gpuTarget() const { return target; }

  /// Adds a case without tensors. Variants that are the same kernels as an
  /// earlier one are left out.
  test::KernelCase &add(const std::string &name, const KernelSpec &spec,
                        llvm::ArrayRef<PlannedVariant> variants);
  /// Compiles and writes all.
  llvm::Error write(const std::string &path);

private:
  llvm::Error compile();

  GpuTarget target;
  test::KernelCases cases;
  std::vector<CompiledStage> stages; ///< Each source once.
  std::map<std::string, unsigned> stageOf; ///< By source; index into stages.
};

/// Layout and elements of an array as a tensor of a case. `start`: bytes.
void describeTensor(const Array &array, int64_t start, test::KernelTensor &out);
/// The same for what an output is expected to be.
void describeExpected(const Array &array, int64_t start,
                      test::KernelTensor &out);

} // namespace qwen35::codegen::cuda

#endif // QWEN35_TEST_UNIT_CUDA_KERNELRECORDER_H
