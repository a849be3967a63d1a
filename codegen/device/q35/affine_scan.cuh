#pragma once
// affine_scan and affine_scan_bwd: states through the maps of all stripes of a row; dialect/Qwen35/IR/StripeOps.td. In
// float: a state passes through as many products as there are stripes, which are few beside those of the delta rule.
#include "q35/stripes.cuh"

namespace q35 {

// A block takes 32 columns of a head, a lane each, and its warps the rows; the state lies in shared memory. Constants:
// those of Stripes, heads, keyDim, valueDim, slices (of 32 columns), warps.
template <class P, bool Backward>
Q35_DEVICE void scan_stripes(const float *maps, const float *terms, const int *table, float *out) {
  constexpr int dk = P::keyDim, dv = P::valueDim, kWarps = P::warps, kRows = (dk + kWarps - 1) / kWarps;
  constexpr int kWidth = dk % (4 * kWarps) == 0 ? 4 : 1;
  __shared__ float state[dk][32];
  const Stripes<P> stripes{table};
  int lane = int(threadIdx.x) % 32, first = int(threadIdx.x) / 32 * kRows;
  int head = int(blockIdx.x) / int(P::slices), column = int(blockIdx.x) % int(P::slices) * 32 + lane;
  bool exists = column < dv;
  for (int row = first; row < min(first + kRows, dk); ++row) state[row][lane] = 0;
  __syncthreads();

  // What lies behind the last stripe of the rank, in the order of the walk, is not asked for.
  int last = stripes.index(Backward ? 0 : 1);
  for (int step = 0; step < stripes.kCount; ++step) {
    int stripe = Backward ? stripes.kCount - 1 - step : step;
    bool continues = stripes.continues(stripe);
#pragma unroll
    for (int j = 0; j < stripes.kLocal; ++j)
      if (stripes.index(j) == stripe && exists)
        // A state does not enter a document that begins.
        for (int row = first; row < min(first + kRows, dk); ++row)
          out[((int64(j) * P::heads + head) * dk + row) * dv + column] =
              Backward || continues ? state[row][lane] : 0.0f;
    if (stripe == last) break;

    int64 at = int64(stripes.slot(stripe)) * P::heads + head;
    const float *term = terms + at * dk * dv + column, *map = maps + at * dk * dk;
    float next[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      next[i] = 0;
      // Nor does a gradient leave one.
      if (exists && first + i < dk && (!Backward || continues)) next[i] = term[int64(first + i) * dv];
    }
    if (stripes.passes(stripe)) {
      if constexpr (Backward) {
#pragma unroll 4
        for (int k = 0; k < dk; ++k) {
          float value = state[k][lane];
#pragma unroll
          for (int i = 0; i < kRows; i += kWidth) {
            if (first + i >= dk) break;
            float m[kWidth];
            load(m, map + k * dk + first + i);
#pragma unroll
            for (int n = 0; n < kWidth; ++n) next[i + n] = fmaf(m[n], value, next[i + n]);
          }
        }
      } else {
#pragma unroll 4
        for (int k = 0; k < dk; k += kWidth) {
          float values[kWidth];
#pragma unroll
          for (int n = 0; n < kWidth; ++n) values[n] = state[k + n][lane];
#pragma unroll
          for (int i = 0; i < kRows; ++i) {
            if (first + i >= dk) break;
            float m[kWidth];
            load(m, map + (first + i) * dk + k);
#pragma unroll
            for (int n = 0; n < kWidth; ++n) next[i] = fmaf(m[n], values[n], next[i]);
          }
        }
      }
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kRows; ++i)
      if (first + i < dk) state[first + i][lane] = next[i];
    __syncthreads();
  }
}

template <class P>
Q35_DEVICE void affine_scan(const float *m, const float *b, const int *stripes, float *states) {
  scan_stripes<P, false>(m, b, stripes, states);
}

template <class P>
Q35_DEVICE void affine_scan_bwd(const float *m, const float *c, const int *stripes, float *gradients) {
  scan_stripes<P, true>(m, c, stripes, gradients);
}

} // namespace q35
