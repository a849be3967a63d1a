#pragma once
#include "q35/mma.cuh"

// Products of tiles in shared memory, 16 x 16 blocks at a time, by a warp: bf16 on the tensor cores, float in float.
//
//   A block<T> left (16 x k 16) and right (k 16 x 16); an accumulator block Acc, always float.
//   With g = lane / 4 and t = lane % 4, a thread holds of every accumulator block
//     c[j][i]: row g + i / 2 * 8, column 8 j + 2 t + i % 2,
//   and a left block holds the same places, so that a product's result is the left operand of the next one without
//   leaving registers (to_left), and epilogues are the same for both types.
//
// Tiles keep rows of 16-byte units, exchanged within 128 bytes such that eight rows of one column of units lie in
// different banks: every access below is free of conflicts for bf16. Rows of more than 128 bytes are split into panels.

namespace q35 {

template <class T, int Rows, int Columns>
struct Tile {
  static constexpr int kRows = Rows, kColumns = Columns;
  static constexpr int kUnit = kVec<T>;
  static constexpr int kRowBytes = Columns * int(sizeof(T));
  static constexpr int kPitch = kRowBytes > 64 ? 128 : kRowBytes > 32 ? 64 : 32; // of a row of a panel
  static constexpr int kPanelColumns = kPitch / int(sizeof(T));
  static constexpr int kBytes = (Columns + kPanelColumns - 1) / kPanelColumns * Rows * kPitch;
  static_assert(Columns % 16 == 0 && Rows % 8 == 0);

  T *base; // aligned to 128 bytes

  static Q35_DEVICE uint swizzle(uint row) { return row / (128 / kPitch) % (kPitch / 16); }

  Q35_DEVICE T *at(uint row, uint column) const {
    uint inPanel = column % kPanelColumns;
    return base + (column / kPanelColumns * Rows + row) * kPanelColumns +
           (inPanel / kUnit ^ swizzle(row)) * kUnit + inPanel % kUnit;
  }

  Q35_DEVICE T get(int row, int column) const { return *at(row, column); }

  // Unit `half` (0 or 1) of the 16 bf16 columns from `column` on, which is a multiple of 16.
  Q35_DEVICE T *half_block(uint row, uint column, uint half) const {
    static_assert(sizeof(T) == 2);
    uint inPanel = column % kPanelColumns;
    return base + (column / kPanelColumns * Rows + row) * kPanelColumns + (inPanel / 8 ^ (half ^ swizzle(row))) * 8;
  }
};

// Rows of global memory that stand for a tile where shared memory has no room for one: slow. Rows from `rows` on are
// zero and not read.
template <class T>
struct GlobalMatrix {
  const T *base;
  int64 stride;
  int rows;
  Q35_DEVICE T get(int row, int column) const {
    return row < rows ? base[row * stride + column] : from_float<T>(0.0f);
  }
  Q35_DEVICE uint pair(int row, int column) const { // column is even
    return row < rows ? *reinterpret_cast<const uint *>(base + row * stride + column) : 0u;
  }
};

Q35_DEVICE int lane_id() { return int(threadIdx.x % 32); }
Q35_DEVICE int block_row(int i) { return lane_id() / 4 + i / 2 * 8; }
Q35_DEVICE int block_column(int j, int i = 0) { return 8 * j + lane_id() % 4 * 2 + i % 2; }

struct Acc {
  float c[2][4];
};

// Steps to unroll of a loop over blocks that are kept in registers: all. The products of float, which are for
// debugging, would become too much code; they keep arrays of blocks in local memory.
template <class T>
constexpr int kUnrollBlocks = sizeof(T) == 2 ? 64 : 1;

// tf32 is what float matrices become where 10 bits of mantissa suffice; no tile has it as its type.
struct tf32;

template <class T>
struct Left;
template <class T>
struct Right;
template <>
struct Left<bf16> {
  uint r[4];
};
template <>
struct Right<bf16> {
  uint r[4]; // columns 0 to 7, then 8 to 15
};
template <>
struct Left<float> {
  float r[2][4];
};
template <>
struct Right<float> {
  float r[16][2][2]; // k, then columns 8 j + 2 t and one more
};
template <>
struct Left<tf32> {
  uint r[2][4]; // k 8 j + 2 t, then one more: a permutation of k that both operands share
};
template <>
struct Right<tf32> {
  uint r[2][2][2]; // k block, columns 8 j + g, k 8 + 2 t and one more
};

Q35_DEVICE void clear(Acc &x) {
#pragma unroll
  for (int j = 0; j < 2; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) x.c[j][i] = 0;
}

template <int N>
Q35_DEVICE void clear(Acc (&x)[N]) {
#pragma unroll
  for (int n = 0; n < N; ++n) clear(x[n]);
}

// c += a b.
Q35_DEVICE void multiply(Acc &c, const Left<bf16> &a, const Right<bf16> &b) {
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    uint half[2] = {b.r[j * 2], b.r[j * 2 + 1]};
    mma_bf16(c.c[j], a.r, half);
  }
}

