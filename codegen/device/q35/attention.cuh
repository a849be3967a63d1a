#pragma once
#include "q35/mma.cuh"

// Causal attention inside documents, grouped query heads: kernels for any GPU. A warp owns 16 rows of a product and keeps
// them in registers as fragments of mma m16n8k16 (q35/mma.cuh), probabilities included: they are the first operand of the
// next product as they are. With T = float the same fragments are filled by fused multiply-adds in fp32.
//
// Blocks restart at documents, so that no row of one document is an operand of another: zero times NaN is NaN. The grid
// has room for one broken block per document; blocks without rows return.
//
// P: size (of a head, a multiple of 16), heads, group (query heads per key head), tokens, blocks (of rows) and rows, keys
// of a tile; scale; <x>Token and <x>Head, the strides of operand x; vectors: 16-byte accesses are aligned.

namespace q35 {
namespace attn {

constexpr float kLog2e = 1.4426950408889634f, kLn2 = 0.6931471805599453f;
constexpr int kDocuments = 0, kCuSeqlens = 8; // of the document table (runtime/schema/seq_table.h)

Q35_DEVICE float infinity() { return bits_to_float(0x7f800000u); }

// `rows` tokens from `first` on, of the document [begin, end).
struct Segment {
  int first, rows, begin, end;
};

// Segment `index` when every document is cut into pieces of Rows. No rows past the last. For full warps.
template <int Rows>
Q35_DEVICE Segment find_segment(const int *seq, int index) {
  int documents = seq[kDocuments], lane = threadIdx.x % 32;
  for (int d = lane; d - lane < documents; d += 32) {
    int begin = 0, end = 0;
    if (d < documents) {
      begin = seq[kCuSeqlens + d];
      end = seq[kCuSeqlens + d + 1];
    }
    int pieces = (end - begin + Rows - 1) / Rows, sum = pieces;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      int left = __shfl_up_sync(0xffffffffu, sum, step);
      if (lane >= step) sum += left;
    }
    uint after = __ballot_sync(0xffffffffu, sum > index);
    if (after != 0) {
      int owner = __ffs(int(after)) - 1;
      begin = __shfl_sync(0xffffffffu, begin, owner);
      end = __shfl_sync(0xffffffffu, end, owner);
      int piece = index - __shfl_sync(0xffffffffu, sum - pieces, owner);
      int first = begin + piece * Rows;
      return {first, min(Rows, end - first), begin, end};
    }
    index -= __shfl_sync(0xffffffffu, sum, 31);
  }
  return {0, 0, 0, 0};
}

// Tiles in shared memory are [rows][size] with one vector of padding per row: no bank conflicts.
template <class T, int Size>
constexpr int kStride = Size + kVec<T>;

// Starts to copy a tile, `valid` rows of `from` and then zeros. All threads of the block; to be committed and waited for.
template <int Rows, int Size, bool Vectors, class T>
Q35_DEVICE void load_tile(T *to, const T *from, int64 stride, int valid) {
  constexpr int n = kVec<T>;
  for (int i = threadIdx.x; i < Rows * (Size / n); i += blockDim.x) {
    int row = i / (Size / n), column = i % (Size / n) * n;
    T *target = to + row * kStride<T, Size> + column;
    const T *source = from + row * stride + column;
    if constexpr (Vectors) {
      cp_async16(target, source, row < valid);
    } else {
#pragma unroll
      for (int j = 0; j < n; ++j) target[j] = row < valid ? source[j] : from_float<T>(0.0f);
    }
  }
}

// c [16][8 N] += a b with a [16][K] and b stored [8 N][K], both in shared memory.
template <int N, int K>
Q35_DEVICE void product_nt(float (&c)[N][4], const bf16 *a, const bf16 *b, int stride) {
  int lane = threadIdx.x % 32;
  a += lane % 16 * stride + lane / 16 * 8;
  b += (lane / 16 * 8 + lane % 8) * stride + lane / 8 % 2 * 8;
#pragma unroll 4
  for (int k = 0; k < K; k += 16) {
    uint left[4];
    ldmatrix_x4(left, a + k);
#pragma unroll
    for (int n = 0; n < N; n += 2) {
      uint right[4];
      ldmatrix_x4(right, b + n * 8 * stride + k);
      mma_bf16(c[n], left, {right[0], right[1]});
      mma_bf16(c[n + 1], left, {right[2], right[3]});
    }
  }
}

template <int N, int K>
Q35_DEVICE void product_nt(float (&c)[N][4], const float *a, const float *b, int stride) {
  int lane = threadIdx.x % 32;
  a += lane / 4 * stride;
  b += lane % 4 * 2 * stride;
#pragma unroll 2
  for (int k = 0; k < K; ++k) {
    float upper = a[k], lower = a[8 * stride + k];
#pragma unroll
    for (int n = 0; n < N; ++n) {
      float left = b[n * 8 * stride + k], right = b[(n * 8 + 1) * stride + k];
      c[n][0] = fmaf(upper, left, c[n][0]);
      c[n][1] = fmaf(upper, right, c[n][1]);
      c[n][2] = fmaf(lower, left, c[n][2]);
      c[n][3] = fmaf(lower, right, c[n][3]);
    }
  }
}

// c [16][8 N] += p b with p [16][8 M] in registers, as c is, and b stored [8 M][8 N] in shared memory.
template <int N, int M>
Q35_DEVICE void product_registers(float (&c)[N][4], const float (&p)[M][4], const bf16 *b, int stride) {
  int lane = threadIdx.x % 32;
  b += lane % 16 * stride + lane / 16 * 8;
#pragma unroll
  for (int k = 0; k < M; k += 2) {
    uint left[4] = {pack_bf16(p[k][0], p[k][1]), pack_bf16(p[k][2], p[k][3]), pack_bf16(p[k + 1][0], p[k + 1][1]),
                    pack_bf16(p[k + 1][2], p[k + 1][3])};
#pragma unroll
    for (int n = 0; n < N; n += 2) {
      uint right[4];
      ldmatrix_x4_trans(right, b + k * 8 * stride + n * 8);
      mma_bf16(c[n], left, {right[0], right[1]});
      mma_bf16(c[n + 1], left, {right[2], right[3]});
    }
  }
}

template <int N, int M>
Q35_DEVICE void product_registers(float (&c)[N][4], const float (&p)[M][4], const float *b, int stride) {
  int lane = threadIdx.x % 32;
  b += lane % 4 * 2;
#pragma unroll
  for (int k = 0; k < M * 8; ++k) {
    int owner = (lane & ~3) + k % 8 / 2;
    float upper = __shfl_sync(0xffffffffu, p[k / 8][k % 2], owner);
    float lower = __shfl_sync(0xffffffffu, p[k / 8][2 + k % 2], owner);
#pragma unroll
    for (int n = 0; n < N; ++n) {
      float left = b[k * stride + n * 8], right = b[k * stride + n * 8 + 1];
      c[n][0] = fmaf(upper, left, c[n][0]);
      c[n][1] = fmaf(upper, right, c[n][1]);
      c[n][2] = fmaf(lower, left, c[n][2]);
      c[n][3] = fmaf(lower, right, c[n][3]);
    }
  }
}

template <int N>
Q35_DEVICE void clear(float (&c)[N][4]) {
#pragma unroll
  for (int n = 0; n < N; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) c[n][i] = 0;
}

// Rows `row` (of c[.][0], c[.][1]) and row + 8 of `to`, those below `valid`, each times its factor.
template <bool Vectors, int N, class T>
Q35_DEVICE void store_rows(T *to, int64 stride, int row, int valid, const float (&c)[N][4], float upper, float lower) {
  int column = threadIdx.x % 4 * 2;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (row + half * 8 >= valid) continue;
    T *target = to + (row + half * 8) * stride + column;
    float factor = half ? lower : upper;
#pragma unroll
    for (int n = 0; n < N; ++n) {
      float pair[2] = {c[n][half * 2] * factor, c[n][half * 2 + 1] * factor};
      if constexpr (Vectors) {
        store(target + n * 8, pair);
      } else {
        target[n * 8] = from_float<T>(pair[0]);
        target[n * 8 + 1] = from_float<T>(pair[1]);
      }
    }
  }
}

} // namespace attn

