#ifndef QWEN35_CODEGEN_CUDA_LAYOUT_H
#define QWEN35_CODEGEN_CUDA_LAYOUT_H

#include "codegen/cuda/Kernel.h"

// Where the elements of operands lie, for kernels that see them as rows.
namespace qwen35::codegen::cuda {

/// Tensors of one shape as [outer, rows, columns] with columns contiguous in
/// all of them: as few and as long rows as their strides allow.
struct Lines {
  struct Strides {
    int64_t outer = 0, row = 0;
  };
  int64_t outer = 1, rows = 1, columns = 1;
  llvm::SmallVector<Strides> strides; ///< Of the tensors, in order.
};

/// Nothing if more than three dimensions remain.
std::optional<Lines> linesOf(llvm::ArrayRef<mlir::MemRefType> tensors);

/// The stride of dimensions [first, end) as one, 0 if they have one element
/// together; nothing if they do not merge.
std::optional<int64_t> mergedStride(mlir::MemRefType type, int64_t first,
                                    int64_t end);

/// Elements that one access of at most 16 bytes takes of each tensor: the last
/// dimension and all strides are multiples of it. The offset of a view is not
/// in its type; it is a multiple where the slices before this one were as wide,
/// which those of the frontend are. A vector (rank 1) is whole, so that only its
/// end may be odd.
int64_t vectorOf(llvm::ArrayRef<mlir::MemRefType> tensors);

/// Hands out pieces of a workspace, 256-byte aligned.
class Workspace {
public:
  int64_t take(int64_t bytes);
  int64_t bytes() const { return size; }

private:
  int64_t size = 0;
};

} // namespace qwen35::codegen::cuda

#endif // QWEN35_CODEGEN_CUDA_LAYOUT_H