Q35_DEVICE void multiply(Acc &c, const Left<float> &a, const Right<float> &b) {
#pragma unroll
  for (int k = 0; k < 16; ++k) {
    int source = lane_id() / 4 * 4 + k % 8 / 2;
    float upper = __shfl_sync(0xffffffffu, a.r[k / 8][k % 2], source);
    float lower = __shfl_sync(0xffffffffu, a.r[k / 8][2 + k % 2], source);
#pragma unroll
    for (int j = 0; j < 2; ++j)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        c.c[j][i] = fmaf(upper, b.r[k][j][i], c.c[j][i]);
        c.c[j][2 + i] = fmaf(lower, b.r[k][j][i], c.c[j][2 + i]);
      }
  }
}

Q35_DEVICE void multiply(Acc &c, const Left<tf32> &a, const Right<tf32> &b) {
#pragma unroll
  for (int k = 0; k < 2; ++k)
#pragma unroll
    for (int j = 0; j < 2; ++j) mma_tf32(c.c[j], a.r[k], b.r[k][j]);
}

// The accumulators as a left operand, rounded once.
template <class T>
Q35_DEVICE Left<T> to_left(const Acc &x);
template <>
Q35_DEVICE Left<bf16> to_left<bf16>(const Acc &x) {
  return {{pack_bf16(x.c[0][0], x.c[0][1]), pack_bf16(x.c[0][2], x.c[0][3]), pack_bf16(x.c[1][0], x.c[1][1]),
           pack_bf16(x.c[1][2], x.c[1][3])}};
}
template <>
Q35_DEVICE Left<float> to_left<float>(const Acc &x) {
  Left<float> a;
#pragma unroll
  for (int j = 0; j < 2; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) a.r[j][i] = x.c[j][i];
  return a;
}
template <>
Q35_DEVICE Left<tf32> to_left<tf32>(const Acc &x) {
  Left<tf32> a;
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    a.r[j][0] = to_tf32(x.c[j][0]);
    a.r[j][1] = to_tf32(x.c[j][2]);
    a.r[j][2] = to_tf32(x.c[j][1]);
    a.r[j][3] = to_tf32(x.c[j][3]);
  }
  return a;
}

Q35_DEVICE void unpack(Acc &to, const Left<bf16> &from) {
#pragma unroll
  for (int j = 0; j < 2; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      uint word = from.r[j * 2 + i / 2];
      to.c[j][i] = bits_to_float(i % 2 ? word & 0xffff0000u : word << 16);
    }
}
Q35_DEVICE void unpack(Acc &to, const Left<float> &from) {
#pragma unroll
  for (int j = 0; j < 2; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) to.c[j][i] = from.r[j][i];
}

// x + y where at every place one of them is +0.
Q35_DEVICE Left<bf16> join(const Left<bf16> &x, const Left<bf16> &y) {
  return {{x.r[0] | y.r[0], x.r[1] | y.r[1], x.r[2] | y.r[2], x.r[3] | y.r[3]}};
}
Q35_DEVICE Left<float> join(const Left<float> &x, const Left<float> &y) {
  Left<float> sum;
#pragma unroll
  for (int j = 0; j < 2; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) sum.r[j][i] = x.r[j][i] + y.r[j][i];
  return sum;
}

// All origins below are multiples of 16.

