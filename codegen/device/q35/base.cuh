#pragma once
// What every kernel starts from: types, conversions, vector access, and sums over warps and blocks in a fixed order.
//
// Kernels include only q35/ headers, and inline assembly lives in these alone: with Q35_EMULATE the same kernels compile
// as host C++ (q35/emulate.h), where every block runs as a set of fibers.

#ifdef Q35_EMULATE
#include "q35/emulate.h"
#else
#define Q35_DEVICE __device__ __forceinline__
#define Q35_CHECKED
#endif

namespace q35 {

using int64 = long long;
using uint = unsigned int;
using ushort = unsigned short;

// A bfloat16 in memory. Arithmetic is done in float.
struct alignas(2) bf16 {
  ushort bits;
};

// N elements that load and store in accesses of up to 16 bytes.
template <class T, int N>
struct alignas(sizeof(T) * N > 16 ? 16 : sizeof(T) * N) Vec {
  T v[N];
  Q35_CHECKED // emulated: the alignment of loads and stores
};

// How many elements of T make 16 bytes.
template <class T>
constexpr int kVec = 16 / sizeof(T);

#ifndef Q35_EMULATE
Q35_DEVICE float bits_to_float(uint bits) { return __uint_as_float(bits); }
Q35_DEVICE uint float_to_bits(float value) { return __float_as_uint(value); }

Q35_DEVICE ushort round_to_bf16_bits(float value) {
  ushort bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}

// Low half: lo.
Q35_DEVICE uint pack_bf16(float lo, float hi) {
  uint bits;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(hi), "f"(lo));
  return bits;
}

// 1 / x, within an ulp; 0 for infinity.
Q35_DEVICE float fast_rcp(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

Q35_DEVICE float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// The dynamic shared memory of the block, 1024-byte aligned.
Q35_DEVICE unsigned char *shared_memory() {
  extern __shared__ __align__(1024) unsigned char q35_shared[];
  return q35_shared;
}
#else
Q35_DEVICE float fast_rcp(float x) { return 1.0f / x; }
#endif

Q35_DEVICE float to_float(float x) { return x; }
Q35_DEVICE float to_float(bf16 x) { return bits_to_float(uint(x.bits) << 16); }

template <class T>
Q35_DEVICE T from_float(float x);
template <>
Q35_DEVICE float from_float<float>(float x) { return x; }
template <>
Q35_DEVICE double from_float<double>(float x) { return x; }
template <>
Q35_DEVICE bf16 from_float<bf16>(float x) { return bf16{round_to_bf16_bits(x)}; }

// N elements as they are in memory, in whole registers: what a kernel keeps of loads that it does not need yet.
template <class T, int N>
struct Raw {
  static constexpr int kBytes = sizeof(T) * N, kWords = (kBytes + 3) / 4;
  uint word[kWords];
};

// `from` must be aligned to the vector, at most 16 bytes.
template <int N, class T>
Q35_DEVICE Raw<T, N> load_raw(const T *from) {
  using R = Raw<T, N>;
  R to;
  if constexpr (R::kBytes == 2) {
    to.word[0] = from->bits;
  } else {
    static_assert(R::kBytes % 4 == 0);
    auto vec = *reinterpret_cast<const Vec<uint, R::kWords> *>(from);
#pragma unroll
    for (int i = 0; i < R::kWords; ++i) to.word[i] = vec.v[i];
  }
  return to;
}

template <int N>
Q35_DEVICE void unpack(float (&to)[N], const Raw<float, N> &from) {
#pragma unroll
  for (int i = 0; i < N; ++i) to[i] = bits_to_float(from.word[i]);
}

template <int N>
Q35_DEVICE void unpack(float (&to)[N], const Raw<bf16, N> &from) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
    uint word = from.word[i / 2];
    to[i] = bits_to_float(i % 2 ? word & 0xffff0000u : word << 16);
  }
}

// `from` must be aligned to the vector, at most 16 bytes.
template <int N, class T>
Q35_DEVICE void load(float (&to)[N], const T *from) {
  unpack(to, load_raw<N>(from));
}

template <int N, class T>
Q35_DEVICE void store(T *to, const float (&from)[N]) {
  Vec<T, N> vec;
#pragma unroll
  for (int i = 0; i < N; ++i) vec.v[i] = from_float<T>(from[i]);
  *reinterpret_cast<Vec<T, N> *>(to) = vec;
}

// Sum over groups of `Lanes` consecutive lanes; every lane gets it.
template <int Lanes = 32>
Q35_DEVICE float warp_sum(float x) {
#pragma unroll
  for (int step = Lanes / 2; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
}

template <int Lanes = 32>
Q35_DEVICE float warp_max(float x) {
#pragma unroll
  for (int step = Lanes / 2; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
  return x;
}

// Sum over a block of `Threads`; every thread gets it. `scratch` holds Threads / 32 floats and may be reused after the
// next __syncthreads().
template <int Threads>
Q35_DEVICE float block_sum(float x, float *scratch) {
  x = warp_sum(x);
  if constexpr (Threads == 32) return x;
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = x;
  __syncthreads();
  float total = 0;
#pragma unroll
  for (int w = 0; w < Threads / 32; ++w) total += scratch[w];
  __syncthreads();
  return total;
}

template <int Lanes = 32>
Q35_DEVICE double warp_sum_f64(double x) {
#pragma unroll
  for (int step = Lanes / 2; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
}

// Sum over a block of `Threads` in a fixed order; thread 0 gets it. Once in a kernel.
template <int Threads>
Q35_DEVICE double block_sum_f64(double x) {
  __shared__ double sums[Threads / 32];
  x = warp_sum_f64(x);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = x;
  __syncthreads();
  double total = 0;
#pragma unroll
  for (int w = 0; w < Threads / 32; ++w) total += sums[w];
  return total;
}

// Within a few units in the last place of the exponent: kernels of one pass over memory have no time for more.
Q35_DEVICE float sigmoid(float x) { return __fdividef(1.0f, 1.0f + fast_exp2(x * -1.44269504f)); }
Q35_DEVICE float silu(float x) { return x * sigmoid(x); }

// In six instructions, for kernels that issue little else: a relative error of 1e-6 at |x| = 10.
Q35_DEVICE float fast_sigmoid(float x) { return fast_rcp(1.0f + fast_exp2(x * -1.44269504088896f)); }

} // namespace q35
