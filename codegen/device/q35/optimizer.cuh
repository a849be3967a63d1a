#pragma once
#include "q35/lists.cuh"

// The end of a step: global norm in f64, clip factor, AdamW.

namespace q35 {

// Squares of this thread's share of x: vectors of four, gridDim.x * Threads apart, and the elements behind the last.
// P: vectors, tail.
template <class P, int Threads>
Q35_DEVICE double squares(const float *x) {
  constexpr int batch = 4;
  int64 stride = int64(gridDim.x) * Threads, first = int64(blockIdx.x) * Threads + threadIdx.x;
  double sum[2] = {0, 0};
  for (int64 at = first; at < P::vectors; at += batch * stride) {
    float value[batch][4];
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      if (at + i * stride < P::vectors) {
        load(value[i], x + (at + i * stride) * 4);
      } else {
#pragma unroll
        for (int e = 0; e < 4; ++e) value[i][e] = 0;
      }
    }
#pragma unroll
    for (int i = 0; i < batch; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        double wide = value[i][e];
        sum[e % 2] += wide * wide;
      }
  }
  if (first < P::tail) {
    double wide = x[P::vectors * 4 + first];
    sum[0] += wide * wide;
  }
  return sum[0] + sum[1];
}

// result = acc + sum of x^2, of a tensor that one block reads.
template <class P>
Q35_DEVICE void norm_sq(const float *x, const double *acc, double *result) {
  double total = block_sum_f64<P::threads>(squares<P, P::threads>(x));
  if (threadIdx.x == 0) *result = *acc + total;
}

// The same in two stages: a partial sum per block, then their sum in order.
template <class P>
Q35_DEVICE void norm_sq_parts(const float *x, const double *, double *, unsigned char *workspace) {
  double total = block_sum_f64<P::threads>(squares<P, P::threads>(x));
  if (threadIdx.x == 0) reinterpret_cast<double *>(workspace)[blockIdx.x] = total;
}

// P: parts.
template <class P>
Q35_DEVICE void norm_sq_total(const float *, const double *acc, double *result, unsigned char *workspace) {
  double sum = 0;
  for (int64 i = threadIdx.x; i < P::parts; i += P::threads) sum += reinterpret_cast<const double *>(workspace)[i];
  double total = block_sum_f64<P::threads>(sum);
  if (threadIdx.x == 0) *result = *acc + total;
}

// result = acc + the sum of x^2 over P::lists tensors + P::sums sums that others made: Arguments are the tensors, the sums,
// acc, result, workspace. Pieces of four vectors per thread; a block takes those gridDim.x apart. Tables: ends, elements.
template <class P, int N>
Q35_DEVICE void norm_sq_list_parts(const Arguments<N> &a) {
  constexpr int batch = 4, threads = P::threads, pieces = P::pieces;
  double sum[2] = {0, 0};
  int list = list_of<P>(blockIdx.x), first = list == 0 ? 0 : P::ends(list - 1);
  int64 size = P::elements(list);
  const float *x = a.template get<const float>(list);
  for (int piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
    if (piece >= P::ends(list)) {
      do ++list;
      while (piece >= P::ends(list));
      first = P::ends(list - 1);
      size = P::elements(list);
      x = a.template get<const float>(list);
    }
    int64 at = (piece - first) * int64(batch * threads * 4) + threadIdx.x * 4;
    float value[batch][4];
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      int64 from = at + i * (threads * 4);
      if (from + 4 <= size) {
        load(value[i], x + from);
      } else {
#pragma unroll
        for (int e = 0; e < 4; ++e) value[i][e] = from + e < size ? x[from + e] : 0.0f;
      }
    }
#pragma unroll
    for (int i = 0; i < batch; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        double wide = value[i][e];
        sum[e % 2] += wide * wide;
      }
  }
  double total = block_sum_f64<threads>(sum[0] + sum[1]);
  if (threadIdx.x == 0) a.template get<double>(P::lists + P::sums + 2)[blockIdx.x] = total;
}

