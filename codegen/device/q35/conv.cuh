#pragma once
// causal_conv and its gradient: SiLU of a depthwise convolution inside each document; MODEL.md 4.3, 13.10.
//
// A thread owns `width` neighbouring channels and walks down a run of tokens with the taps and the last rows in
// registers, so that it reads every row once. Where a document begins, it sets those rows to zero.
//
// Constants: tokens, channels, taps, width, run (tokens of a thread), batch (rows in flight), warps (runs of a block, whose
// lanes own 32 * width channels), channelBlocks, xRow, yRow, dyRow, dxRow, docStart and docEnd (words of the document
// table).
#include "q35/rows.cuh"

namespace q35 {

template <class P>
struct ConvThread {
  static constexpr int kTaps = P::taps, kWidth = P::width, kBatch = P::batch, kTokens = P::tokens;
  static constexpr int kBefore = kTaps - 1; // rows that a token looks back
  int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  int channelBlock = int(blockIdx.x % uint(P::channelBlocks)), runBlock = int(blockIdx.x / uint(P::channelBlocks));
  int channel = (channelBlock * 32 + lane) * kWidth;
  int first = min((runBlock * int(P::warps) + warp) * int(P::run), kTokens); // token
  int end = min(first + int(P::run), kTokens);

  Q35_DEVICE bool exists() const { return first < end && channel < P::channels; }

  // w[k][i] of channel + i, which multiplies the row kTaps - 1 - k before.
  Q35_DEVICE void load_taps(float (&w)[kTaps][kWidth], const float *weight) const {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float *from = weight + int64(channel + i) * kTaps;
      if constexpr (kTaps == 4) {
        float four[4];
        load(four, from);
#pragma unroll
        for (int k = 0; k < kTaps; ++k) w[k][i] = four[k];
      } else {
#pragma unroll
        for (int k = 0; k < kTaps; ++k) w[k][i] = from[k];
      }
    }
  }

  // The rows before the run, oldest first; those of other documents are zero.
  template <class T>
  Q35_DEVICE void load_before(float (&before)[kBefore > 0 ? kBefore : 1][kWidth], const T *x, int64 row,
                              int docFirst) const {
#pragma unroll
    for (int k = 0; k < kBefore; ++k) {
      int token = first - kBefore + k;
      Raw<T, kWidth> raw{};
      if (token >= docFirst) raw = load_raw<kWidth>(x + token * row + channel);
      unpack(before[k], raw);
    }
  }
};

template <int N, int Rows>
Q35_DEVICE void clear(float (&rows)[Rows][N]) {
#pragma unroll
  for (int k = 0; k < Rows; ++k) {
#pragma unroll
    for (int i = 0; i < N; ++i) rows[k][i] = 0;
  }
}

// Drops the oldest row.
template <int N, int Rows>
Q35_DEVICE void push(float (&rows)[Rows][N], const float (&newest)[N]) {
#pragma unroll
  for (int k = 0; k + 1 < Rows; ++k) {
#pragma unroll
    for (int i = 0; i < N; ++i) rows[k][i] = rows[k + 1][i];
  }
#pragma unroll
  for (int i = 0; i < N; ++i) rows[Rows - 1][i] = newest[i];
}

// The convolution of a token, from its row and those before.
template <int Taps, int N, int Rows>
Q35_DEVICE void convolve(float (&p)[N], const float (&w)[Taps][N], const float (&before)[Rows][N],
                         const float (&now)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
    float sum = w[Taps - 1][i] * now[i];
#pragma unroll
    for (int k = 0; k + 1 < Taps; ++k) sum = fmaf(w[k][i], before[k][i], sum);
    p[i] = sum;
  }
}

