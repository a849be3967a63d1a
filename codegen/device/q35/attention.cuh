#pragma once
#include "q35/mma.cuh"
#include "q35/stripes.cuh"

// Causal attention inside documents, grouped query heads: kernels for any GPU. A warp owns 16 rows of a product and keeps
// them in registers as fragments of mma m16n8k16 (q35/mma.cuh), probabilities included: they are the first operand of the
// next product as they are. With T = float the same fragments are filled by fused multiply-adds in fp32.
//
// Blocks restart at documents, so that no row of one document is an operand of another: zero times NaN is NaN. The grid
// has room for one broken block per document; blocks without rows return.
//
// With cp_ queries are those of a rank's stripes of a row and keys are gathered, stripe by stripe: a tile of keys that
// reaches over a stripe's end goes on elsewhere.
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

// Where the keys of the document of a block are: `before` of its tokens lie before the block's segment, and tile(first)
// has the rows of `Rows` keys from the document's key `first` on.
struct OwnKeys {
  int begin;
  static constexpr int before = 0;
  struct TileRows {
    int first;
    Q35_DEVICE int64 operator()(int row) const { return first + row; }
  };
  template <int Rows>
  Q35_DEVICE TileRows tile(int first) const {
    return {begin + first};
  }
};

template <class P>
struct GatheredKeys {
  Stripes<P> stripes;
  int start, before; // of the document, in the row
  // In stripes as long as a tile, which then reaches into two at most.
  struct TileRows {
    int inFirst, first, second;
    Q35_DEVICE int64 operator()(int row) const { return (row < inFirst ? first : second) + row; }
  };
  struct AnyRows {
    Stripes<P> stripes;
    int first;
    Q35_DEVICE int64 operator()(int row) const {
      int stripe = min((first + row) / stripes.kRows, stripes.kCount - 1);
      return int64(stripes.slot(stripe)) * stripes.kRows + (first + row) % stripes.kRows;
    }
  };
  template <int Rows>
  Q35_DEVICE auto tile(int first) const {
    if constexpr (Stripes<P>::kRows < Rows) {
      return AnyRows{stripes, start + first};
    } else {
      constexpr int kRows = Stripes<P>::kRows;
      int stripe = (start + first) / kRows, inside = (start + first) % kRows;
      int next = min(stripe + 1, stripes.kCount - 1);
      return TileRows{kRows - inside, stripes.slot(stripe) * kRows + inside,
                      (stripes.slot(next) - 1) * kRows + inside};
    }
  }
};

// The keys of a segment, if all are the rank's own or if they are gathered.
struct OwnRow {
  Q35_DEVICE OwnKeys keys(const Segment &segment) const { return {segment.begin}; }
};
template <class P>
struct GatheredRow {
  Stripes<P> stripes;
  Q35_DEVICE GatheredKeys<P> keys(const Segment &segment) const {
    int before = stripes.before(segment.begin), j = segment.begin / stripes.kRows;
    return {stripes, stripes.index(j) * stripes.kRows + segment.begin % stripes.kRows - before, before};
  }
};

// Starts to copy a tile, `valid` rows of `from` and then zeros. All threads of the block; to be committed and waited for.
template <int Rows, int Size, bool Vectors, class T, class RowOf>
Q35_DEVICE void load_tile(T *to, const T *from, int64 stride, int valid, const RowOf &row_of) {
  constexpr int n = kVec<T>;
  for (int i = threadIdx.x; i < Rows * (Size / n); i += blockDim.x) {
    int row = i / (Size / n), column = i % (Size / n) * n;
    T *target = to + row * kStride<T, Size> + column;
    const T *source = from + row_of(row) * stride + column;
    if constexpr (Vectors) {
      cp_async16(target, source, row < valid);
    } else {
#pragma unroll
      for (int j = 0; j < n; ++j) target[j] = row < valid ? source[j] : from_float<T>(0.0f);
    }
  }
}