template <class P, int N>
Q35_DEVICE void norm_sq_list_total(const Arguments<N> &a) {
  constexpr int sums = P::sums, acc = P::lists + sums;
  double sum = 0;
  for (int64 i = threadIdx.x; i < P::parts; i += P::threads) sum += a.template get<const double>(acc + 2)[i];
  for (int i = threadIdx.x; i < sums; i += P::threads) sum += *a.template get<const double>(P::lists + i);
  double total = block_sum_f64<P::threads>(sum);
  if (threadIdx.x == 0) *a.template get<double>(acc + 1) = *a.template get<const double>(acc) + total;
}

// norm = sqrt(norm_sq); factor = min(1, max_norm / (norm + 1e-6)), 1 where max_norm is 0; commit = 1 if norm is finite,
// else 0 and factor 0. P: maxNorm, a double.
template <class P>
Q35_DEVICE void clip_factor(const double *normSq, float *norm, float *factor, float *commit) {
  if (threadIdx.x > 0) return;
  double wide = sqrt(*normSq), limited = 1;
  float narrow = float(wide);
  bool finite = narrow <= 0x1.fffffep127f; // Once rounded to f32.
  if (P::maxNorm > 0) limited = fmin(P::maxNorm / (wide + 1e-6), 1.0);
  *norm = narrow;
  *factor = finite ? float(limited) : 0.0f;
  *commit = finite ? 1.0f : 0.0f;
}

struct NoCopy {};

Q35_DEVICE void store_copy(NoCopy, int64, const float (&)[4]) {}
Q35_DEVICE void store_copy(bf16 *to, int64 at, const float (&value)[4]) { store(to + at, value); }
Q35_DEVICE void store_copy(NoCopy, int64, float) {}
Q35_DEVICE void store_copy(bf16 *to, int64 at, float value) { to[at] = from_float<bf16>(value); }

// torch.optim.AdamW with c = g * factor:
//   m' = beta1 m + (1 - beta1) c, v' = beta2 v + (1 - beta2) c^2
//   p' = p (1 - lr weight_decay) - lr (m' / bc1) / (sqrt(v' / bc2) + eps)
// or the operands bit for bit when commit is 0. P: beta1, beta2, rest1 = 1 - beta1, rest2, eps, weightDecay.
template <class P>
struct AdamwUpdate {
  float decay, rate, scale2, clip;
  bool commits;

  Q35_DEVICE AdamwUpdate(const float *lr, const float *factor, const float *bc1, const float *bc2, const float *commit)
      : decay(1.0f - *lr * P::weightDecay), rate(*lr / *bc1), scale2(1.0f / *bc2), clip(*factor),
        commits(*commit != 0.0f) {}

  Q35_DEVICE void operator()(float &p, float &m, float &v, float g) const {
    float c = g * clip;
    float m1 = m * P::beta1 + c * P::rest1, v1 = v * P::beta2 + c * c * P::rest2;
    float p1 = p * decay - m1 * rate / (sqrtf(v1 * scale2) + P::eps);
    p = commits ? p1 : p;
    m = commits ? m1 : m;
    v = commits ? v1 : v;
  }
};

// Of one tensor; copy = p', rounded. P: also vectors of four, tail.
template <class P, class Copy>
Q35_DEVICE void adamw_with(const float *p, const float *m, const float *v, const float *g, const float *lr,
                           const float *factor, const float *bc1, const float *bc2, const float *commit, float *newP,
                           float *newM, float *newV, Copy copy) {
  int64 vector = int64(blockIdx.x) * blockDim.x + threadIdx.x;
  AdamwUpdate<P> step(lr, factor, bc1, bc2, commit);
  if (vector < P::vectors) {
    int64 at = vector * 4;
    float p4[4], m4[4], v4[4], g4[4];
    load(p4, p + at);
    load(m4, m + at);
    load(v4, v + at);
    load(g4, g + at);
#pragma unroll
    for (int e = 0; e < 4; ++e) step(p4[e], m4[e], v4[e], g4[e]);
    store(newP + at, p4);
    store(newM + at, m4);
    store(newV + at, v4);
    store_copy(copy, at, p4);
  }
  if (vector < P::tail) {
    int64 at = P::vectors * 4 + vector;
    float p1 = p[at], m1 = m[at], v1 = v[at];
    step(p1, m1, v1, g[at]);
    newP[at] = p1;
    newM[at] = m1;
    newV[at] = v1;
    store_copy(copy, at, p1);
  }
}

