#include "codegen/cuda/Target.h"

#include "dialect/QKern/IR/KernelTarget.h"

using namespace mlir;

namespace qwen35::codegen::cuda {

namespace {

/// "emulated" is the GPU of tests: portable kernels, all of them our own,
/// compiled for the host (codegen/device/q35/emulate.h); "emulated_sm_90a" takes
/// those for Hopper.
const GpuTarget kTargets[] = {
    {"sm_80", 80, false, true, 108},  {"sm_90a", 90, true, true, 132},
    {"sm_100a", 100, false, true, 148}, {"sm_120", 120, false, true, 170},
    {"emulated", 90, false, false, 4},
    {"emulated_sm_90a", 90, true, false, 4},
};

struct GpuKernelTarget : qkern::KernelTarget {
  explicit GpuKernelTarget(const GpuTarget &target) : target(target) {}

  StringRef name() const override { return target.name; }

  FailureOr<qkern::LaunchShape>
  launchShape(const qkern::KernelSignature &signature,
              EmitError emitError) const override {
    const KernelFamily *family = lookupKernel(signature.kernel);
    if (!family)
      return emitError() << "the " << target.name << " target has no kernel \""
                         << signature.kernel << "\"";
    KernelSpec spec{signature.kernel.str(), signature.config, signature.inputs,
                    signature.outputs};
    FailureOr<KernelPlan> plan = family->plan(spec, target, emitError);
    if (failed(plan))
      return failure();
    qkern::LaunchShape shape;
    for (const Stage &stage : plan->stages) {
      const auto *device = std::get_if<DeviceStage>(&stage);
      shape.grids.push_back(device ? device->blocks : 1);
    }
    shape.workspaceBytes = plan->workspaceBytes;
    shape.mayAlias = plan->mayAlias;
    return shape;
  }

  int64_t maxListArguments() const override { return target.maxArguments; }

  bool writesViews(StringRef kernel, unsigned result) const override {
    const KernelFamily *family = lookupKernel(kernel);
    return family && family->writesViews(result);
  }

  llvm::ArrayRef<unsigned> squares(StringRef kernel) const override {
    const KernelFamily *family = lookupKernel(kernel);
    return family ? family->squares() : llvm::ArrayRef<unsigned>();
  }

  GpuTarget target;
};

} // namespace

std::optional<GpuTarget> gpuTarget(StringRef name) {
  for (const GpuTarget &target : kTargets)
    if (name == target.name)
      return target;
  return std::nullopt;
}

std::string gpuTargetNames() { return "sm_80, sm_90a, sm_100a or sm_120"; }

void registerGpuKernelTargets() {
  registerAllKernels();
  for (const GpuTarget &target : kTargets)
    qkern::registerKernelTarget(std::make_unique<GpuKernelTarget>(target));
}

} // namespace qwen35::codegen::cuda
