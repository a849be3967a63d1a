#pragma once
#include "q35/gdn.cuh"

// gdn_out, and the P of gdn_scan_bwd: four warps, each 16 rows of one chunk. Bound by memory: what matters is that all
// tiles of a block are on their way before it waits for the first.

namespace q35 {

// scale * exp(gamma_i - gamma_j) where j <= i, else 0, times x: block (row, column) of P.
template <class T>
Q35_DEVICE void apply_decay(Acc &x, const float *gamma, int row, int column, float scale) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    int r = row + block_row(i);
    float own = gamma[r];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      int c = column + block_column(j, i);
      // Selected before the exponential: above the diagonal it would grow.
      float factor = decay<T>(c <= r ? own - gamma[c] : 0.0f) * scale;
      x.c[j][i] = c <= r ? x.c[j][i] * factor : 0.0f;
    }
  }
}

// (E1) P = scale (Q K^T . Gamma), (E2) O = scale eta (Q S) + P V'. A block takes one chunk of one value head.
template <class P, class T>
Q35_DEVICE void gdn_out(const T *qn, const T *kn, const float *gamma, const T *states, const T *vnew, const int *seq,
                        T *o) {
  constexpr int dk = P::keyDim, dv = P::valueDim, wide = dk > dv ? dk : dv;
  using KeyTile = Tile<T, kChunk, dk>;
  using StateTile = Tile<T, dk, dv>;
  using ValueTile = Tile<T, kChunk, dv>;
  using WideTile = Tile<T, kChunk, wide>; // where Q and later O lie
  static_assert(WideTile::kBytes + KeyTile::kBytes + StateTile::kBytes + ValueTile::kBytes + kChunk * 4 ==
                P::sharedBytes);
  int index = int(blockIdx.x) / int(P::valueHeads), head = int(blockIdx.x) % int(P::valueHeads);
  if (index >= seq[1]) return;
  Chunk chunk = chunk_of<P>(seq, index);
  int keyHead = head / int(P::valueHeads / P::keyHeads), thread = int(threadIdx.x), warp = thread / 32;
  int64 first = chunk.first, tile = int64(index) * P::valueHeads + head;

  unsigned char *at = shared_memory();
  KeyTile queries = {reinterpret_cast<T *>(at)};
  ValueTile outputs = {reinterpret_cast<T *>(at)};
  KeyTile keys = {reinterpret_cast<T *>(at += WideTile::kBytes)};
  StateTile state = {reinterpret_cast<T *>(at += KeyTile::kBytes)};
  ValueTile values = {reinterpret_cast<T *>(at += StateTile::kBytes)};
  float *gammas = reinterpret_cast<float *>(at += ValueTile::kBytes);

  copy_async<128>(queries, qn + first * P::queryToken + keyHead * P::queryHead, P::queryToken, chunk.rows, thread);
  copy_async<128>(keys, kn + first * P::keyToken + keyHead * P::keyHead, P::keyToken, chunk.rows, thread);
  cp_async_commit();
  copy_async<128>(state, states + tile * (dk * dv), dv, thread);
  cp_async_commit();
  copy_async<128>(values, vnew + tile * (kChunk * dv), dv, thread);
  cp_async_commit();
  if (thread < kChunk) gammas[thread] = gamma[tile * kChunk + thread];
  cp_async_wait<2>();
  __syncthreads();

  int row = warp * 16;
  Left<T> q[dk / 16];
#pragma unroll kUnrollBlocks<T>
  for (int k = 0; k < dk / 16; ++k) load_left(q[k], queries, row, k * 16);
  Left<T> scores[4];
#pragma unroll kUnrollBlocks<T>
  for (int n = 0; n < 4; ++n) {
    if (n > warp) continue; // above the diagonal
    Acc product;
    clear(product);
#pragma unroll kUnrollBlocks<T>
    for (int k = 0; k < dk / 16; ++k) {
      Right<T> b;
      load_right_transposed(b, keys, n * 16, k * 16);
      multiply(product, q[k], b);
    }
    apply_decay<T>(product, gammas, row, n * 16, P::scale);
    scores[n] = to_left<T>(product);
  }

  cp_async_wait<1>();
  __syncthreads();
  Acc out[dv / 16];
  clear(out);
#pragma unroll kUnrollBlocks<T>
  for (int k = 0; k < dk / 16; ++k)
#pragma unroll kUnrollBlocks<T>
    for (int n = 0; n < dv / 16; ++n) {
      Right<T> b;
      load_right(b, state, k * 16, n * 16);
      multiply(out[n], q[k], b);
    }
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    float factor = decay<T>(gammas[row + block_row(i)]) * P::scale;
#pragma unroll kUnrollBlocks<T>
    for (int n = 0; n < dv / 16; ++n)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        out[n].c[j][i] *= factor;
        out[n].c[j][i + 1] *= factor;
      }
  }

  cp_async_wait<0>();
  __syncthreads();
