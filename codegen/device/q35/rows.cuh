#pragma once
// Kernels over rows that stay in registers. The constants P of such a kernel (codegen/cuda/Rows.h):
//
//   rows, columns   what there is; rows that a strided operand groups in two levels are inner to a group
//   width           columns of one access, a divisor of columns
//   lanes           threads that share a row: a power of two below 32, or a multiple of 32
//   vectors         accesses of a thread per row and operand
//   groups          rows that a block works on at once; it has groups * lanes threads
//   unroll          such sets of rows that are loaded together
//
// Grids are persistent: block b takes the tiles b, b + gridDim.x, .. of groups * unroll rows.
#include "q35/base.cuh"

namespace q35 {

// Where a row begins: outer is the stride of groups of Inner rows.
template <int64 Inner, int64 Outer, int64 Stride>
Q35_DEVICE int64 row_start(int row) {
  if constexpr (Inner == 1) return row * Outer;
  uint r = uint(row);
  return int64(r / uint(Inner)) * Outer + int64(r % uint(Inner)) * Stride;
}

template <class P>
struct RowThread {
  static constexpr int kLanes = P::lanes, kVectors = P::vectors, kWidth = P::width, kGroups = P::groups;
  static constexpr int kThreads = kLanes * kGroups, kTile = kGroups * P::unroll;
  static constexpr int kTiles = (P::rows + kTile - 1) / kTile;
  static constexpr bool kFullRows = kLanes * kVectors * kWidth == P::columns;
  static constexpr bool kFullTiles = P::rows % kTile == 0;

  int lane = int(threadIdx.x) % kLanes, group = int(threadIdx.x) / kLanes;

  Q35_DEVICE int row(int tile, int u) const { return tile * kTile + u * kGroups + group; }
  Q35_DEVICE bool has_row(int row) const { return kFullTiles || row < P::rows; }
  Q35_DEVICE int column(int n) const { return (lane + n * kLanes) * kWidth; }
  Q35_DEVICE bool has_column(int n) const { return kFullRows || column(n) < P::columns; }
};

// What a thread holds of a row of T.
template <class P, class T>
struct RowPart {
  static constexpr int kVectors = P::vectors, kWidth = P::width;
  Raw<T, kWidth> raw[kVectors];

  // Zeros where there is nothing.
  Q35_DEVICE void load(const T *row, const RowThread<P> &me, bool exists = true) {
#pragma unroll
    for (int n = 0; n < kVectors; ++n)
      raw[n] = exists && me.has_column(n) ? load_raw<kWidth>(row + me.column(n)) : Raw<T, kWidth>{};
  }
  Q35_DEVICE void get(float (&to)[kWidth], int n) const { unpack(to, raw[n]); }
};

// Elements n of a vector of parameters: what * [column].
template <class P>
Q35_DEVICE void load_columns(float (&to)[int(P::width)], const float *vector, const RowThread<P> &me, int n) {
  constexpr int kWidth = P::width;
  if (me.has_column(n)) {
    load(to, vector + me.column(n));
    return;
  }
#pragma unroll
  for (int i = 0; i < kWidth; ++i) to[i] = 0;
}

// Sums over the threads of a row. All threads of the block take part in every call.
template <class P>
struct RowSum {
  static constexpr int kLanes = P::lanes, kWarps = kLanes * int(P::groups) / 32;
  int parity = 0;

  Q35_DEVICE float operator()(float x) {
    if constexpr (kLanes <= 32) {
      return warp_sum<kLanes>(x);
    } else {
      // Whoever writes here again has passed the barrier of the call between.
      __shared__ float scratch[2][kWarps];
      constexpr int kWarpsOfRow = kLanes / 32;
      x = warp_sum(x);
      int warp = int(threadIdx.x) / 32;
      if (threadIdx.x % 32 == 0) scratch[parity][warp] = x;
      __syncthreads();
      int first = warp / kWarpsOfRow * kWarpsOfRow;
      float total = 0;
#pragma unroll
      for (int w = 0; w < kWarpsOfRow; ++w) total += scratch[parity][first + w];
      parity ^= 1;
      return total;
    }
  }
};

// Calls fetch(rows, tile) and then work(rows, tile) for the tiles of this block; with P::prefetch the next tile is
// fetched before work starts on one.
template <class P, class Rows, class Fetch, class Work>
Q35_DEVICE void for_tiles(Fetch fetch, Work work) {
  constexpr int kTiles = RowThread<P>::kTiles;
  int tile = blockIdx.x, step = gridDim.x;
  if constexpr (P::prefetch) {
    Rows next;
    fetch(next, tile);
    for (; tile < kTiles; tile += step) {
      Rows rows = next;
      if (tile + step < kTiles) fetch(next, tile + step);
      work(rows, tile);
    }
  } else {
    for (; tile < kTiles; tile += step) {
      Rows rows;
      fetch(rows, tile);
      work(rows, tile);
    }
  }
}

// partials[block][column]: what the threads of a block have summed over their rows, groups added in order.
template <class P>
Q35_DEVICE void write_partials(const float (&sum)[int(P::vectors)][int(P::width)], const RowThread<P> &me,
                               float *partials) {
  constexpr int kVectors = P::vectors, kWidth = P::width, kGroups = P::groups, kColumns = P::columns;
  float *to = partials + int64(blockIdx.x) * kColumns;
  if constexpr (kGroups == 1) {
#pragma unroll
    for (int n = 0; n < kVectors; ++n)
      if (me.has_column(n)) store(to + me.column(n), sum[n]);
  } else {
    __shared__ float shared[kGroups][kColumns];
#pragma unroll
    for (int n = 0; n < kVectors; ++n)
      if (me.has_column(n)) {
#pragma unroll
        for (int i = 0; i < kWidth; ++i) shared[me.group][me.column(n) + i] = sum[n][i];
      }
    __syncthreads();
    for (int c = threadIdx.x; c < kColumns; c += RowThread<P>::kThreads) {
      float total = 0;
#pragma unroll
      for (int g = 0; g < kGroups; ++g) total += shared[g][c];
      to[c] = total;
    }
  }
}

// write(c, sum over p of partials[p][c]) in a fixed order: 32 columns per block, P::slices threads to a column.
// Constants: parts, columns, slices.
template <class P, class Write>
Q35_DEVICE void sum_partials(const float *partials, Write write) {
  constexpr int kParts = P::parts, kColumns = P::columns, kSlices = P::slices;
  int slice = int(threadIdx.x) / 32, column = int(blockIdx.x) * 32 + int(threadIdx.x) % 32;
  bool exists = column < kColumns;
  float sum = 0;
  if (exists) {
#pragma unroll 8
    for (int p = slice; p < kParts; p += kSlices) sum += partials[int64(p) * kColumns + column];
  }
  if constexpr (kSlices > 1) {
    __shared__ float slices[kSlices][32];
    slices[slice][threadIdx.x % 32] = sum;
    __syncthreads();
    if (slice != 0) return;
    sum = 0;
#pragma unroll
    for (int s = 0; s < kSlices; ++s) sum += slices[s][threadIdx.x % 32];
  }
  if (exists) write(column, sum);
}

} // namespace q35
