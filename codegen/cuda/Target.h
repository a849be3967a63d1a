#ifndef QWEN35_CODEGEN_CUDA_TARGET_H
#define QWEN35_CODEGEN_CUDA_TARGET_H

#include "codegen/cuda/Kernel.h"

namespace qwen35::codegen::cuda {

/// The GPU target of that name, or nothing: sm_90a, sm_80, sm_100a, sm_120.
std::optional<GpuTarget> gpuTarget(llvm::StringRef name);
/// "sm_80, sm_90a, sm_100a or sm_120", for messages.
std::string gpuTargetNames();

/// Registers all of them as targets of the lowering to kernels.
void registerGpuKernelTargets();

} // namespace qwen35::codegen::cuda

#endif // QWEN35_CODEGEN_CUDA_TARGET_H
