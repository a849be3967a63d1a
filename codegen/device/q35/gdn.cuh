#pragma once
#include "q35/tile.cuh"

// What the kernels of the gated delta rule share. Equations are those of dialect/QKern/IR/GdnOps.td, symbols those of
// KERNELS.md 1 and 2.
//
// Constants of P in all of them: keyHeads, valueHeads, keyDim, valueDim, the offsets of the document table
// (seq_table.h), and strides of token-major operands, "keyToken" from token to token of k, "keyHead" from head to head.
//
// Tails: a chunk has n <= 64 rows. Rows past the last are zero in every token-major tile (and never read), and zero in
// the row factors beta, eta and rho, so that whole chunks are computed and the tail adds exactly nothing.

namespace q35 {

constexpr int kChunk = 64;
// The log of a decay to 0 in f32: none need be smaller in gamma, whose digits it would take.
constexpr float kNothing = -104.0f;

// exp(x) for x <= 0.
template <class T>
Q35_DEVICE float decay(float x) {
  if constexpr (sizeof(T) == 4)
    return expf(x);
  else
    return fast_exp2(x * 1.4426950408889634f);
}

// Threads that take one row of that many 16-byte units together: the next power of two.
template <int Units>
constexpr int kRowLanes = 2 * kRowLanes<(Units + 1) / 2>;
template <>
constexpr int kRowLanes<1> = 1;

template <bool First, class A, class B>
struct PickType {
  using type = A;
};
template <class A, class B>
struct PickType<false, A, B> {
  using type = B;
};

struct Chunk {
  int index, first, rows;
};

template <class P>
Q35_DEVICE Chunk chunk_of(const int *seq, int index) {
  return {index, seq[P::chunkFirst + index], seq[P::chunkRows + index]};
}

} // namespace q35
