#pragma once
#include "q35/base.cuh"

namespace q35 {

// y[t] = table[ids[t]]. P: tokens, columns, vector, rowVectors of a row, tableStride, shard: the id -1 is a row of another
// rank, and its y 0.
template <class P, class X, class Y>
Q35_DEVICE void embed(const int *ids, const X *table, Y *y) {
  constexpr int n = P::vector, batch = 4;
  uint first = blockIdx.x * (blockDim.x * batch) + threadIdx.x;
  float value[batch][n];
#pragma unroll
  for (int i = 0; i < batch; ++i) {
    uint vector = first + i * blockDim.x, t = vector / uint(P::rowVectors);
    if (t >= P::tokens) continue;
    int id = ids[t];
    if (!P::shard || id >= 0) {
      load(value[i], table + id * int64(P::tableStride) + vector % uint(P::rowVectors) * n);
    } else {
#pragma unroll
      for (int e = 0; e < n; ++e) value[i][e] = 0;
    }
  }
#pragma unroll
  for (int i = 0; i < batch; ++i) {
    uint vector = first + i * blockDim.x;
    if (vector / uint(P::rowVectors) < P::tokens) store(y + int64(vector) * n, value[i]);
  }
}

// y = x - coordinate * size for rows of this rank's part of a table, -1 for those of others, x where it is negative.
// P: elements, size. y may be x.
template <class P>
Q35_DEVICE void local_ids(const int *x, const int *coordinate, int *y) {
  uint i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= uint(P::elements)) return;
  int id = x[i], local = id - coordinate[0] * int(P::size);
  y[i] = id < 0 ? id : local >= 0 && local < int(P::size) ? local : -1;
}

// Before embed_add: dtable = 0, or a running sum unless it is there already. P: vectors of four elements, tail.
template <class P, class T>
Q35_DEVICE void embed_zero(const T *, const int *, float *dtable) {
  int64 stride = int64(gridDim.x) * blockDim.x, first = int64(blockIdx.x) * blockDim.x + threadIdx.x;
#pragma unroll 4
  for (int64 i = first; i < P::vectors; i += stride) *reinterpret_cast<Vec<float, 4> *>(dtable + i * 4) = {};
  if (first < P::tail) dtable[P::vectors * 4 + first] = 0;
}

template <class P, class T>
Q35_DEVICE void embed_copy(const T *, const int *, const float *acc, float *dtable) {
  if (acc == dtable) return;
  int64 stride = int64(gridDim.x) * blockDim.x, first = int64(blockIdx.x) * blockDim.x + threadIdx.x;
  for (int64 i = first; i < P::vectors; i += stride)
    *reinterpret_cast<Vec<float, 4> *>(dtable + i * 4) = *reinterpret_cast<const Vec<float, 4> *>(acc + i * 4);
  if (first < P::tail) dtable[P::vectors * 4 + first] = acc[P::vectors * 4 + first];
}

// The sum of rows dy[t], t = tokens[i] of the entries with this id among 32, in order; `mask` says which.
template <class P, class T>
Q35_DEVICE void embed_add_rows(float (&sum)[P::vector], uint mask, const T *dy, const ushort *tokens, int column) {
  constexpr int batch = 4;
  while (mask) {
    float x[batch][P::vector];
    bool valid[batch];
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      valid[i] = mask != 0;
      int entry = __ffs(int(mask)) - 1;
      mask &= mask - 1;
      if (valid[i] && column < int(P::columns)) load(x[i], dy + tokens[entry] * int64(P::dyStride) + column);
    }
#pragma unroll
    for (int i = 0; i < batch; ++i)
      if (valid[i] && column < int(P::columns)) {
#pragma unroll
        for (int e = 0; e < P::vector; ++e) sum[e] += x[i][e];
      }
  }
}

