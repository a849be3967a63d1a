#ifndef QWEN35_CODEGEN_CPU_TARGET_H
#define QWEN35_CODEGEN_CPU_TARGET_H

namespace qwen35::codegen::cpu {

/// Makes `cpu` a target of the lowering to kernels.
void registerCpuKernelTarget();

} // namespace qwen35::codegen::cpu

#endif // QWEN35_CODEGEN_CPU_TARGET_H
