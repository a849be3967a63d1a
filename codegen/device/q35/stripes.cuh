#pragma once
// A rank's part of a row that is cut over a context-parallel group: the stripe table (runtime/schema/stripe_table.h), and
// what passes between stripes for a convolution, stripe_tails and add_to_tails.
#include "q35/base.cuh"

namespace q35 {

// Constants: ranks, stripeRows (tokens of a stripe). Stripes are counted in the order of the row, j is 0 or 1, one of the
// rank's own; `rows` of a gather lie by slot.
template <class P>
struct Stripes {
  static constexpr int kLocal = 2, kCount = kLocal * int(P::ranks), kRows = P::stripeRows;
  const int *table;

  Q35_DEVICE int index(int j) const { return table[2 + j]; }
  Q35_DEVICE int first_segment(int j) const { return table[4 + j]; }
  Q35_DEVICE int last_segment(int j) const { return table[6 + j] - 1; }
  Q35_DEVICE int slot(int stripe) const { return table[8 + stripe]; }
  // Tokens that the document of the first token has before it.
  Q35_DEVICE int offset(int stripe) const { return table[8 + kCount + stripe]; }
  Q35_DEVICE bool continues(int stripe) const { return offset(stripe) > 0; }
  // No document begins inside.
  Q35_DEVICE bool passes(int stripe) const { return table[8 + 2 * kCount + stripe] == 0; }
  // Tokens of its document before the segment that begins at local token `begin`.
  Q35_DEVICE int before(int begin) const {
    int j = begin / kRows;
    return begin == j * kRows ? offset(index(j)) : 0;
  }
};

// The last rows of both stripes. Constants: stripeRows, halo (rows of a tail), width (elements of an access), vectors
// (accesses of a row), xRow.
template <class P, class T>
Q35_DEVICE void stripe_tails(const T *x, T *tails) {
  constexpr int kWidth = P::width, kVectors = P::vectors, kHalo = P::halo;
  int at = int(blockIdx.x) * int(blockDim.x) + int(threadIdx.x);
  if (at >= 2 * kHalo * kVectors) return;
  int row = at / kVectors, column = at % kVectors * kWidth, j = row / kHalo;
  int64 token = int64(j + 1) * P::stripeRows - kHalo + row % kHalo;
  float values[kWidth];
  load(values, x + token * P::xRow + column);
  store(tails + int64(at) * kWidth, values);
}

// y = x, with what the stripes after them send back to the last rows of each stripe. Constants: those of Stripes, tokens,
// halo, width, vectors, xRow, yRow.
template <class P, class T>
Q35_DEVICE void add_to_tails(const T *x, const T *halo, const int *table, T *y) {
  constexpr int kWidth = P::width, kVectors = P::vectors, kHalo = P::halo, kRows = P::stripeRows;
  int64 at = int64(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= P::tokens * P::vectors) return;
  int row = int(at / kVectors), column = int(at % kVectors) * kWidth, fromEnd = kRows - row % kRows;
  const T *from = x + row * P::xRow + column;
  T *to = y + row * P::yRow + column;
  const Stripes<P> stripes{table};
  int next = fromEnd <= kHalo ? stripes.index(row / kRows) + 1 : stripes.kCount;
  float values[kWidth];
  // The document of the row goes on in the next stripe.
  if (next < stripes.kCount && fromEnd <= stripes.offset(next)) {
    float back[kWidth];
    load(back, halo + (int64(stripes.slot(next)) * kHalo + kHalo - fromEnd) * (kVectors * kWidth) + column);
    load(values, from);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) values[i] += back[i];
    store(to, values);
  } else if (from != to) { // not in place
    load(values, from);
    store(to, values);
  }
}

} // namespace q35