// dtable[i] += sum of dy[t] over ids[t] = i, t ascending. A block owns the ids of one group (i % P::groups) and 32 vectors
// of columns: no two blocks add to one element. Of a window of tokens it lists those of its ids, in order. A warp takes
// an id that occurs rarely, all of them together one that occurs often (padding, a full stop).
template <class P, class T>
Q35_DEVICE void embed_add(const T *dy, const int *ids, float *dtable) {
  constexpr int warps = 8, chunks = 16, window = warps * chunks * 32, vector = P::vector, width = 32 * vector;
  constexpr int few = 48; // Occurrences that one warp adds.
  __shared__ ushort tokens[window];
  __shared__ int values[window], counts[warps], oftenCount, often[window / few + 1];
  __shared__ float partial[warps][width];
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  uint group = blockIdx.x % uint(P::groups);
  int column = blockIdx.x / uint(P::groups) * width + lane * vector;

  for (int64 first = 0; first < P::tokens; first += window) {
    int id[chunks];
    uint mine[chunks];
    int count = 0;
#pragma unroll
    for (int c = 0; c < chunks; ++c) {
      int64 t = first + (warp * chunks + c) * 32 + lane;
      id[c] = t < P::tokens ? ids[t] : -1;
    }
#pragma unroll
    for (int c = 0; c < chunks; ++c) {
      mine[c] = __ballot_sync(0xffffffffu, id[c] >= 0 && uint(id[c]) % uint(P::groups) == group);
      count += __popc(mine[c]);
    }
    if (lane == 0) counts[warp] = count;
    if (threadIdx.x == 0) oftenCount = 0;
    __syncthreads();
    int at = 0, total = 0;
    for (int w = 0; w < warps; ++w) {
      if (w < warp) at += counts[w];
      total += counts[w];
    }
#pragma unroll
    for (int c = 0; c < chunks; ++c) {
      if (mine[c] >> lane & 1) {
        int place = at + __popc(mine[c] & ((1u << lane) - 1));
        tokens[place] = ushort((warp * chunks + c) * 32 + lane);
        values[place] = id[c];
      }
      at += __popc(mine[c]);
    }
    __syncthreads();

    const T *rows = dy + first * P::dyStride;
    auto same = [&](int value, int start, int from) { // Entries start + lane, from `from` on, with this id.
      int entry = start + lane;
      return __ballot_sync(0xffffffffu, entry >= from && entry < total && values[entry] == value);
    };
    for (int entry = warp; entry < total; entry += warps) {
      int value = values[entry], occurrences = 0;
      bool isFirst = true;
      for (int start = 0; isFirst && start < entry; start += 32) {
        uint before = same(value, start, 0);
        if (entry - start < 32) before &= (1u << (entry - start)) - 1;
        isFirst = before == 0;
      }
      if (!isFirst) continue;
      for (int start = entry / 32 * 32; start < total; start += 32) occurrences += __popc(same(value, start, entry));
      if (occurrences > few) {
        if (lane == 0) often[atomicAdd(&oftenCount, 1)] = entry;
        continue;
      }
      float sum[vector] = {};
      for (int start = entry / 32 * 32; start < total; start += 32)
        embed_add_rows<P>(sum, same(value, start, entry), rows, tokens + start, column);
      if (column >= int(P::columns)) continue;
      float old[vector], *to = dtable + value * int64(P::columns) + column;
      load(old, to);
#pragma unroll
      for (int e = 0; e < vector; ++e) old[e] += sum[e];
      store(to, old);
    }
    __syncthreads();

    for (int i = 0; i < oftenCount; ++i) {
      int entry = often[i], value = values[entry];
      float sum[vector] = {};
      for (int start = (entry / 32 + warp) * 32; start < total; start += warps * 32)
        embed_add_rows<P>(sum, same(value, start, entry), rows, tokens + start, column);
#pragma unroll
      for (int e = 0; e < vector; ++e) partial[warp][lane * vector + e] = sum[e];
      __syncthreads();
      for (int c = threadIdx.x; c < width; c += blockDim.x) {
        int64 to = blockIdx.x / uint(P::groups) * width + c;
        if (to >= P::columns) break;
        float all = dtable[value * int64(P::columns) + to];
#pragma unroll
        for (int w = 0; w < warps; ++w) all += partial[w][c];
        dtable[value * int64(P::columns) + to] = all;
      }
      __syncthreads();
    }
    __syncthreads();
  }
}

template <class P, class T>
Q35_DEVICE void embed_add(const T *dy, const int *ids, const float *, float *dtable) { embed_add<P>(dy, ids, dtable); }

} // namespace q35
