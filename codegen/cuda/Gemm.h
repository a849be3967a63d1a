#ifndef QWEN35_CODEGEN_CUDA_GEMM_H
#define QWEN35_CODEGEN_CUDA_GEMM_H

#include "codegen/cuda/Kernel.h"

namespace qwen35::codegen::cuda {

/// What the library may use to split sums.
constexpr int64_t kGemmWorkspace = int64_t(32) << 20;

/// Elements from row to row of a matrix, at least its columns.
int64_t leadingDimension(mlir::MemRefType matrix);

/// The grid of q35::matmul_tile for this product and the constants it has
/// (q35/matmul.cuh), but for function and ldc: what targets without a library
/// launch.
DeviceStage ownProduct(const GemmStage &product);

} // namespace qwen35::codegen::cuda

#endif // QWEN35_CODEGEN_CUDA_GEMM_H
