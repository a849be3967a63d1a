#pragma once
#include "q35/mma.cuh"

// Products of tiles: what every dense or grouped matrix product of the portable path is made of.
//
//   TileProduct<bf16, 128, 128, 4, 2, 3> tile;             // 128x128, 4x2 warps, 3 stages
//   tile.multiply(a, b, k, shared_memory());               // tile.c = a b^T over k
//   ... tile.c[m][n][e] at tile.row(m, e / 2), tile.column(n) + e % 2 ...
//
// Operands are *lines*: runs of contiguous elements, along k (A stored [m][k], B stored [n][k]) or across it (A stored
// [k][m], B stored [k][n]). An operand says where line i is, or that it has none; whatever is missing counts as zeros, so
// that rows may come from anywhere and no extent needs to fit the tile. A type of operands has
//
//   using Element             bf16 or float
//   static bool alongK        line i is row i of the tile; otherwise line i is k = i, from the first row of the tile on
//   static bool vector        lines start at 16-byte boundaries and `columns` fills 16-byte chunks
//   Element *base
//   int64 offset(int i)       line i, elements from base; negative: it has none. Any i of the tile or of k. An int where
//                             lines are within 2^31 elements, as they have to be where alongK
//   int columns               elements of a line that exist
//
// bf16 multiplies by mma with sums in float. Float uses FMAs: exact products, one rounding per step, k ascending.

namespace q35 {

// Elements in 128 bytes: k per stage, and the width of a panel of lines across k.
template <class T>
constexpr int kLine = 128 / sizeof(T);

// Lines [.., count) of one matrix.
template <class T, bool AlongK, bool Vector = true>
struct Lines {
  using Element = T;
  static constexpr bool alongK = AlongK, vector = Vector;
  const T *base;
  int64 stride;
  int count;
  int columns;
  Q35_DEVICE int64 offset(int i) const { return i < count ? i * stride : -1; }
};

// Byte of a 16-byte chunk in a tile of lines of 128 bytes. Any chunk of eight lines, and any eight chunks of one line, lie
// in different banks. It is the 128-byte swizzle of TMA and wgmma where the tile starts at a multiple of 1024.
Q35_DEVICE int tile_chunk(int line, int chunk) { return line * 128 + ((chunk ^ (line & 7)) << 4); }

// Copies an operand into tiles of Extent * 128 bytes: [Extent] lines along k, or [Extent / kLine] panels of kLine lines
// across it.
template <class Operand, int Extent, int Threads>
struct TileLoader {
  using T = typename Operand::Element;
  static constexpr int kCopies = Extent * 8 / Threads, kPanels = Extent / kLine<T>;
  static_assert(Extent * 8 % Threads == 0 && Threads % 8 == 0);
  Operand operand;
  int thread;
  int lines[Operand::alongK ? kCopies : 1];

  Q35_DEVICE TileLoader(const Operand &operand, int thread) : operand(operand), thread(thread) {
    if constexpr (Operand::alongK) {
#pragma unroll
      for (int i = 0; i < kCopies; ++i) lines[i] = int(operand.offset(thread / 8 + i * (Threads / 8)));
    }
  }

  // Starts to load k from `k` on.
  Q35_DEVICE void load(unsigned char *tile, int k) const {
    constexpr int vec = kVec<T>, line = kLine<T>;
    int chunk = thread % 8, mine = thread / 8;
    if constexpr (Operand::alongK) {
#pragma unroll
      for (int i = 0; i < kCopies; ++i)
        copy(tile + tile_chunk(mine + i * (Threads / 8), chunk), lines[i], k + chunk * vec);
    } else {
      static_assert(Extent % line == 0 && line * 8 % Threads == 0);
      constexpr int passes = line * 8 / Threads;
      decltype(operand.offset(0)) from[passes]; // Looked up together: that can take a while.
#pragma unroll
      for (int pass = 0; pass < passes; ++pass) from[pass] = operand.offset(k + pass * (Threads / 8) + mine);
#pragma unroll
      for (int pass = 0; pass < passes; ++pass)
#pragma unroll
        for (int panel = 0; panel < kPanels; ++panel)
          copy(tile + panel * line * 128 + tile_chunk(pass * (Threads / 8) + mine, chunk), from[pass],
               panel * line + chunk * vec);
    }
  }

private:
  template <class Offset>
  Q35_DEVICE void copy(unsigned char *to, Offset line, int column) const {
    if constexpr (Operand::vector) {
      // Of a chunk that is missing the address has to be aligned all the same.
      bool valid = line >= 0 && column < operand.columns;
      cp_async16(to, operand.base + (valid ? line + column : 0), valid);
    } else {
      Vec<T, kVec<T>> chunk;
#pragma unroll
      for (int i = 0; i < kVec<T>; ++i) {
        chunk.v[i] = T{};
        if (line >= 0 && column + i < operand.columns) chunk.v[i] = operand.base[line + column + i];
      }
      *reinterpret_cast<Vec<T, kVec<T>> *>(to) = chunk;
    }
  }
};

// A tile of C, BM x BN, in the registers of WarpsM * WarpsN warps: warps go over m first, then over n.
template <class T, int BM, int BN, int WarpsM, int WarpsN, int Stages>
struct TileProduct {
  static constexpr int kThreads = WarpsM * WarpsN * 32, kStageBytes = (BM + BN) * 128;
  static constexpr int kSharedBytes = Stages * kStageBytes;
  static constexpr int kRows = BM / WarpsM, kColumns = BN / WarpsN; // of a warp
  static constexpr int kM = kRows / 16, kN = kColumns / 8;          // fragments of a thread
  static_assert(kRows % 16 == 0 && kColumns % 16 == 0);