// a[m][k] = tile[row + m][column + k]
template <int Rows, int Columns>
Q35_DEVICE void load_left(Left<bf16> &a, const Tile<bf16, Rows, Columns> &tile, int row, int column) {
  uint lane = threadIdx.x % 32;
  ldmatrix_x4(a.r, tile.half_block(row + lane % 16, column, lane / 16));
}
// a[m][k] = tile[row + k][column + m]
template <int Rows, int Columns>
Q35_DEVICE void load_left_transposed(Left<bf16> &a, const Tile<bf16, Rows, Columns> &tile, int row, int column) {
  uint lane = threadIdx.x % 32;
  ldmatrix_x4_trans(a.r, tile.half_block(row + lane / 16 * 8 + lane % 8, column, lane / 8 % 2));
}
// b[k][n] = tile[row + k][column + n]
template <int Rows, int Columns>
Q35_DEVICE void load_right(Right<bf16> &b, const Tile<bf16, Rows, Columns> &tile, int row, int column) {
  uint lane = threadIdx.x % 32;
  ldmatrix_x4_trans(b.r, tile.half_block(row + lane % 16, column, lane / 16));
}
// b[k][n] = tile[row + n][column + k]
template <int Rows, int Columns>
Q35_DEVICE void load_right_transposed(Right<bf16> &b, const Tile<bf16, Rows, Columns> &tile, int row, int column) {
  uint lane = threadIdx.x % 32;
  ldmatrix_x4(b.r, tile.half_block(row + lane / 16 * 8 + lane % 8, column, lane / 8 % 2));
}

Q35_DEVICE void load_left(Left<bf16> &a, const GlobalMatrix<bf16> &tile, int row, int column) {
#pragma unroll
  for (int m = 0; m < 4; ++m) a.r[m] = tile.pair(row + m % 2 * 8 + lane_id() / 4, column + block_column(m / 2));
}
Q35_DEVICE void load_right_transposed(Right<bf16> &b, const GlobalMatrix<bf16> &tile, int row, int column) {
#pragma unroll
  for (int m = 0; m < 4; ++m) b.r[m] = tile.pair(row + m / 2 * 8 + lane_id() / 4, column + block_column(m % 2));
}

template <class Matrix>
Q35_DEVICE void load_left(Left<float> &a, const Matrix &tile, int row, int column) {
#pragma unroll
  for (int j = 0; j < 2; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) a.r[j][i] = tile.get(row + block_row(i), column + block_column(j, i));
}
template <class Matrix>
Q35_DEVICE void load_left_transposed(Left<float> &a, const Matrix &tile, int row, int column) {
#pragma unroll
  for (int j = 0; j < 2; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) a.r[j][i] = tile.get(row + block_column(j, i), column + block_row(i));
}
template <class Matrix>
Q35_DEVICE void load_right(Right<float> &b, const Matrix &tile, int row, int column) {
#pragma unroll
  for (int k = 0; k < 16; ++k)
#pragma unroll
    for (int j = 0; j < 2; ++j)
#pragma unroll
      for (int i = 0; i < 2; ++i) b.r[k][j][i] = tile.get(row + k, column + block_column(j, i));
}
template <class Matrix>
Q35_DEVICE void load_right_transposed(Right<float> &b, const Matrix &tile, int row, int column) {
#pragma unroll
  for (int k = 0; k < 16; ++k)
#pragma unroll
    for (int j = 0; j < 2; ++j)
#pragma unroll
      for (int i = 0; i < 2; ++i) b.r[k][j][i] = tile.get(row + block_column(j, i), column + k);
}

// Of floats in shared memory, given by element.
template <class Element>
Q35_DEVICE void load_left(Left<tf32> &a, int row, int column, const Element &element) {
#pragma unroll
  for (int j = 0; j < 2; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      a.r[j][i] = to_tf32(element(row + lane_id() / 4 + i % 2 * 8, column + block_column(j, i / 2)));
}
template <class Element>
Q35_DEVICE void load_right(Right<tf32> &b, int row, int column, const Element &element) {
#pragma unroll
  for (int k = 0; k < 2; ++k)
#pragma unroll
    for (int j = 0; j < 2; ++j)
#pragma unroll
      for (int i = 0; i < 2; ++i)
        b.r[k][j][i] = to_tf32(element(row + block_column(k, i), column + 8 * j + lane_id() / 4));
}
template <class Element>
Q35_DEVICE void load_left(Left<float> &a, int row, int column, const Element &element) {
#pragma unroll
  for (int j = 0; j < 2; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) a.r[j][i] = element(row + block_row(i), column + block_column(j, i));
}
template <class Element>
Q35_DEVICE void load_right(Right<float> &b, int row, int column, const Element &element) {
#pragma unroll
  for (int k = 0; k < 16; ++k)
#pragma unroll
    for (int j = 0; j < 2; ++j)
#pragma unroll
      for (int i = 0; i < 2; ++i) b.r[k][j][i] = element(row + k, column + block_column(j, i));
}

// tile[row + m][column + k] = a[m][k], rounded once.
template <class T, int Rows, int Columns>
Q35_DEVICE void store_block(const Tile<T, Rows, Columns> &tile, const Acc &a, int row, int column) {
#pragma unroll
  for (int j = 0; j < 2; ++j)
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      float pair[2] = {a.c[j][i], a.c[j][i + 1]};
      store(tile.at(row + block_row(i), column + block_column(j)), pair);
    }
}

