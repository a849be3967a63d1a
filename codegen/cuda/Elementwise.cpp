#include "codegen/cuda/Families.h"
#include "codegen/cuda/Kernel.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace qwen35::codegen::cuda {

namespace {

/// y = x, rounded to the type of y.
struct Cast : KernelFamily {
  StringRef op() const override { return "cast"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec, const GpuTarget &target,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 1, 1, emitError)) ||
        failed(requireType(spec, spec.inputs[0], "x", spec.outputs[0].getShape(),
                           floatTypes(spec), emitError)) ||
        failed(requireType(spec, spec.outputs[0], "y", spec.inputs[0].getShape(),
                           floatTypes(spec), emitError)))
      return failure();
    constexpr int64_t kPerThread = 8, kThreads = 256;
    int64_t elements = elementCount(spec.outputs[0]);
    DeviceStage stage;
    stage.header = "q35/elementwise.cuh";
    stage.function = "cast_rows";
    stage.blocks = llvm::divideCeil(elements, kPerThread * kThreads);
    stage.threads = kThreads;
    stage.constant("elements", elements).constant("perThread", kPerThread);
    KernelPlan plan;
    plan.stages = {stage};
    return plan;
  }
};

} // namespace

void registerElementwiseKernels() { registerKernel(std::make_unique<Cast>()); }

} // namespace qwen35::codegen::cuda
