#include "codegen/cuda/Layout.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace qwen35::codegen::cuda {

std::optional<Lines> linesOf(llvm::ArrayRef<MemRefType> tensors) {
  size_t count = tensors.size();
  SmallVector<SmallVector<int64_t>> strides;
  for (MemRefType tensor : tensors)
    strides.push_back(stridesOf(tensor));
  // Dimensions from the innermost on; the first is contiguous.
  struct Dimension {
    int64_t size;
    SmallVector<int64_t> strides;
  };
  SmallVector<Dimension> merged = {{1, SmallVector<int64_t>(count, 1)}};
  MemRefType shape = tensors.front();
  for (int64_t d = shape.getRank() - 1; d >= 0; --d) {
    int64_t size = shape.getDimSize(d);
    if (size == 1)
      continue;
    Dimension &inner = merged.back();
    bool fits = llvm::all_of(llvm::seq(count), [&](size_t i) {
      return strides[i][d] == inner.strides[i] * inner.size;
    });
    if (fits) {
      inner.size *= size;
      continue;
    }
    Dimension next{size, {}};
    for (size_t i = 0; i < count; ++i)
      next.strides.push_back(strides[i][d]);
    merged.push_back(std::move(next));
  }
  if (merged.size() > 3)
    return std::nullopt;
  Lines lines;
  lines.columns = merged[0].size;
  lines.strides.resize(count);
  if (merged.size() > 1)
    lines.rows = merged[1].size;
  if (merged.size() > 2)
    lines.outer = merged[2].size;
  for (size_t i = 0; i < count; ++i) {
    if (merged.size() > 1)
      lines.strides[i].row = merged[1].strides[i];
    if (merged.size() > 2)
      lines.strides[i].outer = merged[2].strides[i];
  }
  return lines;
}

std::optional<int64_t> mergedStride(MemRefType type, int64_t first,
                                    int64_t end) {
  SmallVector<int64_t> strides = stridesOf(type);
  int64_t stride = 0, extent = 0;
  for (int64_t d = end - 1; d >= first; --d) {
    if (type.getDimSize(d) == 1)
      continue;
    if (stride == 0)
      stride = strides[d];
    else if (strides[d] != extent)
      return std::nullopt;
    extent = strides[d] * type.getDimSize(d);
  }
  return stride;
}

int64_t vectorOf(llvm::ArrayRef<MemRefType> tensors) {
  int64_t bytes = 1;
  for (MemRefType tensor : tensors)
    bytes = std::max(bytes, bytesOf(tensor.getElementType()));
  int64_t vector = 16 / bytes;
  auto limit = [&](int64_t multiple) {
    while (multiple % vector)
      vector /= 2;
  };
  for (MemRefType tensor : tensors) {
    int64_t last = tensor.getRank() - 1;
    if (last < 1)
      continue;
    limit(tensor.getDimSize(last));
    for (int64_t stride : llvm::ArrayRef(stridesOf(tensor)).take_front(last))
      limit(stride);
  }
  return vector;
}

int64_t Workspace::take(int64_t bytes) {
  int64_t at = size;
  size += llvm::alignTo(bytes, 256);
  return at;
}

} // namespace qwen35::codegen::cuda
