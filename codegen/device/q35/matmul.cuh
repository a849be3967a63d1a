#pragma once
#include "q35/gemm.cuh"

// D = op(A) op(B), or acc + that, of row-major matrices. P holds
//   m, n, k, transA, transB      A is [m,k], or [k,m] if transA; B is [k,n], or [n,k] if transB
//   lda, ldb, ldc, ldd           elements from row to row, ldc of acc
//   vectorA, vectorB             lines are whole 16-byte vectors
//
// Where acc is the result, every element of it is read by the thread that writes it.

namespace q35 {

// Nothing to add to a product.
struct NoAddend {};

template <class C>
Q35_DEVICE float addend(const C *acc, int64 offset) { return to_float(acc[offset]); }
Q35_DEVICE float addend(NoAddend, int64) { return 0; }

// What becomes line i of the operand in rows [first, ..) of a tile, of `rows`; k of them.
template <bool AlongK, bool Vector, class T>
Q35_DEVICE Lines<T, AlongK, Vector> operand_lines(const T *base, int64 stride, int64 first, int64 rows, int64 k) {
  if constexpr (AlongK) return {base + first * stride, stride, int(rows - first), int(k)};
  return {base + first, stride, int(k), int(rows - first)};
}

// One tile of D per block, tiles of one column of tiles next to each other.
template <class T, bool TransA, bool TransB, bool VectorA, bool VectorB, class D, class C>
Q35_DEVICE void matmul_tile(const T *a, const T *b, C acc, D *d, int64 m, int64 n, int64 k, int64 lda, int64 ldb,
                            int64 ldc, int64 ldd) {
  using Tile = TileProduct<T, 64, 64, 2, 2, 3>;
  Tile tile;
  int64 rowTiles = (m + 63) / 64, firstRow = blockIdx.x % rowTiles * 64, firstColumn = blockIdx.x / rowTiles * 64;
  tile.multiply(operand_lines<!TransA, VectorA>(a, lda, firstRow, m, k),
                operand_lines<TransB, VectorB>(b, ldb, firstColumn, n, k), int(k), shared_memory());
#pragma unroll
  for (int i = 0; i < Tile::kM; ++i)
#pragma unroll
    for (int j = 0; j < Tile::kN; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        int64 row = firstRow + Tile::row(i, e / 2), column = firstColumn + Tile::column(j) + e % 2;
        if (row < m && column < n)
          d[row * ldd + column] = from_float<D>(addend(acc, row * ldc + column) + tile.c[i][j][e]);
      }
}

template <class P, class T, class D, class C>
Q35_DEVICE void matmul_add(const T *a, const T *b, C acc, D *d) {
  matmul_tile<T, P::transA, P::transB, P::vectorA, P::vectorB>(a, b, acc, d, P::m, P::n, P::k, P::lda, P::ldb, P::ldc,
                                                               P::ldd);
}

template <class P, class T, class D>
Q35_DEVICE void matmul(const T *a, const T *b, D *d) { matmul_add<P>(a, b, NoAddend(), d); }

// Below, P::vector elements are loaded at once.

// n is 1, both operands contiguous along k: a warp per row of A.
template <class P, class T, class D, class C>
Q35_DEVICE void dot_rows_add(const T *a, const T *b, C acc, D *d) {
  constexpr int vector = P::vector, step = 32 * vector;
  int64 row = int64(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
  if (row >= P::m) return;
  float dot = 0;
#pragma unroll 4
  for (int k = threadIdx.x % 32 * vector; k < int(P::k); k += step) {
    float x[vector], w[vector];
    load(x, a + row * P::lda + k);
    load(w, b + k);
#pragma unroll
    for (int i = 0; i < vector; ++i) dot = fmaf(x[i], w[i], dot);
  }
  dot = warp_sum(dot);
  if (threadIdx.x % 32 == 0) d[row * P::ldd] = from_float<D>(addend(acc, row * P::ldc) + dot);
}

template <class P, class T, class D>
Q35_DEVICE void dot_rows(const T *a, const T *b, D *d) { dot_rows_add<P>(a, b, NoAddend(), d); }

// k is 1: a warp per row of D, whose columns are a multiple of P::vector.
template <class P, class T, class D, class C>
Q35_DEVICE void outer_add(const T *a, const T *b, C acc, D *d) {
  constexpr int vector = P::vector, step = 32 * vector;
  int64 row = int64(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
  if (row >= P::m) return;
  float factor = to_float(a[row * P::lda]);
#pragma unroll 2
  for (int column = threadIdx.x % 32 * vector; column < int(P::n); column += step) {
    float w[vector];
    load(w, b + column);
#pragma unroll
    for (int i = 0; i < vector; ++i) w[i] = addend(acc, row * P::ldc + column + i) + factor * w[i];
    store(d + row * P::ldd + column, w);
  }
}

template <class P, class T, class D>
Q35_DEVICE void outer(const T *a, const T *b, D *d) { outer_add<P>(a, b, NoAddend(), d); }

// m is 1 and A stored [k][1]: d = sum of a[t] b[t], rows t of B in P::parts runs of P::partRows. First a block per run and
// per 32 vectors of columns sums into a row of `partials` [parts, n].
template <class P, class T>
Q35_DEVICE void weighted_sum_parts(const T *a, const T *b, float *partials) {
  constexpr int vector = P::vector, width = 32 * vector, warps = 8;
  __shared__ float sums[warps][width];
  constexpr int slices = int((P::n + width - 1) / width);
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int part = blockIdx.x / slices, column = blockIdx.x % slices * width + lane * vector;
  int64 first = part * P::partRows, end = min(first + P::partRows, int64(P::k));
  float sum[vector] = {};
  if (column < int(P::n)) {
#pragma unroll 4
    for (int64 row = first + warp; row < end; row += warps) {
      float x[vector], factor = to_float(a[row * P::lda]);
      load(x, b + row * P::ldb + column);
#pragma unroll
      for (int i = 0; i < vector; ++i) sum[i] = fmaf(factor, x[i], sum[i]);
    }
  }
#pragma unroll
  for (int i = 0; i < vector; ++i) sums[warp][lane * vector + i] = sum[i];
  __syncthreads();
  for (int i = threadIdx.x; i < width; i += blockDim.x) {
    int at = blockIdx.x % slices * width + i;
    if (at >= int(P::n)) break;
    float total = 0;
#pragma unroll
    for (int w = 0; w < warps; ++w) total += sums[w][i];
    partials[part * P::n + at] = total;
  }
}

// Then a thread per column adds the parts in order.
template <class P, class D, class C>
Q35_DEVICE void weighted_sum_total(const float *partials, C acc, D *d) {
  int64 column = int64(blockIdx.x) * blockDim.x + threadIdx.x;
  if (column >= P::n) return;
  float total = 0;
#pragma unroll 8
  for (int part = 0; part < int(P::parts); ++part) total += partials[part * P::n + column];
  d[column] = from_float<D>(addend(acc, column) + total);
}

template <class P, class T, class D>
Q35_DEVICE void weighted_sum_0(const T *a, const T *b, D *, unsigned char *workspace) {
  weighted_sum_parts<P>(a, b, reinterpret_cast<float *>(workspace));
}
template <class P, class T, class D>
Q35_DEVICE void weighted_sum_0(const T *a, const T *b, const D *, D *, unsigned char *workspace) {
  weighted_sum_parts<P>(a, b, reinterpret_cast<float *>(workspace));
}
template <class P, class T, class D>
Q35_DEVICE void weighted_sum_1(const T *, const T *, D *d, unsigned char *workspace) {
  weighted_sum_total<P>(reinterpret_cast<const float *>(workspace), NoAddend(), d);
}
template <class P, class T, class D>
Q35_DEVICE void weighted_sum_1(const T *, const T *, const D *acc, D *d, unsigned char *workspace) {
  weighted_sum_total<P>(reinterpret_cast<const float *>(workspace), acc, d);
}

} // namespace q35
