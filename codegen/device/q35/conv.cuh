#pragma once
// causal_conv and its gradient: SiLU of a depthwise convolution inside each document; MODEL.md 4.3, 13.10. With cp_ they
// are those of a rank's stripes of a row: the rows before a stripe are the tail of another.
//
// A thread owns `width` neighbouring channels and walks down a run of tokens with the taps and the last rows in
// registers, so that it reads every row once. Where a document begins, it sets those rows to zero.
//
// Constants: tokens, channels, taps, width, run (tokens of a thread), batch (rows in flight), warps (runs of a block, whose
// lanes own 32 * width channels), channelBlocks, xRow, yRow, dyRow, dxRow, docStart and docEnd (words of the document
// table); of stripes also tailsRow and those of Stripes.
#include "q35/rows.cuh"
#include "q35/stripes.cuh"

namespace q35 {

// What lies before the segments of a rank: nothing, or tails of stripes [2 ranks][taps - 1][channels].
struct NoTails {
  static constexpr bool kExist = false;
};

template <class P, class T>
struct Tails {
  static constexpr bool kExist = true;
  const T *tails;
  Stripes<P> stripes;

  // The row `back` tokens before the segment that begins at `begin`, or null if it is of another document.
  Q35_DEVICE const T *row(int begin, int back) const {
    int j = begin / stripes.kRows;
    if (begin != j * stripes.kRows) return nullptr;
    int stripe = stripes.index(j);
    if (back > stripes.offset(stripe)) return nullptr;
    return tails + (int64(stripes.slot(stripe - 1) + 1) * (P::taps - 1) - back) * P::tailsRow;
  }
};

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

};

// The rows before `first` of N channels, oldest first; those of other documents are zero.
template <class P, int N, int Rows, class T, class Before>
Q35_DEVICE void load_before(float (&before)[Rows][N], const T *x, int64 row, int first, int docFirst, int channel,
                            const Before &tails) {
  constexpr int kBefore = int(P::taps) - 1;
#pragma unroll
  for (int k = 0; k < kBefore; ++k) {
    int token = first - kBefore + k;
    Raw<T, N> raw{};
    if (token >= docFirst) {
      raw = load_raw<N>(x + token * row + channel);
    } else if constexpr (Before::kExist) {
      if (const T *from = tails.row(docFirst, docFirst - token)) raw = load_raw<N>(from + channel);
    }
    unpack(before[k], raw);
  }
}

template <int N, int Rows>
Q35_DEVICE void clear(float (&rows)[Rows][N]) {
#pragma unroll
  for (int k = 0; k < Rows; ++k) {
#pragma unroll
    for (int i = 0; i < N; ++i) rows[k][i] = 0;
  }
}

// The rows before the first token of a segment.
template <class P, int N, int Rows, class T, class Before>
Q35_DEVICE void begin_document(float (&before)[Rows][N], const T *x, int token, int channel, const Before &tails) {
  if constexpr (Before::kExist)
    load_before<P>(before, x, P::xRow, token, token, channel, tails);
  else
    clear(before);
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

template <class P, class T, class Before>
Q35_DEVICE void convolve_runs(const T *x, const Before &tails, const float *weight, const int *seq, T *y) {
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
  load_before<P>(before, x, P::xRow, me.first, seq[P::docStart + me.first], me.channel, tails);
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
          begin_document<P>(before, x, token + j, me.channel, tails);
          docEnd = seq[P::docEnd + token + j];
        }
        walk(token + j, j);
      }
    }
    from += kBatch * P::xRow;
    to += kBatch * P::yRow;
  }
}

template <class P, class T>
Q35_DEVICE void causal_conv(const T *x, const float *weight, const int *seq, T *y) {
  convolve_runs<P>(x, NoTails(), weight, seq, y);
}

template <class P, class T>
Q35_DEVICE void cp_causal_conv(const T *x, const T *tails, const float *weight, const int *seq, const int *stripes,
                               T *y) {
  convolve_runs<P>(x, Tails<P, T>{tails, {stripes}}, weight, seq, y);
}

// silu'(p)
Q35_DEVICE float silu_slope(float p) {
  float s = fast_sigmoid(p);
  return fmaf(p, fmaf(-s, s, s), s);
}