// tile[row + k][column + m] = a[m][k]
template <int Rows, int Columns>
Q35_DEVICE void store_transposed(const Tile<bf16, Rows, Columns> &tile, const Left<bf16> &a, int row, int column) {
#if defined(Q35_EMULATE) || __CUDA_ARCH__ >= 900
  uint lane = threadIdx.x % 32;
  stmatrix_x4_trans(tile.half_block(row + lane / 16 * 8 + lane % 8, column, lane / 8 % 2), a.r);
#else
#pragma unroll
  for (int j = 0; j < 2; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      *tile.at(row + block_column(j, i), column + block_row(i)) = bf16{ushort(a.r[j * 2 + i / 2] >> i % 2 * 16)};
#endif
}
template <int Rows, int Columns>
Q35_DEVICE void store_transposed(const Tile<float, Rows, Columns> &tile, const Left<float> &a, int row, int column) {
#pragma unroll
  for (int j = 0; j < 2; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) *tile.at(row + block_column(j, i), column + block_row(i)) = a.r[j][i];
}

// The units of a tile that thread `thread` of Threads has, as body(row, column).
template <int Threads, class T, int Rows, int Columns, class Body>
Q35_DEVICE void for_units(const Tile<T, Rows, Columns> &, int thread, const Body &body) {
  constexpr uint units = Columns / kVec<T>, all = Rows * units, at_once = Threads;
  uint first = uint(thread);
#pragma unroll
  for (uint i = 0; i < (all + at_once - 1) / at_once; ++i) {
    if constexpr (at_once % units == 0) {
      uint row = first / units + i * (at_once / units);
      if (all % at_once != 0 && row >= uint(Rows)) break;
      body(int(row), int(first % units * kVec<T>));
    } else {
      uint unit = first + i * at_once;
      if (all % at_once != 0 && unit >= all) break;
      body(int(unit / units), int(unit % units * kVec<T>));
    }
  }
}

// Starts to copy rows of global memory, `stride` elements apart, by threads 0 to Threads - 1; rows from `rows` on
// become zero and are not read.
template <int Threads, class T, int Rows, int Columns>
Q35_DEVICE void copy_async(const Tile<T, Rows, Columns> &tile, const T *from, int64 stride, int rows, int thread) {
  for_units<Threads>(tile, thread, [&](int row, int column) {
    cp_async16(tile.at(row, column), from + row * stride + column, row < rows);
  });
}
// All rows.
template <int Threads, class T, int Rows, int Columns>
Q35_DEVICE void copy_async(const Tile<T, Rows, Columns> &tile, const T *from, int64 stride, int thread) {
  for_units<Threads>(tile, thread, [&](int row, int column) {
    cp_async16(tile.at(row, column), from + row * stride + column, true);
  });
}

// Writes the first `rows` rows of the tile, or all, to rows of global memory.
template <int Threads, class T, int Rows, int Columns>
Q35_DEVICE void copy_out(T *to, int64 stride, const Tile<T, Rows, Columns> &tile, int rows, int thread) {
  using Unit = Vec<T, kVec<T>>;
  for_units<Threads>(tile, thread, [&](int row, int column) {
    if (row < rows)
      *reinterpret_cast<Unit *>(to + row * stride + column) = *reinterpret_cast<const Unit *>(tile.at(row, column));
  });
}
template <int Threads, class T, int Rows, int Columns>
Q35_DEVICE void copy_out(T *to, int64 stride, const Tile<T, Rows, Columns> &tile, int thread) {
  using Unit = Vec<T, kVec<T>>;
  for_units<Threads>(tile, thread, [&](int row, int column) {
    *reinterpret_cast<Unit *>(to + row * stride + column) = *reinterpret_cast<const Unit *>(tile.at(row, column));
  });
}

} // namespace q35
