#pragma once
// Decay and write strength of the delta rule, and their gradients; MODEL.md 4.3, 13.9. Constants: tokens, heads, and the
// stride of the rows of each operand; of the gradient also lanes (threads to a row), groups (rows at once), rows (of a
// block).
#include "q35/rows.cuh"

namespace q35 {

Q35_DEVICE float softplus(float x) { return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))); }

// g = -exp(a_log) * softplus(a + dt_bias), beta = sigmoid(b)
template <class P, class T>
Q35_DEVICE void gdn_gates(const T *a, const T *b, const float *a_log, const float *dt_bias, float *g, float *beta) {
  int64 at = int64(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= P::tokens * P::heads) return;
  int token = int(at / P::heads), head = int(at % P::heads);
  float x = to_float(a[token * P::aRow + head]), z = to_float(b[token * P::bRow + head]);
  g[token * P::gRow + head] = -expf(a_log[head]) * softplus(x + dt_bias[head]);
  beta[token * P::betaRow + head] = sigmoid(z);
}

// da = -dg * exp(a_log) * sigmoid(a + dt_bias), db = dbeta * beta * (1 - beta), and per block the sums of its rows:
// da_log = sum of dg * g, ddt_bias = sum of da.
template <class P, class T>
Q35_DEVICE void gdn_gates_bwd(const float *dg, const float *dbeta, const T *a, const T *b, const float *a_log,
                              const float *dt_bias, T *da, T *db, float *, float *, unsigned char *workspace) {
  constexpr int kLanes = P::lanes, kGroups = P::groups, kHeads = P::heads, kTokens = P::tokens;
  __shared__ float shared[2][kGroups][kLanes];
  float *partials = reinterpret_cast<float *>(workspace) + int64(blockIdx.x) * 2 * kHeads;
  int lane = int(threadIdx.x) % kLanes, group = int(threadIdx.x) / kLanes;
  int first = int(blockIdx.x) * int(P::rows), end = min(first + int(P::rows), kTokens);
  for (int start = 0; start < kHeads; start += kLanes) {
    int head = start + lane;
    float log_sum = 0, bias_sum = 0;
    if (head < kHeads && group < kGroups) {
      float rate = -expf(a_log[head]), bias = dt_bias[head];
      constexpr int kBatch = 4; // rows in flight
      for (int row = first + group; row < end; row += kBatch * kGroups) {
        float x[kBatch], z[kBatch], d_g[kBatch], d_beta[kBatch];
#pragma unroll
        for (int j = 0; j < kBatch; ++j) {
          int token = row + j * kGroups;
          if (token >= end) break;
          x[j] = to_float(a[token * P::aRow + head]) + bias;
          z[j] = to_float(b[token * P::bRow + head]);
          d_g[j] = dg[token * P::dgRow + head];
          d_beta[j] = dbeta[token * P::dbetaRow + head];
        }
#pragma unroll
        for (int j = 0; j < kBatch; ++j) {
          int token = row + j * kGroups;
          if (token >= end) break;
          float strength = sigmoid(z[j]), scaled = d_g[j] * rate, slope = scaled * sigmoid(x[j]);
          da[token * P::daRow + head] = from_float<T>(slope);
          db[token * P::dbRow + head] = from_float<T>(d_beta[j] * strength * (1.0f - strength));
          log_sum = fmaf(scaled, softplus(x[j]), log_sum);
          bias_sum += slope;
        }
      }
    }
    if (group < kGroups) {
      shared[0][group][lane] = log_sum;
      shared[1][group][lane] = bias_sum;
    }
    __syncthreads();
    for (int at = threadIdx.x; at < 2 * kLanes; at += blockDim.x) {
      int which = at / kLanes, of = at % kLanes;
      float total = 0;
#pragma unroll
      for (int i = 0; i < kGroups; ++i) total += shared[which][i][of];
      if (start + of < kHeads) partials[which * kHeads + start + of] = total;
    }
    __syncthreads();
  }
}

// Constants: those of sum_partials, heads.
template <class P, class T>
Q35_DEVICE void gdn_gates_bwd_sum(const float *, const float *, const T *, const T *, const float *, const float *, T *,
                                  T *, float *da_log, float *ddt_bias, const unsigned char *workspace) {
  sum_partials<P>(reinterpret_cast<const float *>(workspace), [&](int column, float total) {
    int head = column % int(P::heads);
    (column < P::heads ? da_log : ddt_bias)[head] = total;
  });
}

} // namespace q35