// dp = dy * silu'(p): dx[s] = sum over k of w[k] * dp[s + taps - 1 - k] inside the document, and partials of
// dw[k] = sum over t of dp[t] * x[t - (taps - 1 - k)], which are [block of runs][tap][channel].
template <class P, class T, class Before>
Q35_DEVICE void convolve_runs_bwd(const T *dy, const T *x, const Before &tails, const float *weight, const int *seq,
                                  T *dx, unsigned char *workspace) {
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
    load_before<P>(before, x, P::xRow, me.first, seq[P::docStart + me.first], me.channel, tails);
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
      for (int i = 0; i < kWidth; ++i) dp[i] *= silu_slope(p[i]);
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
            begin_document<P>(before, x, token + j, me.channel, tails);
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

template <class P, class T>
Q35_DEVICE void causal_conv_bwd(const T *dy, const T *x, const float *weight, const int *seq, T *dx, float *,
                                unsigned char *workspace) {
  convolve_runs_bwd<P>(dy, x, NoTails(), weight, seq, dx, workspace);
}

template <class P, class T>
Q35_DEVICE void cp_causal_conv_bwd(const T *dy, const T *x, const T *tails, const float *weight, const int *seq,
                                   const int *stripes, T *dx, T *, float *, unsigned char *workspace) {
  convolve_runs_bwd<P>(dy, x, Tails<P, T>{tails, {stripes}}, weight, seq, dx, workspace);
}

// Constants: those of sum_partials, channels, taps.
template <class P>
Q35_DEVICE void sum_weight_gradient(float *dweight, const unsigned char *workspace) {
  sum_partials<P>(reinterpret_cast<const float *>(workspace), [&](int column, float total) {
    int k = column / int(P::channels), channel = column % int(P::channels);
    dweight[channel * int(P::taps) + k] = total;
  });
}

template <class P, class T>
Q35_DEVICE void causal_conv_bwd_sum(const T *, const T *, const float *, const int *, T *, float *dweight,
                                    const unsigned char *workspace) {
  sum_weight_gradient<P>(dweight, workspace);
}

// And in blocks from sumBlocks on dhalo, what the rows before each stripe get from its first tokens: a thread per channel.
// Constants also those of the stage before.
template <class P, class T>
Q35_DEVICE void cp_causal_conv_bwd_sum(const T *dy, const T *x, const T *tails, const float *weight, const int *seq,
                                       const int *stripes, T *, T *dhalo, float *dweight,
                                       const unsigned char *workspace) {
  if (blockIdx.x < P::sumBlocks) {
    sum_weight_gradient<P>(dweight, workspace);
    return;
  }
  constexpr int kTaps = P::taps, kHalo = kTaps - 1, kChannels = P::channels;
  int at = int((blockIdx.x - P::sumBlocks) * blockDim.x + threadIdx.x), j = at / kChannels, channel = at % kChannels;
  const Tails<P, T> before{tails, {stripes}};
  if (j >= before.stripes.kLocal) return;
  int begin = j * before.stripes.kRows, readers = seq[P::docEnd + begin] - begin;
  int known = before.stripes.before(begin);
  float w[kTaps][1], rows[kHalo][1], dp[kHalo];
#pragma unroll
  for (int k = 0; k < kTaps; ++k) w[k][0] = weight[int64(channel) * kTaps + k];
  load_before<P>(rows, x, P::xRow, begin, begin, channel, before);
#pragma unroll
  for (int r = 0; r < kHalo; ++r) {
    dp[r] = 0;
    if (r < readers) {
      int64 token = begin + r;
      float now[1] = {to_float(x[token * P::xRow + channel])}, p[1];
      convolve<kTaps>(p, w, rows, now);
      dp[r] = to_float(dy[token * P::dyRow + channel]) * silu_slope(p[0]);
      push(rows, now);
    }
  }
#pragma unroll
  for (int h = 0; h < kHalo; ++h) {
    float sum = 0;
#pragma unroll
    for (int r = 0; r <= h; ++r)
      if (r < readers) sum = fmaf(w[h - r][0], dp[r], sum);
    dhalo[(int64(j) * kHalo + h) * kChannels + channel] = from_float<T>(known >= kHalo - h ? sum : 0.0f);
  }
}

} // namespace q35