template <class P>
Q35_DEVICE void adamw(const float *p, const float *m, const float *v, const float *g, const float *lr,
                      const float *factor, const float *bc1, const float *bc2, const float *commit, float *newP,
                      float *newM, float *newV) {
  adamw_with<P>(p, m, v, g, lr, factor, bc1, bc2, commit, newP, newM, newV, NoCopy());
}

template <class P>
Q35_DEVICE void adamw(const float *p, const float *m, const float *v, const float *g, const float *lr,
                      const float *factor, const float *bc1, const float *bc2, const float *commit, float *newP,
                      float *newM, float *newV, bf16 *copy) {
  adamw_with<P>(p, m, v, g, lr, factor, bc1, bc2, commit, newP, newM, newV, copy);
}

// Of P::lists tensors, a piece of P::batch vectors per thread by each block. Arguments: p, m, v and g of all, lr, factor,
// bc1, bc2, commit, then the new p, m and v and, where P::copies, the copies. Tables: ends, elements.
template <class P, int N>
Q35_DEVICE void adamw_list(const Arguments<N> &a) {
  constexpr int lists = P::lists, scalars = 4 * lists, results = scalars + 5, batch = P::batch, threads = P::threads;
  int list = list_of<P>(blockIdx.x);
  int64 size = P::elements(list);
  int64 first = (blockIdx.x - (list == 0 ? 0 : P::ends(list - 1))) * int64(batch * threads * 4) + threadIdx.x * 4;
  auto old = [&](int role) { return a.template get<const float>(role * lists + list); };
  auto made = [&](int role) { return a.template get<float>(results + role * lists + list); };
  auto scalar = [&](int i) { return a.template get<const float>(scalars + i); };
  const float *p = old(0), *m = old(1), *v = old(2), *g = old(3);
  float *newP = made(0), *newM = made(1), *newV = made(2);
  AdamwUpdate<P> step(scalar(0), scalar(1), scalar(2), scalar(3), scalar(4));
  auto storeCopy = [&](int64 at, const auto &value) {
    if constexpr (P::copies) store_copy(a.template get<bf16>(results + 3 * lists + list), at, value);
  };

  float p4[batch][4], m4[batch][4], v4[batch][4], g4[batch][4];
#pragma unroll
  for (int i = 0; i < batch; ++i)
    if (int64 at = first + i * (threads * 4); at + 4 <= size) {
      load(p4[i], p + at);
      load(m4[i], m + at);
      load(v4[i], v + at);
      load(g4[i], g + at);
    }
#pragma unroll
  for (int i = 0; i < batch; ++i) {
    int64 at = first + i * (threads * 4);
    if (at + 4 <= size) {
#pragma unroll
      for (int e = 0; e < 4; ++e) step(p4[i][e], m4[i][e], v4[i][e], g4[i][e]);
      store(newP + at, p4[i]);
      store(newM + at, m4[i]);
      store(newV + at, v4[i]);
      storeCopy(at, p4[i]);
    } else {
#pragma unroll 1
      for (; at < size; ++at) { // Fewer than four.
        float p1 = p[at], m1 = m[at], v1 = v[at];
        step(p1, m1, v1, g[at]);
        newP[at] = p1;
        newM[at] = m1;
        newV[at] = v1;
        storeCopy(at, p1);
      }
    }
  }
}

} // namespace q35