template <class P, class T>
Q35_DEVICE void causal_conv(const T *x, const float *weight, const int *seq, T *y) {
  using Thread = ConvThread<P>;
  constexpr int kTaps = Thread::kTaps, kWidth = Thread::kWidth, kBatch = Thread::kBatch, kBefore = Thread::kBefore;
  const Thread me;
  if (!me.exists()) return;
  float w[kTaps][kWidth], before[kBefore > 0 ? kBefore : 1][kWidth];
  me.load_taps(w, weight);
  const T *from = x + me.first * P::xRow + me.channel;
  T *to = y + me.first * P::yRow + me.channel;
  // Row token + j until it is used, then row token + kBatch + j.
  Raw<T, kWidth> rows[kBatch];
#pragma unroll
  for (int j = 0; j < kBatch; ++j)
    if (me.first + j < me.end) rows[j] = load_raw<kWidth>(from + j * P::xRow);
  me.load_before(before, x, P::xRow, seq[P::docStart + me.first]);
  int docEnd = seq[P::docEnd + me.first];

  auto walk = [&](int token, int j) {
    float now[kWidth], p[kWidth];
    unpack(now, rows[j]);
    if (token + kBatch < me.end) rows[j] = load_raw<kWidth>(from + (j + kBatch) * P::xRow);
    convolve<kTaps>(p, w, before, now);
    if constexpr (kBefore > 0) push(before, now);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) p[i] *= fast_sigmoid(p[i]);
    store(to + j * P::yRow, p);
  };
  for (int token = me.first; token < me.end; token += kBatch) {
    if (token + kBatch <= min(me.end, docEnd)) {
#pragma unroll
      for (int j = 0; j < kBatch; ++j) walk(token + j, j);
    } else {
#pragma unroll
      for (int j = 0; j < kBatch; ++j) {
        if (token + j >= me.end) break;
        if (token + j == docEnd) {
          clear(before);
          docEnd = seq[P::docEnd + token + j];
        }
        walk(token + j, j);
      }
    }
    from += kBatch * P::xRow;
    to += kBatch * P::yRow;
  }
}

// dp = dy * silu'(p): dx[s] = sum over k of w[k] * dp[s + taps - 1 - k] inside the document, and partials of
// dw[k] = sum over t of dp[t] * x[t - (taps - 1 - k)], which are [block of runs][tap][channel].
template <class P, class T>
Q35_DEVICE void causal_conv_bwd(const T *dy, const T *x, const float *weight, const int *seq, T *dx, float *,
                                unsigned char *workspace) {
  using Thread = ConvThread<P>;
  constexpr int kTaps = Thread::kTaps, kWidth = Thread::kWidth, kBatch = Thread::kBatch, kBefore = Thread::kBefore;
  constexpr int kRows = kBefore > 0 ? kBefore : 1, kWarps = P::warps, kLanes = 32;
  const Thread me;
  float dw[kTaps][kWidth] = {};
  if (me.exists()) {
    float w[kTaps][kWidth], before[kRows][kWidth];
    // dx of the last tokens, as far as it is known, oldest first; none is written that lies before `low`.
    float open[kRows][kWidth] = {};
    int low = me.first;
    me.load_taps(w, weight);
    const T *fromX = x + me.first * P::xRow + me.channel, *fromDy = dy + me.first * P::dyRow + me.channel;
    T *to = dx + me.first * P::dxRow + me.channel;
    // Rows token + j until they are used, then rows token + kBatch + j.
    Raw<T, kWidth> rowsX[kBatch], rowsDy[kBatch];
#pragma unroll
    for (int j = 0; j < kBatch; ++j)
      if (me.first + j < me.end) {
        rowsX[j] = load_raw<kWidth>(fromX + j * P::xRow);
        rowsDy[j] = load_raw<kWidth>(fromDy + j * P::dyRow);
      }
    me.load_before(before, x, P::xRow, seq[P::docStart + me.first]);
    int docEnd = seq[P::docEnd + me.first];

    // Writes what is open of the document that ends before `token`, which is row j.
    auto close = [&](int token, int j) {
#pragma unroll
      for (int k = 0; k < kBefore; ++k) {
        int at = token - kBefore + k;
        if (at >= low && at < me.end) store(to + (j - kBefore + k) * P::dxRow, open[k]);
      }
    };
    // Of dp, what row j gives to the rows that it has looked at. The first of them is complete, and one to write if `isOurs`.
    auto scatter = [&](bool isOurs, int j, const float (&dp)[kWidth]) {
      float done[kWidth];
      if constexpr (kBefore > 0) {
#pragma unroll
        for (int i = 0; i < kWidth; ++i) done[i] = fmaf(w[0][i], dp[i], open[0][i]);
#pragma unroll
        for (int k = 1; k < kBefore; ++k) {
#pragma unroll
          for (int i = 0; i < kWidth; ++i) open[k - 1][i] = fmaf(w[k][i], dp[i], open[k][i]);
        }
#pragma unroll
        for (int i = 0; i < kWidth; ++i) open[kRows - 1][i] = w[kTaps - 1][i] * dp[i];
      } else {
#pragma unroll
        for (int i = 0; i < kWidth; ++i) done[i] = w[0][i] * dp[i];
      }
      if (isOurs) store(to + (j - kBefore) * P::dxRow, done);
    };
    auto gradient = [&](float (&dp)[kWidth], const float (&now)[kWidth]) {
      float p[kWidth];
      convolve<kTaps>(p, w, before, now);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        float s = fast_sigmoid(p[i]);
        dp[i] *= fmaf(p[i], fmaf(-s, s, s), s);
      }
    };
    auto walk = [&](int token, int j, bool isOurs) {
      float dp[kWidth], now[kWidth];
      unpack(now, rowsX[j]);
      unpack(dp, rowsDy[j]);
      if (token + kBatch < me.end) {
        rowsX[j] = load_raw<kWidth>(fromX + (j + kBatch) * P::xRow);
        rowsDy[j] = load_raw<kWidth>(fromDy + (j + kBatch) * P::dyRow);
      }
      gradient(dp, now);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) dw[kTaps - 1][i] = fmaf(dp[i], now[i], dw[kTaps - 1][i]);
#pragma unroll
      for (int k = 0; k < kBefore; ++k) {
#pragma unroll
        for (int i = 0; i < kWidth; ++i) dw[k][i] = fmaf(dp[i], before[k][i], dw[k][i]);
      }
      scatter(isOurs, j, dp);
      if constexpr (kBefore > 0) push(before, now);
    };
    for (int token = me.first; token < me.end; token += kBatch) {
      if (token - kBefore >= low && token + kBatch <= min(me.end, docEnd)) {
#pragma unroll
        for (int j = 0; j < kBatch; ++j) walk(token + j, j, true);
      } else {
#pragma unroll
        for (int j = 0; j < kBatch; ++j) {
          if (token + j >= me.end) break;
          if (token + j == docEnd) {
            close(token + j, j);
            clear(before);
            clear(open);
            low = token + j;
            docEnd = seq[P::docEnd + token + j];
          }
          walk(token + j, j, token + j - kBefore >= low);
        }
      }
      fromX += kBatch * P::xRow;
      fromDy += kBatch * P::dyRow;
      to += kBatch * P::dxRow;
    }
    // The tokens behind the run that look at it.
    fromX = x + me.end * P::xRow + me.channel;
    fromDy = dy + me.end * P::dyRow + me.channel;
    to = dx + me.end * P::dxRow + me.channel;
    int behind = min(kBefore, docEnd - me.end);