  // c[m][n][e] is C[row(m, e / 2)][column(n) + e % 2].
  float c[kM][kN][4];

  Q35_DEVICE static int warp_row() { return int(threadIdx.x) / 32 % WarpsM * kRows; }
  Q35_DEVICE static int warp_column() { return int(threadIdx.x) / 32 / WarpsM * kColumns; }
  Q35_DEVICE static int row(int m, int half) { return warp_row() + m * 16 + half * 8 + int(threadIdx.x) % 32 / 4; }
  Q35_DEVICE static int column(int n) { return warp_column() + n * 8 + int(threadIdx.x) % 4 * 2; }

  // C = A B^T over k. `shared`: kSharedBytes at a multiple of 128 bytes, free again when this returns.
  template <class A, class B>
  Q35_DEVICE void multiply(const A &a, const B &b, int k, unsigned char *shared) {
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int n = 0; n < kN; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) c[m][n][e] = 0;
    TileLoader<A, BM, kThreads> loadA(a, threadIdx.x);
    TileLoader<B, BN, kThreads> loadB(b, threadIdx.x);
    int steps = (k + kLine<T> - 1) / kLine<T>;
    auto start = [&](int step) {
      if (step < steps) {
        unsigned char *stage = shared + step % Stages * kStageBytes;
        loadA.load(stage, step * kLine<T>);
        loadB.load(stage + BM * 128, step * kLine<T>);
      }
      cp_async_commit();
    };
#pragma unroll
    for (int step = 0; step < Stages - 1; ++step) start(step);
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      cp_async_wait<Stages - 2>();
      __syncthreads();
      start(step + Stages - 1); // Over the stage of step - 1, which all have read.
      const unsigned char *stage = shared + step % Stages * kStageBytes;
      multiply_stage<A::alongK, B::alongK>(stage, stage + BM * 128);
    }
    cp_async_wait<0>();
    __syncthreads();
  }

