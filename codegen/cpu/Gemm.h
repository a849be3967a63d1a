#ifndef QWEN35_CODEGEN_CPU_GEMM_H
#define QWEN35_CODEGEN_CPU_GEMM_H

#include "codegen/cpu/KernelBuilder.h"

namespace qwen35::codegen::cpu {

/// A matrix operand: `view` has rank 2 and is stored as the transpose of what
/// enters the product when `transposed`.
struct MatrixOperand {
  View view;
  bool transposed = false;
  int64_t rows() const { return view.size(transposed ? 1 : 0); }
  int64_t columns() const { return view.size(transposed ? 0 : 1); }
};

/// How a product's start is added: c = a b, c = c + a b, or c = addend + a b.
enum class Start { Zero, Add, Addend };

/// c[M,N] = a[M,K] b[K,N] (+ c) within the calling task: for the products of
/// chunks and blocks inside larger kernels. Operands are copied to packed
/// scratch (shared by all calls in a kernel, 300 KiB of stack) and may be any
/// views, c too, of any sizes; c must not overlap a or b.
///
/// The order of every sum is k ascending, in blocks of at most 256 that are
/// added to c one after another. For a few rows or columns (say M, N < 8) plain
/// loops over lanes are as fast.
void matmulTile(KernelBuilder &k, MatrixOperand a, MatrixOperand b, View c,
                bool accumulate = false);

/// The same for a rectangle of c: rows firstRow .. +rowCount of a and c,
/// columns firstColumn .. +columnCount of b and c. Counts may be run-time
/// values where only these remainders occur: rowCount % rowStep is 0 or c's
/// rows % rowStep, likewise for columns; true of tiles whose size is a multiple
/// of the steps, the last ones cut off by the end of c.
struct TileRange {
  Ix firstRow, rowCount, firstColumn, columnCount;
};
constexpr int64_t kTileRowStep = 12, kTileColumnStep = 32;
/// Most columns of a range.
constexpr int64_t kTileColumns = 256;
void matmulRange(KernelBuilder &k, MatrixOperand a, MatrixOperand b, View c,
                 Start start, View addend, TileRange range);

} // namespace qwen35::codegen::cpu

#endif // QWEN35_CODEGEN_CPU_GEMM_H