#pragma unroll
    for (int k = 0; k < kBefore; ++k) {
      if (k >= behind) {
        close(me.end + k, k);
        break;
      }
      float dp[kWidth], now[kWidth];
      load(now, fromX + k * P::xRow);
      load(dp, fromDy + k * P::dyRow);
      gradient(dp, now);
      scatter(me.end + k - kBefore >= low, k, dp);
      push(before, now);
    }
  }

  __shared__ float shared[kWarps][kTaps][kLanes * kWidth];
#pragma unroll
  for (int k = 0; k < kTaps; ++k) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) shared[me.warp][k][me.lane * kWidth + i] = dw[k][i];
  }
  __syncthreads();
  float *partials = reinterpret_cast<float *>(workspace) + int64(me.runBlock) * kTaps * P::channels;
  for (int at = threadIdx.x; at < kTaps * kLanes * kWidth; at += kWarps * kLanes) {
    int k = at / (kLanes * kWidth), c = at % (kLanes * kWidth), channel = me.channelBlock * kLanes * kWidth + c;
    float total = 0;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) total += shared[warp][k][c];
    if (channel < P::channels) partials[k * P::channels + channel] = total;
  }
}

// Constants: those of sum_partials, channels, taps.
template <class P, class T>
Q35_DEVICE void causal_conv_bwd_sum(const T *, const T *, const float *, const int *, T *, float *dweight,
                                    const unsigned char *workspace) {
  sum_partials<P>(reinterpret_cast<const float *>(workspace), [&](int column, float total) {
    int k = column / int(P::channels), channel = column % int(P::channels);
    dweight[channel * int(P::taps) + k] = total;
  });
}

} // namespace q35
