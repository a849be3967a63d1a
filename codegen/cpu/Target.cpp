#include "codegen/cpu/Target.h"

#include "codegen/cpu/Kernel.h"
#include "dialect/QKern/IR/KernelTarget.h"

using namespace mlir;

namespace qwen35::codegen::cpu {

namespace {

struct CpuKernelTarget : qkern::KernelTarget {
  StringRef name() const override { return "cpu"; }

  FailureOr<qkern::LaunchShape>
  launchShape(const qkern::KernelSignature &signature,
              EmitError emitError) const override {
    const KernelFamily *family = lookupKernel(signature.kernel);
    if (!family)
      return emitError() << "the cpu target has no kernel \""
                         << signature.kernel << "\"";
    KernelSpec spec{signature.kernel.str(), signature.config,
                    signature.inputs, signature.outputs};
    FailureOr<KernelPlan> plan = family->plan(spec, emitError);
    if (failed(plan))
      return failure();
    return qkern::LaunchShape{plan->grids, plan->workspaceBytes,
                              plan->mayAlias};
  }
};

} // namespace

void registerCpuKernelTarget() {
  registerAllKernels();
  qkern::registerKernelTarget(std::make_unique<CpuKernelTarget>());
}

} // namespace qwen35::codegen::cpu
