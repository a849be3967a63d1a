#pragma once
#include "q35/matmul.cuh"

// Cross entropy of a linear head. The logits of a chunk of tokens exist at a time, in rows of P::ldl elements of the type
// of h at the start of the workspace: a product writes them, a kernel below reads them, or turns them into their gradient
// in place for two more products.
//
// P holds threads, vocab, ldl (a multiple of 8), first (token of the chunk), allTokens, and nll: the offset in bytes of a
// float per token in the workspace.
//
// lm_stats.. is the head of one rank, whose rows are a part: labels count from its first row, -1 is a row of another rank.

namespace q35 {

constexpr int kIgnoredLabel = -100;
constexpr float kLog2E = 1.44269504f;

template <class P>
Q35_DEVICE float *loss_nll(unsigned char *workspace) { return reinterpret_cast<float *>(workspace + P::nll); }

// The largest of a row so far, and the sum of exponentials relative to it.
struct Softmax {
  float most, sum;

  template <int N>
  Q35_DEVICE void add(const float (&x)[N]) {
    float now = most;
#pragma unroll
    for (int i = 0; i < N; ++i) now = fmaxf(now, x[i]);
    float more = 0;
#pragma unroll
    for (int i = 0; i < N; ++i) more += fast_exp2((x[i] - now) * kLog2E);
    sum = sum * fast_exp2((most - now) * kLog2E) + more;
    most = now;
  }
};

// Of the whole block, in a fixed order; every thread gets it. Threads without elements have the largest -inf and sum 0.
template <int Threads>
Q35_DEVICE Softmax block_softmax(Softmax mine) {
  __shared__ float scratch[Threads / 32], most[Threads / 32];
  float largest = warp_max(mine.most);
  if (threadIdx.x % 32 == 0) most[threadIdx.x / 32] = largest;
  __syncthreads();
  largest = most[0];
#pragma unroll
  for (int w = 1; w < Threads / 32; ++w) largest = fmaxf(largest, most[w]);
  return {largest, block_sum<Threads>(mine.sum * fast_exp2((mine.most - largest) * kLog2E), scratch)};
}

// Rows are walked in steps of one vector per thread; batches of steps are loaded before the first is used. Steps that do
// not fill a batch, or the block, and elements behind the last vector follow one by one.
template <class P, class T>
struct RowSteps {
  static constexpr int n = kVec<T>, batch = 4, threads = P::threads, vectors = int(P::vocab) / n;
  static constexpr int rounds = vectors / (threads * batch), steps = (vectors + threads - 1) / threads;
};

// Adds the row to what a thread has. The vectors of the first `Cached` steps are kept in `cache`, for the same thread.
template <class P, int Cached, class T>
Q35_DEVICE Softmax read_row(const T *row, Vec<T, kVec<T>> *cache) {
  using Steps = RowSteps<P, T>;
  using Vector = Vec<T, Steps::n>;
  Softmax mine{bits_to_float(0xFF800000u), 0};
  auto use = [&](int step, const Vector &vector) {
    if (step < Cached) cache[step * Steps::threads + threadIdx.x] = vector;
    float x[Steps::n];
    load(x, vector.v);
    mine.add(x);
  };
  auto at = [&](int step) { return reinterpret_cast<const Vector *>(row) + step * Steps::threads + threadIdx.x; };
  for (int round = 0; round < Steps::rounds; ++round) {
    Vector vector[Steps::batch];
#pragma unroll
    for (int i = 0; i < Steps::batch; ++i) vector[i] = *at(round * Steps::batch + i);
#pragma unroll
    for (int i = 0; i < Steps::batch; ++i) use(round * Steps::batch + i, vector[i]);
  }
  for (int step = Steps::rounds * Steps::batch; step < Steps::steps; ++step)
    if (step * Steps::threads + int(threadIdx.x) < Steps::vectors) use(step, *at(step));
  if constexpr (P::vocab % Steps::n != 0) {
    if (int last = Steps::vectors * Steps::n + threadIdx.x; last < int(P::vocab)) {
      float x[1] = {to_float(row[last])};
      mine.add(x);
    }
  }
  return mine;
}

// A block per row: the loss of its token.
template <class P, class T>
Q35_DEVICE void loss_row(const T *, const int *labels, unsigned char *workspace) {
  int row = blockIdx.x, token = int(P::first) + row, label = labels[token];
  if (label == kIgnoredLabel) {
    if (threadIdx.x == 0) loss_nll<P>(workspace)[token] = 0;
    return;
  }
  const T *logits = reinterpret_cast<const T *>(workspace) + row * int64(P::ldl);
  Softmax all = block_softmax<P::threads>(read_row<P, 0>(logits, static_cast<Vec<T, kVec<T>> *>(nullptr)));
  if (threadIdx.x == 0) loss_nll<P>(workspace)[token] = all.most + logf(all.sum) - to_float(logits[label]);
}

// A block per row: its loss, then dlogits = (softmax - onehot) * inv_count in place of the logits, 0 for a label that is
// ignored. P::cached steps of the row stay in shared memory between the two; the rest is read again while it is in L2.
template <class P, class T>
Q35_DEVICE void loss_gradient_row(const T *, const int *labels, const float *invCount, unsigned char *workspace) {
  using Steps = RowSteps<P, T>;
  using Vector = Vec<T, Steps::n>;
  constexpr int cached = P::cached;
  int row = blockIdx.x, token = int(P::first) + row, label = labels[token];
  T *logits = reinterpret_cast<T *>(workspace) + row * int64(P::ldl);
  auto at = [&](int step) { return reinterpret_cast<Vector *>(logits) + step * Steps::threads + threadIdx.x; };
  int last = Steps::vectors * Steps::n + threadIdx.x; // Behind the vectors.
  if (label == kIgnoredLabel) {
    for (int step = 0; step < Steps::steps; ++step)
      if (step * Steps::threads + int(threadIdx.x) < Steps::vectors) *at(step) = Vector{};
    if (last < int(P::vocab)) logits[last] = T{};
    if (threadIdx.x == 0) loss_nll<P>(workspace)[token] = 0;
    return;
  }
  auto *cache = reinterpret_cast<Vector *>(shared_memory());
  Softmax mine = read_row<P, cached>(logits, cache);
  float target = to_float(logits[label]), one = *invCount;
  Softmax all = block_softmax<P::threads>(mine); // Behind it nobody reads the target any more.
  float scale = one / all.sum;
  auto gradient = [&](float x) { return fast_exp2((x - all.most) * kLog2E) * scale; };
  auto put = [&](int step, const Vector &vector) {
    float x[Steps::n];
    load(x, vector.v);
#pragma unroll
    for (int i = 0; i < Steps::n; ++i) x[i] = gradient(x[i]);
    store(reinterpret_cast<T *>(at(step)), x);
  };
  // From the end, which was read last.
  if (last < int(P::vocab)) logits[last] = from_float<T>(gradient(to_float(logits[last])));
  for (int step = Steps::steps - 1; step >= Steps::rounds * Steps::batch; --step)
    if (step * Steps::threads + int(threadIdx.x) < Steps::vectors)
      put(step, step < cached ? cache[step * Steps::threads + threadIdx.x] : *at(step));
  for (int round = Steps::rounds - 1; round >= 0; --round) {
    Vector vector[Steps::batch];
#pragma unroll
    for (int i = 0; i < Steps::batch; ++i) {
      int step = round * Steps::batch + i;
      vector[i] = step < cached ? cache[step * Steps::threads + threadIdx.x] : *at(step);
    }
#pragma unroll
    for (int i = 0; i < Steps::batch; ++i) put(round * Steps::batch + i, vector[i]);
  }
  __syncthreads();
  if (threadIdx.x > 0) return;
  logits[label] = from_float<T>(gradient(target) - one);
  loss_nll<P>(workspace)[token] = all.most + logf(all.sum) - target;
}

// One block: the sum of all tokens' losses in f64, then times inv_count.
template <class P, class Nll>
Q35_DEVICE void sum_losses(Nll nll, const float *invCount, float *loss) {
  constexpr int threads = P::threads;
  __shared__ double sums[threads];
  double sum = 0;
  for (int token = threadIdx.x; token < int(P::allTokens); token += threads) sum += nll(token);
  sums[threadIdx.x] = sum;
#pragma unroll
  for (int half = threads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (int(threadIdx.x) < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  if (threadIdx.x == 0) *loss = float(sums[0] * *invCount);
}

template <class P>
Q35_DEVICE void loss_total(const float *invCount, float *loss, unsigned char *workspace) {
  const float *nll = loss_nll<P>(workspace);
  sum_losses<P>([=](int token) { return nll[token]; }, invCount, loss);
}

template <class P>
Q35_DEVICE void lm_stats_loss(const int *labels, const float *invCount, const float *highest, const float *sum,
                              const float *target, float *loss) {
  sum_losses<P>(
      [=](int token) {
        return labels[token] == kIgnoredLabel ? 0.0f : highest[token] + logf(sum[token]) - target[token];
      },
      invCount, loss);
}

// A block per row: its statistics over the rows of this rank.
template <class P, class T>
Q35_DEVICE void stats_row(const int *labels, float *highest, float *sum, float *target, unsigned char *workspace) {
  int row = blockIdx.x, token = int(P::first) + row, label = labels[token];
  const T *logits = reinterpret_cast<const T *>(workspace) + row * int64(P::ldl);
  Softmax all = block_softmax<P::threads>(read_row<P, 0>(logits, static_cast<Vec<T, kVec<T>> *>(nullptr)));
  if (threadIdx.x > 0) return;
  highest[token] = all.most;
  sum[token] = all.sum;
  target[token] = label >= 0 ? to_float(logits[label]) : 0;
}

// A block per row: the gradient in place of the logits, from the statistics of all ranks; 0 for a label that is ignored.
template <class P, class T>
Q35_DEVICE void stats_gradient_row(const int *labels, const float *invCount, const float *highest, const float *sum,
                                   unsigned char *workspace) {
  using Steps = RowSteps<P, T>;
  using Vector = Vec<T, Steps::n>;
  int row = blockIdx.x, token = int(P::first) + row, label = labels[token];
  T *logits = reinterpret_cast<T *>(workspace) + row * int64(P::ldl);
  float one = *invCount, most = highest[token], scale = one / sum[token];
  auto gradient = [&](float x) { return label == kIgnoredLabel ? 0.0f : fast_exp2((x - most) * kLog2E) * scale; };
  float own = label >= 0 ? gradient(to_float(logits[label])) - one : 0;
  __syncthreads(); // Behind it nobody reads the target any more.
  auto at = [&](int step) { return reinterpret_cast<Vector *>(logits) + step * Steps::threads + threadIdx.x; };
  auto put = [&](int step, const Vector &vector) {
    float x[Steps::n];
    load(x, vector.v);
#pragma unroll
    for (int i = 0; i < Steps::n; ++i) x[i] = gradient(x[i]);
    store(reinterpret_cast<T *>(at(step)), x);
  };
  for (int round = 0; round < Steps::rounds; ++round) {
    Vector vector[Steps::batch];
#pragma unroll
    for (int i = 0; i < Steps::batch; ++i) vector[i] = *at(round * Steps::batch + i);
#pragma unroll
    for (int i = 0; i < Steps::batch; ++i) put(round * Steps::batch + i, vector[i]);
  }
  for (int step = Steps::rounds * Steps::batch; step < Steps::steps; ++step)
    if (step * Steps::threads + int(threadIdx.x) < Steps::vectors) put(step, *at(step));
  if (int last = Steps::vectors * Steps::n + threadIdx.x; last < int(P::vocab))
    logits[last] = from_float<T>(gradient(to_float(logits[last])));
  __syncthreads();
  if (threadIdx.x == 0 && label >= 0) logits[label] = from_float<T>(own);
}

// Where a target has no library: the three products, see matmul_tile.

template <class P, class T>
Q35_DEVICE void loss_logits(const T *h, const T *w, unsigned char *workspace) {
  matmul_tile<T, false, true, P::vectorA, P::vectorB>(h + P::first * P::lda, w, NoAddend(),
                                                      reinterpret_cast<T *>(workspace), P::m, P::n, P::k, P::lda, P::ldb,
                                                      0, P::ldd);
}

// Kernels as launched: lm_loss(h, w, labels, inv_count; loss), lm_loss_grad(..; loss, dh, dw) and with {accumulate} also
// acc, to which dw is added.

#define Q35_LOSS_KERNEL(name, call) \
  template <class P, class T> \
  Q35_DEVICE void name(const T *h, const T *w, const int *labels, const float *invCount, float *loss, \
                       unsigned char *workspace) { \
    call; \
  } \
  template <class P, class T> \
  Q35_DEVICE void name(const T *h, const T *w, const int *labels, const float *invCount, float *loss, T *dh, float *dw, \
                       unsigned char *workspace) { \
    call; \
  } \
  template <class P, class T> \
  Q35_DEVICE void name(const T *h, const T *w, const int *labels, const float *invCount, const float *, float *loss, \
                       T *dh, float *dw, unsigned char *workspace) { \
    call; \
  }
Q35_LOSS_KERNEL(lm_loss_logits, (loss_logits<P>(h, w, workspace)))
Q35_LOSS_KERNEL(lm_loss_row, (loss_row<P>(h, labels, workspace)))
Q35_LOSS_KERNEL(lm_loss_gradient, (loss_gradient_row<P>(h, labels, invCount, workspace)))
Q35_LOSS_KERNEL(lm_loss_total, (loss_total<P>(invCount, loss, workspace)))
#undef Q35_LOSS_KERNEL

template <class P, class T>
Q35_DEVICE void loss_dh(const T *w, T *dh, unsigned char *workspace) {
  matmul_tile<T, false, false, P::vectorA, P::vectorB>(reinterpret_cast<const T *>(workspace), w, NoAddend(),
                                                       dh + P::first * P::ldd, P::m, P::n, P::k, P::lda, P::ldb, 0,
                                                       P::ldd);
}

template <class P, class T, class C>
Q35_DEVICE void loss_dw(const T *h, C acc, float *dw, unsigned char *workspace) {
  matmul_tile<T, true, false, P::vectorA, P::vectorB>(reinterpret_cast<const T *>(workspace), h + P::first * P::ldb, acc,
                                                      dw, P::m, P::n, P::k, P::lda, P::ldb, P::ldc, P::ldd);
}

// Of the first chunk, or added to that of those before.
template <class P, class T>
Q35_DEVICE void loss_first_dw(const T *h, float *dw, unsigned char *workspace) {
  if constexpr (P::first == 0)
    loss_dw<P>(h, NoAddend(), dw, workspace);
  else
    loss_dw<P>(h, static_cast<const float *>(dw), dw, workspace);
}

template <class P, class T>
Q35_DEVICE void lm_loss_dh(const T *, const T *w, const int *, const float *, float *, T *dh, float *,
                           unsigned char *workspace) {
  loss_dh<P>(w, dh, workspace);
}
template <class P, class T>
Q35_DEVICE void lm_loss_dh(const T *, const T *w, const int *, const float *, const float *, float *, T *dh, float *,
                           unsigned char *workspace) {
  loss_dh<P>(w, dh, workspace);
}

template <class P, class T>
Q35_DEVICE void lm_loss_dw(const T *h, const T *, const int *, const float *, float *, T *, float *dw,
                           unsigned char *workspace) {
  loss_first_dw<P>(h, dw, workspace);
}
template <class P, class T>
Q35_DEVICE void lm_loss_dw(const T *h, const T *, const int *, const float *, const float *acc, float *, T *, float *dw,
                           unsigned char *workspace) {
  loss_dw<P>(h, P::first == 0 ? acc : dw, dw, workspace);
}

// lm_stats(h, w, labels; highest, sum, target), lm_stats_grad(h, w, labels, inv_count, highest, sum; dh, dw) and with
// {accumulate} also acc.

#define Q35_STATS_KERNEL(name, call) \
  template <class P, class T> \
  Q35_DEVICE void lm_stats_##name(const T *h, const T *w, const int *labels, float *highest, float *sum, float *target, \
                                  unsigned char *workspace) { \
    call; \
  }
Q35_STATS_KERNEL(logits, (loss_logits<P>(h, w, workspace)))
Q35_STATS_KERNEL(row, (stats_row<P, T>(labels, highest, sum, target, workspace)))
#undef Q35_STATS_KERNEL

#define Q35_STATS_GRAD_KERNEL(name, plain, accumulating) \
  template <class P, class T> \
  Q35_DEVICE void lm_stats_grad_##name(const T *h, const T *w, const int *labels, const float *invCount, \
                                       const float *highest, const float *sum, T *dh, float *dw, \
                                       unsigned char *workspace) { \
    plain; \
  } \
  template <class P, class T> \
  Q35_DEVICE void lm_stats_grad_##name(const T *h, const T *w, const int *labels, const float *invCount, \
                                       const float *highest, const float *sum, const float *acc, T *dh, float *dw, \
                                       unsigned char *workspace) { \
    accumulating; \
  }
Q35_STATS_GRAD_KERNEL(logits, (loss_logits<P>(h, w, workspace)), (loss_logits<P>(h, w, workspace)))
Q35_STATS_GRAD_KERNEL(gradient, (stats_gradient_row<P, T>(labels, invCount, highest, sum, workspace)),
                      (stats_gradient_row<P, T>(labels, invCount, highest, sum, workspace)))
Q35_STATS_GRAD_KERNEL(dh, (loss_dh<P>(w, dh, workspace)), (loss_dh<P>(w, dh, workspace)))
Q35_STATS_GRAD_KERNEL(dw, (loss_first_dw<P>(h, dw, workspace)), (loss_dw<P>(h, P::first == 0 ? acc : dw, dw, workspace)))
#undef Q35_STATS_GRAD_KERNEL

} // namespace q35