private:
  template <bool AlongA, bool AlongB>
  Q35_DEVICE void multiply_stage(const unsigned char *a, const unsigned char *b) {
    if constexpr (sizeof(T) == 2) {
#pragma unroll
      for (int k = 0; k < 4; ++k) { // 16 each
        uint fa[kM][4], fb[2][4];
#pragma unroll
        for (int m = 0; m < kM; ++m) load_a<AlongA>(fa[m], a, warp_row() + m * 16, k);
        load_b<AlongB>(fb[0], b, warp_column(), k);
#pragma unroll
        for (int n = 0; n < kN; n += 2) {
          if (n + 2 < kN) load_b<AlongB>(fb[n / 2 % 2 ^ 1], b, warp_column() + n * 8 + 16, k);
          const uint(&pair)[4] = fb[n / 2 % 2];
          uint left[2] = {pair[0], pair[1]}, right[2] = {pair[2], pair[3]};
#pragma unroll
          for (int m = 0; m < kM; ++m) {
            mma_bf16(c[m][n], fa[m], left);
            mma_bf16(c[m][n + 1], fa[m], right);
          }
        }
      }
    } else {
#pragma unroll 4
      for (int k = 0; k < 32; ++k) {
        float fa[kM][2], fb[kN][2];
#pragma unroll
        for (int m = 0; m < kM; ++m)
#pragma unroll
          for (int half = 0; half < 2; ++half) fa[m][half] = element<AlongA>(a, row(m, half), k);
#pragma unroll
        for (int n = 0; n < kN; ++n)
#pragma unroll
          for (int e = 0; e < 2; ++e) fb[n][e] = element<AlongB>(b, column(n) + e, k);
#pragma unroll
        for (int m = 0; m < kM; ++m)
#pragma unroll
          for (int n = 0; n < kN; ++n)
#pragma unroll
            for (int e = 0; e < 4; ++e) c[m][n][e] = fmaf(fa[m][e / 2], fb[n][e % 2], c[m][n][e]);
      }
    }
  }

  // Fragments of 16 rows from `first` on, and of 16 columns, at the k-th 16 of a stage.
  template <bool AlongK>
  Q35_DEVICE static void load_a(uint (&to)[4], const unsigned char *tile, int first, int k) {
    int lane = threadIdx.x % 32;
    if constexpr (AlongK)
      ldmatrix_x4(to, tile + first * 128 + tile_chunk(lane % 16, k * 2 + lane / 16));
    else
      ldmatrix_x4_trans(to, tile + first / 64 * 8192 + k * 2048 +
                                tile_chunk(lane / 16 * 8 + lane % 8, first % 64 / 8 + lane / 8 % 2));
  }
  template <bool AlongK>
  Q35_DEVICE static void load_b(uint (&to)[4], const unsigned char *tile, int first, int k) {
    int lane = threadIdx.x % 32;
    if constexpr (AlongK)
      ldmatrix_x4(to, tile + first * 128 + tile_chunk(lane / 16 * 8 + lane % 8, k * 2 + lane / 8 % 2));
    else
      ldmatrix_x4_trans(to, tile + first / 64 * 8192 + k * 2048 + tile_chunk(lane % 16, first % 64 / 8 + lane / 16));
  }

  template <bool AlongK>
  Q35_DEVICE static float element(const unsigned char *tile, int row, int k) {
    int byte = AlongK ? tile_chunk(row, k / 4) + k % 4 * 4
                      : row / 32 * 4096 + tile_chunk(k, row % 32 / 4) + row % 4 * 4;
    return *reinterpret_cast<const float *>(tile + byte);
  }
};

// Transposes four fragments and the four lanes of a quad: lane t goes in with columns 2t and 2t + 1 of fragments eight
// columns wide, and comes out with all of fragment t. Word j is of fragment j, then of lane j.
Q35_DEVICE void transpose_quad(uint (&w)[4]) {
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2) {
    bool odd = threadIdx.x & bit;
#pragma unroll
    for (int low = 0; low < 4; ++low) {
      if (low & bit) continue;
      uint got = __shfl_xor_sync(0xffffffffu, odd ? w[low] : w[low | bit], bit);
      w[low] = odd ? got : w[low];
      w[low | bit] = odd ? w[low | bit] : got;
    }
  }
}

// The same for pairs of floats: out[..] are the columns of fragment t.
Q35_DEVICE void transpose_quad(const float (&value)[4][2], float (&out)[8]) {
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    uint w[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) w[j] = float_to_bits(value[j][e]);
    transpose_quad(w);
#pragma unroll
    for (int j = 0; j < 4; ++j) out[j * 2 + e] = bits_to_float(w[j]);
  }
}

// Stores what a quad of lanes has of one row of Count fragments, eight columns wide each. `row` is where the first
// fragment's column 0 goes, or null; `columns` what the row has from there on, any number. Vector: `row` is aligned to 16
// bytes (bf16) or 8 (float) and `columns` is a multiple of 8 (bf16) or 2. All lanes take part.
template <bool Vector, class T, int Count>
Q35_DEVICE void store_fragments(T *row, int columns, const float (&value)[Count][2]) {
  int t = threadIdx.x % 4;
  if constexpr (!Vector) {
#pragma unroll
    for (int j = 0; j < Count; ++j)
#pragma unroll
      for (int e = 0; e < 2; ++e)
        if (int at = j * 8 + t * 2 + e; row != nullptr && at < columns) row[at] = from_float<T>(value[j][e]);
  } else if constexpr (sizeof(T) == 4) {
#pragma unroll
    for (int j = 0; j < Count; ++j)
      if (int at = j * 8 + t * 2; row != nullptr && at < columns) store(row + at, value[j]);
  } else {
    static_assert(Count % 4 == 0);
#pragma unroll
    for (int first = 0; first < Count; first += 4) {
      uint w[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) w[j] = pack_bf16(value[first + j][0], value[first + j][1]);
      transpose_quad(w);
      int at = (first + t) * 8;
      if (row != nullptr && at < columns) *reinterpret_cast<Vec<uint, 4> *>(row + at) = {{w[0], w[1], w[2], w[3]}};
    }
  }
}

} // namespace q35
