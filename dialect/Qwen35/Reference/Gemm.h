#ifndef QWEN35_DIALECT_QWEN35_REFERENCE_GEMM_H
#define QWEN35_DIALECT_QWEN35_REFERENCE_GEMM_H

#include <algorithm>
#include <cstdint>
#include <vector>

namespace qwen35::reference {

/// A matrix inside a larger tensor; `T` is `const Real` for one that is read.
///
/// Units  Strides count elements.
template <typename T> struct Matrix {
  T *data;
  int64_t rows, columns;
  int64_t rowStride, columnStride = 1;

  T &at(int64_t i, int64_t j) const {
    return data[i * rowStride + j * columnStride];
  }
  T *row(int64_t i) const { return data + i * rowStride; }
  Matrix transposed() const {
    return {data, columns, rows, columnStride, rowStride};
  }
  operator Matrix<const T>() const {
    return {data, rows, columns, rowStride, columnStride};
  }
};

/// Dense row-major matrix.
template <typename T> Matrix<T> matrix(T *data, int64_t rows, int64_t columns) {
  return {data, rows, columns, columns, 1};
}

/// c = a b, or c + a b when `accumulate`.
///
/// Shapes  a: [M, K]; b: [K, N]; c: [M, N] with unit column stride, apart from
///         a and b in memory.
/// Types   Sums run over k in ascending order, in Real.
///
/// The loops run along rows of b and c, so the compiler vectorises them without
/// reassociating a sum; four rows of b at a time keep c out of the load port.
template <typename Real>
void multiply(Matrix<Real> c, Matrix<const Real> a, Matrix<const Real> b,
              bool accumulate = false) {
  int64_t depth = a.columns, columns = b.columns;
  if (!accumulate)
    for (int64_t i = 0; i < c.rows; ++i)
      std::fill_n(c.row(i), columns, Real(0));
  constexpr int64_t kDepthBlock = 64, kColumnBlock = 256;
  std::vector<Real> packed;
  for (int64_t j0 = 0; j0 < columns; j0 += kColumnBlock) {
    int64_t width = std::min(kColumnBlock, columns - j0);
    for (int64_t k0 = 0; k0 < depth; k0 += kDepthBlock) {
      int64_t height = std::min(kDepthBlock, depth - k0);
      const Real *block = &b.at(k0, j0);
      int64_t stride = b.rowStride;
      if (b.columnStride != 1) {
        packed.resize(kDepthBlock * kColumnBlock);
        for (int64_t j = 0; j < width; ++j)
          for (int64_t k = 0; k < height; ++k)
            packed[k * width + j] = b.at(k0 + k, j0 + j);
        block = packed.data();
        stride = width;
      }
      for (int64_t i = 0; i < c.rows; ++i) {
        Real *__restrict out = c.row(i) + j0;
        int64_t k = 0;
        for (; k + 4 <= height; k += 4) {
          const Real *b0 = block + k * stride, *b1 = b0 + stride;
          const Real *b2 = b1 + stride, *b3 = b2 + stride;
          Real a0 = a.at(i, k0 + k), a1 = a.at(i, k0 + k + 1);
          Real a2 = a.at(i, k0 + k + 2), a3 = a.at(i, k0 + k + 3);
          for (int64_t j = 0; j < width; ++j)
            out[j] = out[j] + a0 * b0[j] + a1 * b1[j] + a2 * b2[j] + a3 * b3[j];
        }
        for (; k < height; ++k) {
          const Real *b0 = block + k * stride;
          Real a0 = a.at(i, k0 + k);
          for (int64_t j = 0; j < width; ++j)
            out[j] = out[j] + a0 * b0[j];
        }
      }
    }
  }
}

} // namespace qwen35::reference

#endif // QWEN35_DIALECT_QWEN35_REFERENCE_GEMM_H