// o = softmax(scale q k^T) v and its log-sum-exp. A block is P::rows queries of a head, 16 per warp; the longest first.
template <class P, class T>
Q35_DEVICE void attention_forward(const T *q, const T *k, const T *v, const int *seq, T *o, float *lse) {
  using namespace attn;
  constexpr int size = P::size, rows = P::rows, keys = P::keys, stride = kStride<T, size>;
  constexpr int heads = P::heads;
  int head = blockIdx.x % heads;
  Segment block = find_segment<rows>(seq, int(P::blocks) - 1 - int(blockIdx.x) / heads);
  if (block.rows == 0) return;
  q += block.first * P::qToken + head * P::qHead;
  k += block.begin * P::kToken + head / int(P::group) * P::kHead;
  v += block.begin * P::vToken + head / int(P::group) * P::vHead;

  T *queries = reinterpret_cast<T *>(shared_memory());
  T *keyTile = queries + rows * stride, *valueTile = keyTile + keys * stride;
  int lane = threadIdx.x % 32, warpRow = threadIdx.x / 32 * 16;
  int last = block.first + block.rows - 1 - block.begin; // key that the last query sees
  int mine = block.first + warpRow + lane / 4 - block.begin;

  float sum[2] = {0, 0}, largest[2] = {-infinity(), -infinity()};
  float out[size / 8][4];
  clear(out);
  load_tile<rows, size, P::vectors>(queries, q, P::qToken, block.rows);
  load_tile<keys, size, P::vectors>(keyTile, k, P::kToken, last + 1);
  cp_async_commit();
  for (int first = 0; first <= last; first += keys) {
    load_tile<keys, size, P::vectors>(valueTile, v + first * P::vToken, P::vToken, last + 1 - first);
    cp_async_commit();
    cp_async_wait<1>();
    __syncthreads();
    float p[keys / 8][4];
    clear(p);
    product_nt<keys / 8, size>(p, queries + warpRow * stride, keyTile, stride);
    __syncthreads();
    if (first + keys <= last) {
      int next = first + keys;
      load_tile<keys, size, P::vectors>(keyTile, k + next * P::kToken, P::kToken, last + 1 - next);
    }
    cp_async_commit();

#pragma unroll
    for (int half = 0; half < 2; ++half) {
      int query = mine + half * 8;
      // Every row sees the first key of its document, so the maximum is finite.
      float now = largest[half];
#pragma unroll
      for (int n = 0; n < keys / 8; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float &score = p[n][half * 2 + i];
          if (first + n * 8 + lane % 4 * 2 + i > query) score = -infinity();
          now = fmaxf(now, score);
        }
      now = warp_max<4>(now);
      float shift = now * (P::scale * kLog2e), part = 0;
      float correction = fast_exp2(largest[half] * (P::scale * kLog2e) - shift);
      largest[half] = now;
#pragma unroll
      for (int n = 0; n < keys / 8; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float &score = p[n][half * 2 + i];
          score = fast_exp2(fmaf(score, P::scale * kLog2e, -shift));
          part += score;
        }
      sum[half] = sum[half] * correction + part;
#pragma unroll
      for (int n = 0; n < size / 8; ++n) {
        out[n][half * 2] *= correction;
        out[n][half * 2 + 1] *= correction;
      }
    }

    cp_async_wait<1>();
    __syncthreads();
    product_registers(out, p, valueTile, stride);
    __syncthreads();
  }

  sum[0] = warp_sum<4>(sum[0]);
  sum[1] = warp_sum<4>(sum[1]);
  int row = warpRow + lane / 4;
  store_rows<P::vectors>(o + block.first * P::oToken + head * P::oHead, P::oToken, row, block.rows, out, 1.0f / sum[0],
                         1.0f / sum[1]);
  if (lane % 4 == 0)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      if (row + half * 8 < block.rows)
        lse[(block.first + row + half * 8) * P::lseToken + head] =
            largest[half] * P::scale + kLn2 * log2f(sum[half]);
}

