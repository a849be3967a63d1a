#ifndef QWEN35_CODEGEN_CUDA_WRITESOURCES_H
#define QWEN35_CODEGEN_CUDA_WRITESOURCES_H

#include "codegen/cuda/Compile.h"

#include "mlir/IR/BuiltinOps.h"

namespace qwen35::codegen::cuda {

/// Writes to `folder`, for reading, profiling and compiling by hand: SYMBOL.cu
/// for every device stage, the headers they include, and launches.txt, the
/// programs of the S6 module as one line per launch.
/// Returns what went wrong, or nothing.
std::string writeSources(llvm::StringRef folder, const GpuTarget &target,
                         llvm::ArrayRef<CompiledStage> stages,
                         mlir::ModuleOp plan);

} // namespace qwen35::codegen::cuda

#endif // QWEN35_CODEGEN_CUDA_WRITESOURCES_H