template <int Rows, int Size, bool Vectors, class T>
Q35_DEVICE void load_tile(T *to, const T *from, int64 stride, int valid) {
  load_tile<Rows, Size, Vectors>(to, from, stride, valid, [](int row) { return int64(row); });
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
template <class P, class T, class Row>
Q35_DEVICE void attend(const T *q, const T *k, const T *v, const int *seq, const Row &row_of_keys, T *o, float *lse) {
  using namespace attn;
  constexpr int size = P::size, rows = P::rows, keys = P::keys, stride = kStride<T, size>;
  constexpr int heads = P::heads;
  int head = blockIdx.x % heads;
  Segment block = find_segment<rows>(seq, int(P::blocks) - 1 - int(blockIdx.x) / heads);
  if (block.rows == 0) return;
  const auto source = row_of_keys.keys(block);
  q += block.first * P::qToken + head * P::qHead;
  k += head / int(P::group) * P::kHead;
  v += head / int(P::group) * P::vHead;

  T *queries = reinterpret_cast<T *>(shared_memory());
  T *keyTile = queries + rows * stride, *valueTile = keyTile + keys * stride;
  int lane = threadIdx.x % 32, warpRow = threadIdx.x / 32 * 16;
  int own = block.first - block.begin + source.before; // key of the first query
  int last = own + block.rows - 1;                      // key that the last query sees
  int mine = own + warpRow + lane / 4;

  float sum[2] = {0, 0}, largest[2] = {-infinity(), -infinity()};
  float out[size / 8][4];
  clear(out);
  load_tile<rows, size, P::vectors>(queries, q, P::qToken, block.rows);
  load_tile<keys, size, P::vectors>(keyTile, k, P::kToken, last + 1, source.template tile<keys>(0));
  cp_async_commit();
  for (int first = 0; first <= last; first += keys) {
    load_tile<keys, size, P::vectors>(valueTile, v, P::vToken, last + 1 - first, source.template tile<keys>(first));
    cp_async_commit();
    cp_async_wait<1>();
    __syncthreads();
    float p[keys / 8][4];
    clear(p);
    product_nt<keys / 8, size>(p, queries + warpRow * stride, keyTile, stride);
    __syncthreads();
    if (first + keys <= last) {
      int next = first + keys;
      load_tile<keys, size, P::vectors>(keyTile, k, P::kToken, last + 1 - next, source.template tile<keys>(next));
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

template <class P, class T>
Q35_DEVICE void attention_forward(const T *q, const T *k, const T *v, const int *seq, T *o, float *lse) {
  attend<P>(q, k, v, seq, attn::OwnRow(), o, lse);
}

template <class P, class T>
Q35_DEVICE void cp_attention_forward(const T *q, const T *k, const T *v, const int *seq, const int *stripes, T *o,
                                     float *lse) {
  attend<P>(q, k, v, seq, attn::GatheredRow<P>{{stripes}}, o, lse);
}

// What the gradients read of every query row, [heads][tokens] each: lse in units of log2, and delta = <do, o>.
// A warp per row.
template <class P, class T>
Q35_DEVICE void prepare_gradients(const T *dO, const T *o, const float *lse, unsigned char *workspace) {
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

template <class P, class T>
Q35_DEVICE void attention_delta(const T *dO, const T *, const T *, const T *, const T *o, const float *lse, const int *,
                                T *, T *, T *, unsigned char *workspace) {
  prepare_gradients<P>(dO, o, lse, workspace);
}

template <class P, class T>
Q35_DEVICE void cp_attention_delta(const T *dO, const T *, const T *, const T *, const T *o, const float *lse,
                                   const int *, const int *, T *, float *, float *, unsigned char *workspace) {
  prepare_gradients<P>(dO, o, lse, workspace);
}

namespace attn {

// Keys and the ranges of the rank's queries that see them, all of one document.
struct KeyBlock {
  int rows;     // keys
  int64 at;     // row of the first
  int position; // of the first, in the document or the row
  int ranges;
  struct Queries {
    int first, end, position;
  } queries[2];
};

template <class P>
Q35_DEVICE KeyBlock find_keys(const int *seq, int index) {
  Segment block = find_segment<int(P::keys)>(seq, index);
  return {block.rows, block.first, block.first, 1, {{block.first, block.end, block.first}}};
}

// Of the whole row, the rank's own segments first and then the other stripes, whose keys before what the rank sees come in
// blocks that nobody sees. Constants: ownBlocks, stripeBlocks (of another stripe).
template <class P>
Q35_DEVICE KeyBlock find_keys(const int *seq, int index, const Stripes<P> &stripes) {
  constexpr int kRows = Stripes<P>::kRows, kKeys = P::keys;
  int own[2] = {stripes.index(0), stripes.index(1)}; // ascending
  // The first segment of own stripe j, if it is of a document that begins before the end of an earlier stripe.
  auto sees = [&](int j, int stripe) {
    return own[j] > stripe && own[j] * kRows - stripes.offset(own[j]) < (stripe + 1) * kRows;
  };
  auto queries = [&](int j) {
    return KeyBlock::Queries{j * kRows, seq[kCuSeqlens + stripes.first_segment(j) + 1], own[j] * kRows};
  };
  KeyBlock block{};
  if (index < P::ownBlocks) {
    Segment segment = find_segment<kKeys>(seq, index);
    int j = segment.first / kRows, inside = segment.first % kRows;
    block.rows = segment.rows;
    block.at = int64(stripes.slot(own[j])) * kRows + inside;
    block.position = own[j] * kRows + inside;
    block.queries[block.ranges++] = {segment.first, segment.end, block.position};
    if (segment.end == kRows && sees(1, own[0])) block.queries[block.ranges++] = queries(1);
    return block;
  }
  index -= int(P::ownBlocks);
  int stripe = index / int(P::stripeBlocks), piece = index % int(P::stripeBlocks);
  if (stripe >= own[0]) ++stripe;
  if (stripe >= own[1]) ++stripe;
  int first = stripe * kRows, end = first + kRows, seen = end;
  for (int j = 0; j < 2; ++j)
    if (sees(j, stripe)) {
      seen = max(first, own[j] * kRows - stripes.offset(own[j]));
      block.queries[block.ranges++] = queries(j);
    }
  int unseen = (seen - first + kKeys - 1) / kKeys;
  if (piece < unseen) {
    block.ranges = 0;
    end = seen;
  } else {
    piece -= unseen;
    first = seen;
  }
  first += piece * kKeys;
  block.rows = max(min(kKeys, end - first), 0);
  block.at = int64(stripes.slot(stripe)) * kRows + first - stripe * kRows;
  block.position = first;
  return block;
}

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
template <class P, class T, class Gradient, class Find>
Q35_DEVICE void key_gradients(const T *dO, const T *q, const T *k, const T *v, const Find &find, Gradient *dk,
                              Gradient *dv, unsigned char *workspace) {
  using namespace attn;
  constexpr int size = P::size, rows = P::rows, keys = P::keys, stride = kStride<T, size>;
  constexpr int keyHeads = P::heads / P::group;
  int keyHead = blockIdx.x % keyHeads;
  const KeyBlock block = find(int(blockIdx.x) / keyHeads);
  if (block.rows == 0) return;

  T *keyTile = reinterpret_cast<T *>(shared_memory());
  T *valueTile = keyTile + keys * stride, *queries = valueTile + keys * stride, *slopes = queries + rows * stride;
  float *lseTile = reinterpret_cast<float *>(slopes + rows * stride), *deltaTile = lseTile + rows;
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int warpRow = warp % (keys / 16) * 16;
  bool ofKeys = warp >= keys / 16;

  if (block.ranges > 0) {
    load_tile<keys, size, P::vectors>(keyTile, k + block.at * P::kToken + keyHead * P::kHead, P::kToken, block.rows);
    load_tile<keys, size, P::vectors>(valueTile, v + block.at * P::vToken + keyHead * P::vHead, P::vToken, block.rows);
  }
  float out[size / 8][4];
  clear(out);
  auto add = [&](int head, const KeyBlock::Queries &range) {
    const float *lse = reinterpret_cast<const float *>(workspace) + head * P::tokens;
    const float *delta = lse + P::heads * P::tokens;
    int ahead = range.position - range.first - block.position - warpRow;
    for (int first = range.first; first < range.end; first += rows) {
      int valid = range.end - first;
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
      probabilities_of_keys(p, lseTile, first + ahead, P::scale * kLog2e);
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
  };
  for (int member = 0; member < P::group; ++member)
#pragma unroll 1
    for (int range = 0; range < block.ranges; ++range)
      add(keyHead * int(P::group) + member, range == 0 ? block.queries[0] : block.queries[1]);
  int row = warpRow + lane / 4;
  if (ofKeys)
    store_rows<P::vectors>(dk + block.at * P::dkToken + keyHead * P::dkHead, P::dkToken, row, block.rows, out,
                           P::scale, P::scale);
  else
    store_rows<P::vectors>(dv + block.at * P::dvToken + keyHead * P::dvHead, P::dvToken, row, block.rows, out, 1.0f,
                           1.0f);
}

template <class P, class T>
Q35_DEVICE void attention_key_gradients(const T *dO, const T *q, const T *k, const T *v, const T *, const float *,
                                        const int *seq, T *, T *dk, T *dv, unsigned char *workspace) {
  key_gradients<P>(dO, q, k, v, [&](int index) { return attn::find_keys<P>(seq, index); }, dk, dv, workspace);
}

template <class P, class T>
Q35_DEVICE void cp_attention_key_gradients(const T *dO, const T *q, const T *k, const T *v, const T *, const float *,
                                           const int *seq, const int *stripes, T *, float *dk, float *dv,
                                           unsigned char *workspace) {
  const auto find = [&](int index) { return attn::find_keys<P>(seq, index, Stripes<P>{stripes}); };
  key_gradients<P>(dO, q, k, v, find, dk, dv, workspace);
}

// dq of P::rows queries of a head, 16 per warp; the longest first.
template <class P, class T, class Row>
Q35_DEVICE void query_gradient(const T *dO, const T *q, const T *k, const T *v, const int *seq, const Row &row_of_keys,
                               T *dq, const unsigned char *workspace) {
  using namespace attn;
  constexpr int size = P::size, rows = P::rows, keys = P::keys, stride = kStride<T, size>;
  constexpr int heads = P::heads;
  int head = blockIdx.x % heads;
  Segment block = find_segment<rows>(seq, int(P::blocks) - 1 - int(blockIdx.x) / heads);
  if (block.rows == 0) return;
  const auto source = row_of_keys.keys(block);
  k += head / int(P::group) * P::kHead;
  v += head / int(P::group) * P::vHead;

  T *queries = reinterpret_cast<T *>(shared_memory());
  T *slopes = queries + rows * stride, *keyTile = slopes + rows * stride, *valueTile = keyTile + keys * stride;
  int lane = threadIdx.x % 32, warpRow = threadIdx.x / 32 * 16, row = warpRow + lane / 4;
  int own = block.first - block.begin + source.before; // key of the first query
  int last = own + block.rows - 1;                      // key that the last query sees
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
    const auto rows_of_tile = source.template tile<keys>(first);
    load_tile<keys, size, P::vectors>(keyTile, k, P::kToken, last + 1 - first, rows_of_tile);
    load_tile<keys, size, P::vectors>(valueTile, v, P::vToken, last + 1 - first, rows_of_tile);
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
        p[n][i] = key > own + row + half * 8 ? 0.0f : value;
      }
    product_registers(out, p, keyTile, stride);
    __syncthreads();
  }
  store_rows<P::vectors>(dq + block.first * P::dqToken + head * P::dqHead, P::dqToken, row, block.rows, out, P::scale,
                         P::scale);
}

template <class P, class T>
Q35_DEVICE void attention_query_gradient(const T *dO, const T *q, const T *k, const T *v, const T *, const float *,
                                         const int *seq, T *dq, T *, T *, unsigned char *workspace) {
  query_gradient<P>(dO, q, k, v, seq, attn::OwnRow(), dq, workspace);
}

template <class P, class T>
Q35_DEVICE void cp_attention_query_gradient(const T *dO, const T *q, const T *k, const T *v, const T *, const float *,
                                            const int *seq, const int *stripes, T *dq, float *, float *,
                                            unsigned char *workspace) {
  query_gradient<P>(dO, q, k, v, seq, attn::GatheredRow<P>{{stripes}}, dq, workspace);
}

} // namespace q35