// What the gradients read of every query row, [heads][tokens] each: lse in units of log2, and delta = <do, o>.
// A warp per row.
template <class P, class T>
Q35_DEVICE void attention_delta(const T *dO, const T *, const T *, const T *, const T *o, const float *lse, const int *,
                                T *, T *, T *, unsigned char *workspace) {
  using namespace attn;
  constexpr int n = kVec<T>, heads = P::heads;
  int64 task = int64(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
  int64 token = task / heads;
  int head = int(task % heads), lane = threadIdx.x % 32;
  if (token >= P::tokens) return;
  dO += token * P::doToken + head * P::doHead;
  o += token * P::oToken + head * P::oHead;
  float sum = 0;
  if constexpr (P::vectors) {
#pragma unroll
    for (int i = lane * n; i < P::size; i += 32 * n) {
      float a[n], b[n];
      load(a, dO + i);
      load(b, o + i);
#pragma unroll
      for (int j = 0; j < n; ++j) sum = fmaf(a[j], b[j], sum);
    }
  } else {
    for (int i = lane; i < P::size; i += 32) sum = fmaf(to_float(dO[i]), to_float(o[i]), sum);
  }
  sum = warp_sum(sum);
  if (lane != 0) return;
  float *rows = reinterpret_cast<float *>(workspace);
  rows[head * P::tokens + token] = lse[token * P::lseToken + head] * kLog2e;
  rows[(heads + head) * P::tokens + token] = sum;
}

namespace attn {

// Probabilities, and from them and dP the gradients of the scores but for the factor `scale`, of 16 keys (rows) and
// 8 N queries: p = exp2(scale log2e s - lse), g = p (dP - delta). Queries before `first` + own row are masked.
template <int N>
Q35_DEVICE void probabilities_of_keys(float (&p)[N][4], const float *lse, int ahead, float scale) {
  int lane = threadIdx.x % 32;
#pragma unroll
  for (int n = 0; n < N; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      int query = n * 8 + lane % 4 * 2 + i % 2, key = lane / 4 + i / 2 * 8;
      float value = fast_exp2(fmaf(p[n][i], scale, -lse[query]));
      p[n][i] = key > query + ahead ? 0.0f : value;
    }
}

} // namespace attn

// dk and dv of P::keys keys: a loop over the query heads of the key head and over their queries at or after the keys. The
// first half of the warps sums dv, the second dk, 16 keys per warp.
template <class P, class T>
Q35_DEVICE void attention_key_gradients(const T *dO, const T *q, const T *k, const T *v, const T *, const float *,
                                        const int *seq, T *, T *dk, T *dv, unsigned char *workspace) {
  using namespace attn;
  constexpr int size = P::size, rows = P::rows, keys = P::keys, stride = kStride<T, size>;
  constexpr int keyHeads = P::heads / P::group;
  int keyHead = blockIdx.x % keyHeads;
  Segment block = find_segment<keys>(seq, blockIdx.x / keyHeads);
  if (block.rows == 0) return;

  T *keyTile = reinterpret_cast<T *>(shared_memory());
  T *valueTile = keyTile + keys * stride, *queries = valueTile + keys * stride, *slopes = queries + rows * stride;
  float *lseTile = reinterpret_cast<float *>(slopes + rows * stride), *deltaTile = lseTile + rows;
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int warpRow = warp % (keys / 16) * 16;
  bool ofKeys = warp >= keys / 16;

  load_tile<keys, size, P::vectors>(keyTile, k + block.first * P::kToken + keyHead * P::kHead, P::kToken, block.rows);
  load_tile<keys, size, P::vectors>(valueTile, v + block.first * P::vToken + keyHead * P::vHead, P::vToken, block.rows);
  float out[size / 8][4];
  clear(out);
  for (int member = 0; member < P::group; ++member) {
    int head = keyHead * int(P::group) + member;
    const float *lse = reinterpret_cast<const float *>(workspace) + head * P::tokens;
    const float *delta = lse + P::heads * P::tokens;
    for (int first = block.first; first < block.end; first += rows) {
      int valid = block.end - first;
      load_tile<rows, size, P::vectors>(queries, q + first * P::qToken + head * P::qHead, P::qToken, valid);
      load_tile<rows, size, P::vectors>(slopes, dO + first * P::doToken + head * P::doHead, P::doToken, valid);
      cp_async_commit();
      for (int i = threadIdx.x; i < rows; i += blockDim.x) {
        // Rows past the document get no probability.
        lseTile[i] = i < valid ? lse[first + i] : infinity();
        deltaTile[i] = i < valid ? delta[first + i] : 0.0f;
      }
      cp_async_wait<0>();
      __syncthreads();
      float p[rows / 8][4];
      clear(p);
      product_nt<rows / 8, size>(p, keyTile + warpRow * stride, queries, stride);
      probabilities_of_keys(p, lseTile, first - block.first - warpRow, P::scale * kLog2e);
      if (ofKeys) {
        float slope[rows / 8][4];
        clear(slope);
        product_nt<rows / 8, size>(slope, valueTile + warpRow * stride, slopes, stride);
#pragma unroll
        for (int n = 0; n < rows / 8; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i) p[n][i] *= slope[n][i] - deltaTile[n * 8 + lane % 4 * 2 + i % 2];
      }
      product_registers(out, p, ofKeys ? queries : slopes, stride);
      __syncthreads();
    }
  }
  int row = warpRow + lane / 4;
  if (ofKeys)
    store_rows<P::vectors>(dk + block.first * P::dkToken + keyHead * P::dkHead, P::dkToken, row, block.rows, out,
                           P::scale, P::scale);
  else
    store_rows<P::vectors>(dv + block.first * P::dvToken + keyHead * P::dvHead, P::dvToken, row, block.rows, out, 1.0f,
                           1.0f);
}

// dq of P::rows queries of a head, 16 per warp; the longest first.
template <class P, class T>
Q35_DEVICE void attention_query_gradient(const T *dO, const T *q, const T *k, const T *v, const T *, const float *,
                                         const int *seq, T *dq, T *, T *, unsigned char *workspace) {
  using namespace attn;
  constexpr int size = P::size, rows = P::rows, keys = P::keys, stride = kStride<T, size>;
  constexpr int heads = P::heads;
  int head = blockIdx.x % heads;
  Segment block = find_segment<rows>(seq, int(P::blocks) - 1 - int(blockIdx.x) / heads);
  if (block.rows == 0) return;
  k += block.begin * P::kToken + head / int(P::group) * P::kHead;
  v += block.begin * P::vToken + head / int(P::group) * P::vHead;

  T *queries = reinterpret_cast<T *>(shared_memory());
  T *slopes = queries + rows * stride, *keyTile = slopes + rows * stride, *valueTile = keyTile + keys * stride;
  int lane = threadIdx.x % 32, warpRow = threadIdx.x / 32 * 16, row = warpRow + lane / 4;
  int last = block.first + block.rows - 1 - block.begin; // key that the last query sees
  load_tile<rows, size, P::vectors>(queries, q + block.first * P::qToken + head * P::qHead, P::qToken, block.rows);
  load_tile<rows, size, P::vectors>(slopes, dO + block.first * P::doToken + head * P::doHead, P::doToken, block.rows);
  const float *rowValues = reinterpret_cast<const float *>(workspace) + head * P::tokens + block.first;
  float lse[2], delta[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    bool valid = row + half * 8 < block.rows;
    lse[half] = valid ? rowValues[row + half * 8] : infinity();
    delta[half] = valid ? rowValues[P::heads * P::tokens + row + half * 8] : 0.0f;
  }

  float out[size / 8][4];
  clear(out);
  for (int first = 0; first <= last; first += keys) {
    load_tile<keys, size, P::vectors>(keyTile, k + first * P::kToken, P::kToken, last + 1 - first);
    load_tile<keys, size, P::vectors>(valueTile, v + first * P::vToken, P::vToken, last + 1 - first);
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();
    float p[keys / 8][4], slope[keys / 8][4];
    clear(p);
    clear(slope);
    product_nt<keys / 8, size>(p, queries + warpRow * stride, keyTile, stride);
    product_nt<keys / 8, size>(slope, slopes + warpRow * stride, valueTile, stride);
#pragma unroll
    for (int n = 0; n < keys / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        int key = first + n * 8 + lane % 4 * 2 + i % 2, half = i / 2;
        float value = fast_exp2(fmaf(p[n][i], P::scale * kLog2e, -lse[half])) * (slope[n][i] - delta[half]);
        p[n][i] = key > block.first - block.begin + row + half * 8 ? 0.0f : value;
      }
    product_registers(out, p, keyTile, stride);
    __syncthreads();
  }
  store_rows<P::vectors>(dq + block.first * P::dqToken + head * P::dqHead, P::dqToken, row, block.rows, out, P::scale,
                         P::scale);
}

} // namespace q35