#pragma unroll kUnrollBlocks<T>
  for (int k = 0; k < 4; ++k) {
    if (k > warp) continue;
#pragma unroll kUnrollBlocks<T>
    for (int n = 0; n < dv / 16; ++n) {
      Right<T> b;
      load_right(b, values, k * 16, n * 16);
      multiply(out[n], scores[k], b);
    }
  }

  // Nobody reads Q any more; its place is where the rows of this warp become rows of 16 bytes.
#pragma unroll kUnrollBlocks<T>
  for (int n = 0; n < dv / 16; ++n) store_block(outputs, out[n], row, n * 16);
  __syncwarp();
  int lane = thread % 32;
  constexpr int units = dv / kVec<T>;
#pragma unroll
  for (int i = 0; i < units / 2; ++i) {
    int unit = i * 32 + lane, r = row + unit / units, column = unit % units * kVec<T>;
    if (r < chunk.rows)
      *reinterpret_cast<Vec<T, kVec<T>> *>(o + (first + r) * P::outToken + head * P::outHead + column) =
          *reinterpret_cast<const Vec<T, kVec<T>> *>(outputs.at(r, column));
  }
}

// P of gdn_out for every chunk and value head, to `workspace` [Nc, Hv, 64, 64] of T. A block takes one chunk of one key
// head.
template <class P, class T>
Q35_DEVICE void gdn_scores(const T *qn, const T *kn, const T *, const float *, const float *gamma, const T *,
                           const int *seq, T *, T *, unsigned char *workspace) {
  constexpr int dk = P::keyDim, group = P::valueHeads / P::keyHeads;
  using KeyTile = Tile<T, kChunk, dk>;
  using SquareTile = Tile<T, kChunk, kChunk>;
  static_assert(2 * KeyTile::kBytes + SquareTile::kBytes + group * kChunk * 4 == P::sharedBytes);
  int index = int(blockIdx.x) / int(P::keyHeads), keyHead = int(blockIdx.x) % int(P::keyHeads);
  if (index >= seq[1]) return;
  Chunk chunk = chunk_of<P>(seq, index);
  int thread = int(threadIdx.x), row = thread / 32 * 16;
  int64 first = chunk.first, tile = int64(index) * P::valueHeads + keyHead * group;

  unsigned char *at = shared_memory();
  KeyTile queries = {reinterpret_cast<T *>(at)};
  KeyTile keys = {reinterpret_cast<T *>(at += KeyTile::kBytes)};
  SquareTile scores = {reinterpret_cast<T *>(at += KeyTile::kBytes)};
  float *gammas = reinterpret_cast<float *>(at += SquareTile::kBytes);
  copy_async<128>(queries, qn + first * P::queryToken + keyHead * P::queryHead, P::queryToken, chunk.rows, thread);
  copy_async<128>(keys, kn + first * P::keyToken + keyHead * P::keyHead, P::keyToken, chunk.rows, thread);
  cp_async_commit();
  for (int i = thread; i < group * kChunk; i += 128) gammas[i] = gamma[tile * kChunk + i];
  cp_async_wait<0>();
  __syncthreads();

  Acc gram[4];
  clear(gram);
#pragma unroll kUnrollBlocks<T>
  for (int k = 0; k < dk / 16; ++k) {
    Left<T> a;
    load_left(a, queries, row, k * 16);
#pragma unroll kUnrollBlocks<T>
    for (int n = 0; n < 4; ++n) {
      if (n * 16 > row) continue;
      Right<T> b;
      load_right_transposed(b, keys, n * 16, k * 16);
      multiply(gram[n], a, b);
    }
  }
  T *to = reinterpret_cast<T *>(workspace) + tile * (kChunk * kChunk);
  for (int member = 0; member < group; ++member) {
#pragma unroll kUnrollBlocks<T>
    for (int n = 0; n < 4; ++n) {
      Acc block = gram[n];
      if (n * 16 <= row) apply_decay<T>(block, gammas + member * kChunk, row, n * 16, P::scale);
      store_block(scores, block, row, n * 16);
    }
    __syncthreads();
    copy_out<128>(to + member * (kChunk * kChunk), kChunk, scores, thread);
    __syncthreads();
  }
}

template <class P, class T>
Q35_DEVICE void cp_gdn_scan_scores(const T *qn, const T *kn, const T *dO, const float *beta, const float *gamma,
                                   const T *tinv, const float *, const int *seq, const int *, T *dstates, T *z,
                                   unsigned char *workspace) {
  gdn_scores<P>(qn, kn, dO, beta, gamma, tinv, seq, dstates, z, workspace);
}

template <class P, class T>
Q35_DEVICE void cp_gdn_state_scores(const T *qn, const T *kn, const T *dO, const float *beta, const float *gamma,
                                    const T *tinv, const int *seq, const int *, float *, unsigned char *workspace) {
  T *none = nullptr;
  gdn_scores<P>(qn, kn, dO, beta, gamma, tinv, seq, none, none, workspace);
}

} // namespace q35
