#pragma once
#include "q35/attention.cuh"
#include "q35/hopper.cuh"

// Attention for heads of 256 bf16 on Hopper. A block has three warpgroups: one copies tiles with TMA, two multiply with
// wgmma, 64 rows each. Everything that attention.cuh says about documents holds; tiles that reach past the end of their
// document bring rows of the next one, so such rows are cleared before they are summed over.
//
// P has the constants of attention.cuh but tiles. The workspace begins with tensor maps, made by a kernel before.

namespace q35 {
namespace attn {

constexpr int kSize = 256, kWide = 64;       // columns of a head, and of a block of a tile
constexpr int kBoxes = kSize / kWide;        // blocks of a tile
constexpr int kProducers = 128, kWarpgroup = 128;
constexpr int kForwardKeys = 80;
constexpr int kBackwardMaps = 4; // tensor maps at the start of the workspace: q, dO, k, v

// Elements of a tile.
template <int Rows>
constexpr int kTile = Rows * kSize;

// Maps of tensors [tokens][heads][256] as {column, token, block of columns, head}: one box is a whole tile.
Q35_DEVICE void make_head_map(TensorMap *map, TensorMap *scratch, const bf16 *base, int64 tokens, int64 heads,
                              int64 tokenStride, int64 headStride, int rows) {
  make_tensor_map(map, scratch, base, {kWide, int(tokens), kBoxes, int(heads)},
                  {tokenStride * 2, kWide * 2, headStride * 2}, {kWide, rows, kBoxes, 1});
}

Q35_DEVICE void load_rows(bf16 *tile, const TensorMap *map, Barrier *barrier, int token, int head) {
  tensor_load(tile, map, barrier, 0, token, 0, head);
}

// Operand of rows of a tile of Rows rows: contraction over the columns in 16 steps of 16, `columns_step` of each to add.
template <int Rows>
Q35_DEVICE uint64 by_columns(const bf16 *tile) {
  return wgmma_operand(tile, 16, 1024);
}
template <int Rows>
Q35_DEVICE constexpr int columns_step(int step) { return step / 4 * (Rows * 128 / 16) + step % 4 * 2; }

// Operand of columns of a tile of Rows rows: contraction over the rows in steps of 16.
template <int Rows>
Q35_DEVICE uint64 by_rows(const bf16 *tile) {
  return wgmma_operand(tile, Rows * 128, 1024);
}
constexpr int kRowsStep = 16 * 128 / 16;

// c [64][8 N] = a b^T of tiles of 64 and 8 N rows; a group of its own.
template <int N>
Q35_DEVICE void start_product(float (&c)[N][4], uint64 a, uint64 b) {
  // Otherwise the operands of all steps of tiles that never move are kept in registers, and those are short.
  hide(a);
  hide(b);
#pragma unroll
  for (int step = 0; step < kSize / 16; ++step)
    wgmma(c, a + columns_step<64>(step), b + columns_step<N * 8>(step), step != 0);
  wgmma_commit();
}

// c [64][256] += p b with p [64][16 K] in registers and b a tile of 16 K rows; a group of its own.
template <int K>
Q35_DEVICE void start_sum(float (&c)[kSize / 8][4], const uint (&p)[K][4], uint64 b) {
#pragma unroll
  for (int step = 0; step < K; ++step) wgmma_registers(c, p[step], b + step * kRowsStep);
  wgmma_commit();
}

// Fragments as first operands of a sum over their columns.
template <int N>
Q35_DEVICE void pack(uint (&to)[N / 2][4], const float (&from)[N][4]) {
#pragma unroll
  for (int k = 0; k < N / 2; ++k) {
    to[k][0] = pack_bf16(from[2 * k][0], from[2 * k][1]);
    to[k][1] = pack_bf16(from[2 * k][2], from[2 * k][3]);
    to[k][2] = pack_bf16(from[2 * k + 1][0], from[2 * k + 1][1]);
    to[k][3] = pack_bf16(from[2 * k + 1][2], from[2 * k + 1][3]);
  }
}

// Clears rows `valid` and on of a tile of Rows rows. By one warpgroup, whose products see it after the barrier that is to
// follow.
template <int Rows>
Q35_DEVICE void clear_rows(bf16 *tile, int valid) {
  constexpr int chunks = kSize / 8; // of a row
  for (int i = threadIdx.x % kWarpgroup; i < (Rows - valid) * chunks; i += kWarpgroup) {
    int row = valid + i / chunks, chunk = i % chunks;
    *reinterpret_cast<uint4 *>(tile + (chunk / 8 * Rows + row) * kWide + chunk % 8 * 8) = make_uint4(0, 0, 0, 0);
  }
  fence_async_proxy();
}

// The 16 rows of this warp, times their factors, through `tile` (64 rows, of this warpgroup) to rows of `to` below
// `valid`. `row` is the first of the warp in the tile.
Q35_DEVICE void store_tile(bf16 *to, int64 stride, int row, int valid, const float (&c)[kSize / 8][4], float upper,
                           float lower, bf16 *tile) {
  int lane = threadIdx.x % 32;
  unsigned char *bytes = reinterpret_cast<unsigned char *>(tile);
#pragma unroll
  for (int n = 0; n < kSize / 8; ++n) {
    unsigned char *block = bytes + n / 8 * (64 * 128) + lane % 4 * 4;
    *reinterpret_cast<uint *>(block + swizzled(row + lane / 4, n % 8)) = pack_bf16(c[n][0] * upper, c[n][1] * upper);
    *reinterpret_cast<uint *>(block + swizzled(row + lane / 4 + 8, n % 8)) = pack_bf16(c[n][2] * lower, c[n][3] * lower);
  }
  __syncwarp();
#pragma unroll 4
  for (int i = 0; i < 16; ++i) {
    if (row + i >= valid) break;
    uint4 chunk = *reinterpret_cast<const uint4 *>(bytes + lane / 8 * (64 * 128) + swizzled(row + i, lane % 8));
    *reinterpret_cast<uint4 *>(to + (row + i) * stride + lane * 8) = chunk;
  }
}

} // namespace attn

// Tensor maps for attention_forward_hopper. One block of 96 threads.
template <class P>
Q35_DEVICE void attention_forward_maps(const bf16 *q, const bf16 *k, const bf16 *v, const int *, bf16 *, float *,
                                       unsigned char *workspace) {
  using namespace attn;
  __shared__ TensorMap scratch[3];
  TensorMap *maps = reinterpret_cast<TensorMap *>(workspace);
  constexpr int64 keyHeads = P::heads / P::group;
  int warp = threadIdx.x / 32;
  if (warp == 0) make_head_map(maps, scratch, q, P::tokens, P::heads, P::qToken, P::qHead, 64);
  if (warp == 1) make_head_map(maps + 1, scratch + 1, k, P::tokens, keyHeads, P::kToken, P::kHead, kForwardKeys);
  if (warp == 2) make_head_map(maps + 2, scratch + 2, v, P::tokens, keyHeads, P::vToken, P::vHead, kForwardKeys);
}

// Shared memory of attention_forward_hopper: 128 queries, two stages of 80 keys and of their values, barriers.
//
// Softmax of a tile of keys runs under the product of the values of the tile before.
template <class P>
Q35_DEVICE void attention_forward_hopper(const bf16 *, const bf16 *, const bf16 *, const int *seq, bf16 *o, float *lse,
                                         unsigned char *workspace) {
  using namespace attn;
  constexpr int rows = 128, keys = kForwardKeys, heads = P::heads, stages = 2;
  constexpr float scale = P::scale * kLog2e;
  int head = blockIdx.x % heads;
  Segment block = find_segment<rows>(seq, int(P::blocks) - 1 - int(blockIdx.x) / heads);
  if (block.rows == 0) return;
  int last = block.first + block.rows - 1 - block.begin; // key that the last query sees
  int tiles = last / keys + 1;

  bf16 *queries = reinterpret_cast<bf16 *>(shared_memory());
  bf16 *keyTiles = queries + kTile<rows>, *valueTiles = keyTiles + stages * kTile<keys>;
  Barrier *barriers = reinterpret_cast<Barrier *>(valueTiles + stages * kTile<keys>);
  Barrier *queriesFull = barriers, *keysFull = barriers + 1, *keysEmpty = keysFull + stages;
  Barrier *valuesFull = keysEmpty + stages, *valuesEmpty = valuesFull + stages;
  if (threadIdx.x == 0) {
    barrier_init(queriesFull, 1);
    for (int s = 0; s < stages; ++s) {
      barrier_init(keysFull + s, 1);
      barrier_init(valuesFull + s, 1);
      barrier_init(keysEmpty + s, 8); // a lane of every warp that multiplies
      barrier_init(valuesEmpty + s, 8);
    }
    barrier_init_fence();
  }
  __syncthreads();

  if (threadIdx.x < kProducers) {
    give_registers<24>();
    if (threadIdx.x != 0) return;
    const TensorMap *maps = reinterpret_cast<const TensorMap *>(workspace);
    for (int i = 0; i < 3; ++i) tensor_map_acquire(maps + i);
    int keyHead = head / int(P::group);
    barrier_arrive_expect(queriesFull, kTile<rows> * 2);
    load_rows(queries, maps, queriesFull, block.first, head);
    load_rows(queries + kTile<64>, maps, queriesFull, block.first + 64, head);
    for (int i = 0; i < tiles; ++i) {
      int s = i % stages, parity = i / stages % 2;
      if (i >= stages) barrier_wait(keysEmpty + s, parity ^ 1);
      barrier_arrive_expect(keysFull + s, kTile<keys> * 2);
      load_rows(keyTiles + s * kTile<keys>, maps + 1, keysFull + s, block.begin + i * keys, keyHead);
      if (i >= stages) barrier_wait(valuesEmpty + s, parity ^ 1);
      barrier_arrive_expect(valuesFull + s, kTile<keys> * 2);
      load_rows(valueTiles + s * kTile<keys>, maps + 2, valuesFull + s, block.begin + i * keys, keyHead);
    }
  } else {
    take_registers<240>();
    int group = __shfl_sync(0xffffffffu, threadIdx.x / kWarpgroup, 0) - 1, lane = threadIdx.x % 32;
    int row = threadIdx.x % kWarpgroup / 32 * 16 + lane / 4; // and row + 8, of the 64 of this warpgroup
    int valid = block.rows - group * 64;                     // rows of the document
    int mine = block.first - block.begin + group * 64;       // key of the first row
    bf16 *ownQueries = queries + group * kTile<64>;
    // This warpgroup may need fewer tiles than the other.
    int ownTiles = valid <= 0 ? 0 : min(tiles, (mine + 63) / keys + 1);

    if (ownTiles > 0) {
      uint64 queryOperand = by_columns<64>(ownQueries);
      uint64 keyOperand = by_columns<keys>(keyTiles), valueOperand = by_rows<keys>(valueTiles);
      constexpr int stageStep = kTile<keys> * 2 / 16;
      float out[kSize / 8][4], score[keys / 8][4];
      uint p[keys / 16][4];
      float sum[2] = {0, 0}, largest[2] = {-infinity(), -infinity()}, correction[2];
      clear(out);

      auto softmax = [&](int tile) {
        if (tile * keys + keys - 1 > mine) {
#pragma unroll
          for (int n = 0; n < keys / 8; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i)
              if (tile * keys + n * 8 + lane % 4 * 2 + i % 2 > mine + row + i / 2 * 8) score[n][i] = -infinity();
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          // Every row sees the first key of its document, so the maximum is finite.
          float now = largest[half];
#pragma unroll
          for (int n = 0; n < keys / 8; ++n)
            now = fmaxf(now, fmaxf(score[n][half * 2], score[n][half * 2 + 1]));
          now = warp_max<4>(now);
          float shift = now * scale, part = 0;
          correction[half] = fast_exp2(fmaf(largest[half], scale, -shift));
          largest[half] = now;
#pragma unroll
          for (int n = 0; n < keys / 8; ++n)
#pragma unroll
            for (int i = 0; i < 2; ++i) {
              float &x = score[n][half * 2 + i];
              x = fast_exp2(fmaf(x, scale, -shift));
              part += x;
            }
          sum[half] = fmaf(sum[half], correction[half], part);
        }
      };

      barrier_wait(queriesFull, 0);
      barrier_wait(keysFull, 0);
      wgmma_fence();
      start_product(score, queryOperand, keyOperand);
      wgmma_wait<0>();
      pin(score);
      if (lane == 0) barrier_arrive(keysEmpty);
      softmax(0);
      pack(p, score);
      for (int i = 1; i < ownTiles; ++i) {
        int s = i % stages, before = (i - 1) % stages;
        barrier_wait(keysFull + s, i / stages % 2);
        pin(score);
        pin(out);
        wgmma_fence();
        start_product(score, queryOperand, keyOperand + s * stageStep);
        barrier_wait(valuesFull + before, (i - 1) / stages % 2);
        wgmma_fence();
        start_sum(out, p, valueOperand + before * stageStep);
        wgmma_wait<1>();
        pin(score);
        softmax(i);
        // The condition, which holds as sums of powers are not negative, keeps the compiler from computing them after the
        // wait.
        if (lane == 0 && float_to_bits(sum[0] + sum[1]) != 0x80000001u) barrier_arrive(keysEmpty + s);
        wgmma_wait<0>();
        pin(out);
        if (lane == 0) barrier_arrive(valuesEmpty + before);
        if (__any_sync(0xffffffffu, correction[0] != 1.0f || correction[1] != 1.0f)) {
#pragma unroll
          for (int n = 0; n < kSize / 8; ++n)
#pragma unroll
            for (int c = 0; c < 4; ++c) out[n][c] *= correction[c / 2];
        }
        pack(p, score);
      }
      int s = (ownTiles - 1) % stages;
      barrier_wait(valuesFull + s, (ownTiles - 1) / stages % 2);
      int inDocument = block.end - block.begin - (ownTiles - 1) * keys;
      if (inDocument < keys) {
        clear_rows<keys>(valueTiles + s * kTile<keys>, inDocument);
        named_barrier_sync(1 + group, kWarpgroup);
      }
      pin(out);
      wgmma_fence();
      start_sum(out, p, valueOperand + s * stageStep);
      wgmma_wait<0>();
      pin(out);
      if (lane == 0) barrier_arrive(valuesEmpty + s);

#pragma unroll
      for (int half = 0; half < 2; ++half) sum[half] = warp_sum<4>(sum[half]);
      int64 token = block.first + group * 64;
      store_tile(o + token * P::oToken + head * P::oHead, P::oToken, row - lane / 4, valid, out, 1.0f / sum[0],
                 1.0f / sum[1], ownQueries);
      if (lane % 4 == 0)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          if (row + half * 8 < valid)
            lse[(token + row + half * 8) * P::lseToken + head] = largest[half] * P::scale + kLn2 * log2f(sum[half]);
    }
    for (int i = ownTiles; i < tiles; ++i) {
      int s = i % stages, parity = i / stages % 2;
      barrier_wait(keysFull + s, parity);
      if (lane == 0) barrier_arrive(keysEmpty + s);
      barrier_wait(valuesFull + s, parity);
      if (lane == 0) barrier_arrive(valuesEmpty + s);
    }
  }
}

// attention_delta, and the tensor maps of the two kernels below by one more block. 128 threads or more.
template <class P>
Q35_DEVICE void attention_delta_hopper(const bf16 *dO, const bf16 *q, const bf16 *k, const bf16 *v, const bf16 *o,
                                       const float *lse, const int *seq, bf16 *dq, bf16 *dk, bf16 *dv,
                                       unsigned char *workspace) {
  using namespace attn;
  if (blockIdx.x != gridDim.x - 1) {
    attention_delta<P>(dO, q, k, v, o, lse, seq, dq, dk, dv, workspace + kBackwardMaps * sizeof(TensorMap));
    return;
  }
  __shared__ TensorMap scratch[kBackwardMaps];
  TensorMap *maps = reinterpret_cast<TensorMap *>(workspace);
  constexpr int64 keyHeads = P::heads / P::group;
  int warp = threadIdx.x / 32;
  if (warp == 0) make_head_map(maps, scratch, q, P::tokens, P::heads, P::qToken, P::qHead, 64);
  if (warp == 1) make_head_map(maps + 1, scratch + 1, dO, P::tokens, P::heads, P::doToken, P::doHead, 64);
  if (warp == 2) make_head_map(maps + 2, scratch + 2, k, P::tokens, keyHeads, P::kToken, P::kHead, 64);
  if (warp == 3) make_head_map(maps + 3, scratch + 3, v, P::tokens, keyHeads, P::vToken, P::vHead, 64);
}

// dk and dv of 64 keys: a loop over tiles of 64 queries, the heads of the group one after another. One warpgroup forms
// probabilities and sums dv, the other forms gradients of scores and sums dk; probabilities go from the first to the
// second through shared memory, each thread's own.
//
// Shared memory: keys, values, two stages of queries and of their dO, two of probabilities (8 KB), two of lse and delta,
// barriers.
template <class P>
Q35_DEVICE void attention_key_gradients_hopper(const bf16 *, const bf16 *, const bf16 *, const bf16 *, const bf16 *,
                                               const float *, const int *seq, bf16 *, bf16 *dk, bf16 *dv,
                                               unsigned char *workspace) {
  using namespace attn;
  constexpr int rows = 64, keyHeads = P::heads / P::group, group = P::group, stages = 2, tile = kTile<rows>;
  int keyHead = blockIdx.x % keyHeads;
  Segment block = find_segment<rows>(seq, blockIdx.x / keyHeads);
  if (block.rows == 0) return;
  int tiles = (block.end - block.first + rows - 1) / rows, total = tiles * group;

  bf16 *keyTile = reinterpret_cast<bf16 *>(shared_memory()), *valueTile = keyTile + tile;
  bf16 *queries = valueTile + tile, *slopes = queries + stages * tile;
  uint4 *passed = reinterpret_cast<uint4 *>(slopes + stages * tile); // [stages][4][kWarpgroup]
  float *rowValues = reinterpret_cast<float *>(passed + stages * 4 * kWarpgroup); // [stages][lse, delta][rows]
  Barrier *keysFull = reinterpret_cast<Barrier *>(rowValues + stages * 2 * rows);
  Barrier *queriesFull = keysFull + 1, *queriesEmpty = queriesFull + stages;
  Barrier *slopesFull = queriesEmpty + stages, *slopesEmpty = slopesFull + stages;
  if (threadIdx.x == 0) {
    barrier_init(keysFull, 1);
    for (int s = 0; s < stages; ++s) {
      barrier_init(queriesFull + s, 2); // the copy, and lse and delta
      barrier_init(slopesFull + s, 2);
      barrier_init(queriesEmpty + s, 8); // a lane of every warp that multiplies
      barrier_init(slopesEmpty + s, 8);
    }
    barrier_init_fence();
  }
  __syncthreads();

  // Named barriers: probabilities of stage s are there, were read.
  auto passedFull = [](int s) { return 1 + s; };
  auto passedEmpty = [](int s) { return 3 + s; };
  constexpr int kBoth = 2 * kWarpgroup;

  if (threadIdx.x < kProducers) {
    give_registers<24>();
    if (threadIdx.x == 0) {
      const TensorMap *maps = reinterpret_cast<const TensorMap *>(workspace);
      for (int i = 0; i < kBackwardMaps; ++i) tensor_map_acquire(maps + i);
      barrier_arrive_expect(keysFull, 2 * tile * 2);
      load_rows(keyTile, maps + 2, keysFull, block.first, keyHead);
      load_rows(valueTile, maps + 3, keysFull, block.first, keyHead);
      int head = keyHead * group, first = block.first;
      for (int i = 0; i < total; ++i) {
        int s = i % stages, parity = i / stages % 2;
        if (i >= stages) barrier_wait(queriesEmpty + s, parity ^ 1);
        barrier_arrive_expect(queriesFull + s, tile * 2);
        load_rows(queries + s * tile, maps, queriesFull + s, first, head);
        if (i >= stages) barrier_wait(slopesEmpty + s, parity ^ 1);
        barrier_arrive_expect(slopesFull + s, tile * 2);
        load_rows(slopes + s * tile, maps + 1, slopesFull + s, first, head);
        first += rows;
        if (first >= block.end) {
          first = block.first;
          ++head;
        }
      }
    } else if (threadIdx.x >= 32 && threadIdx.x < 64) {
      int lane = threadIdx.x % 32;
      const float *lse = reinterpret_cast<const float *>(workspace + kBackwardMaps * sizeof(TensorMap)) +
                         int64(keyHead * group) * P::tokens;
      int first = block.first;
      for (int i = 0; i < total; ++i) {
        int s = i % stages, parity = i / stages % 2;
        float values[4];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          int token = first + lane + half * 32;
          bool valid = token < block.end;
          // Rows past the document get no probability.
          values[half] = valid ? lse[token] : infinity();
          values[2 + half] = valid ? lse[P::heads * P::tokens + token] : 0.0f;
        }
        if (i >= stages) {
          barrier_wait(queriesEmpty + s, parity ^ 1);
          barrier_wait(slopesEmpty + s, parity ^ 1);
        }
#pragma unroll
        for (int j = 0; j < 4; ++j) rowValues[s * 2 * rows + j * 32 + lane] = values[j];
        __syncwarp();
        if (lane == 0) {
          barrier_arrive(queriesFull + s);
          barrier_arrive(slopesFull + s);
        }
        first += rows;
        if (first >= block.end) {
          first = block.first;
          lse += P::tokens;
        }
      }
    }
  } else {
    take_registers<240>();
    constexpr float scale = P::scale * kLog2e;
    constexpr int stageStep = tile * 2 / 16;
    int lane = threadIdx.x % 32, thread = threadIdx.x % kWarpgroup;
    int row = thread / 32 * 16 + lane / 4; // and row + 8: keys of this thread
    // Rows of the last tile of queries that are in the document.
    int validInLast = block.end - block.first - (tiles - 1) * rows;
    uint64 queriesByColumns = by_columns<rows>(queries), queriesByRows = by_rows<rows>(queries);
    uint64 slopesByColumns = by_columns<rows>(slopes), slopesByRows = by_rows<rows>(slopes);
    float out[kSize / 8][4], score[rows / 8][4];
    uint p[rows / 16][4];
    clear(out);
    barrier_wait(keysFull, 0);

    if (threadIdx.x < kProducers + kWarpgroup) {
      uint64 keyOperand = by_columns<rows>(keyTile);
      int position = 0; // of tile i among those of its head
      auto start_scores = [&](int i) {
        int s = i % stages;
        barrier_wait(queriesFull + s, i / stages % 2);
        if (position == tiles - 1 && validInLast < rows) {
          clear_rows<rows>(queries + s * tile, validInLast);
          named_barrier_sync(5, kWarpgroup);
        }
        pin(score);
        wgmma_fence();
        start_product(score, keyOperand, queriesByColumns + s * stageStep);
      };
      auto probabilities = [&](int i) {
        int s = i % stages;
        const float *lse = rowValues + s * 2 * rows + lane % 4 * 2;
#pragma unroll
        for (int n = 0; n < rows / 8; ++n) {
          float pair[2];
          load(pair, lse + n * 8);
#pragma unroll
          for (int c = 0; c < 4; ++c) score[n][c] = fast_exp2(fmaf(score[n][c], scale, -pair[c % 2]));
        }
        if (position == 0) {
#pragma unroll
          for (int n = 0; n < rows / 8; ++n)
#pragma unroll
            for (int c = 0; c < 4; ++c)
              if (n * 8 + lane % 4 * 2 + c % 2 < row + c / 2 * 8) score[n][c] = 0;
        }
        if (lane == 0) barrier_arrive(queriesEmpty + s);
        pack(p, score);
        if (i >= stages) named_barrier_sync(passedEmpty(s), kBoth);
#pragma unroll
        for (int k = 0; k < rows / 16; ++k)
          passed[(s * 4 + k) * kWarpgroup + thread] = make_uint4(p[k][0], p[k][1], p[k][2], p[k][3]);
        named_barrier_arrive(passedFull(s), kBoth);
      };
      auto start_gradient = [&](int i) {
        int s = i % stages;
        barrier_wait(slopesFull + s, i / stages % 2);
        if (position == tiles - 1 && validInLast < rows) {
          clear_rows<rows>(slopes + s * tile, validInLast);
          named_barrier_sync(5, kWarpgroup);
        }
        pin(out);
        wgmma_fence();
        start_sum(out, p, slopesByRows + s * stageStep);
      };
      start_scores(0);
      wgmma_wait<0>();
      pin(score);
      probabilities(0);
      for (int i = 1; i < total; ++i) {
        start_gradient(i - 1);
        if (++position == tiles) position = 0;
        start_scores(i);
        wgmma_wait<1>();
        pin(out);
        if (lane == 0) barrier_arrive(slopesEmpty + (i - 1) % stages);
        wgmma_wait<0>();
        pin(score);
        probabilities(i);
      }
      start_gradient(total - 1);
      wgmma_wait<0>();
      pin(out);
      store_tile(dv + block.first * P::dvToken + keyHead * P::dvHead, P::dvToken, row - lane / 4, block.rows, out, 1.0f,
                 1.0f, keyTile);
    } else {
      uint64 valueOperand = by_columns<rows>(valueTile);
      int position = 0;
      auto start_slopes = [&](int i) {
        int s = i % stages;
        barrier_wait(slopesFull + s, i / stages % 2);
        if (position == tiles - 1 && validInLast < rows) {
          clear_rows<rows>(slopes + s * tile, validInLast);
          named_barrier_sync(6, kWarpgroup);
        }
        pin(score);
        wgmma_fence();
        start_product(score, valueOperand, slopesByColumns + s * stageStep);
      };
      auto gradients = [&](int i) {
        int s = i % stages;
        named_barrier_sync(passedFull(s), kBoth);
        const float *delta = rowValues + s * 2 * rows + rows + lane % 4 * 2;
#pragma unroll
        for (int k = 0; k < rows / 16; ++k) {
          uint4 packed = passed[(s * 4 + k) * kWarpgroup + thread];
          uint words[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            int n = 2 * k + half;
            float pair[2];
            load(pair, delta + n * 8);
#pragma unroll
            for (int c = 0; c < 4; ++c) {
              uint word = words[half * 2 + c / 2];
              float probability = bits_to_float(c % 2 ? word & 0xffff0000u : word << 16);
              score[n][c] = probability * (score[n][c] - pair[c % 2]);
            }
          }
        }
        if (i + stages < total) named_barrier_arrive(passedEmpty(s), kBoth);
        if (lane == 0) barrier_arrive(slopesEmpty + s);
        pack(p, score);
      };
      auto start_gradient = [&](int i) {
        int s = i % stages;
        barrier_wait(queriesFull + s, i / stages % 2);
        if (position == tiles - 1 && validInLast < rows) {
          clear_rows<rows>(queries + s * tile, validInLast);
          named_barrier_sync(6, kWarpgroup);
        }
        pin(out);
        wgmma_fence();
        start_sum(out, p, queriesByRows + s * stageStep);
      };
      start_slopes(0);
      wgmma_wait<0>();
      pin(score);
      gradients(0);
      for (int i = 1; i < total; ++i) {
        start_gradient(i - 1);
        if (++position == tiles) position = 0;
        start_slopes(i);
        wgmma_wait<1>();
        pin(out);
        if (lane == 0) barrier_arrive(queriesEmpty + (i - 1) % stages);
        wgmma_wait<0>();
        pin(score);
        gradients(i);
      }
      start_gradient(total - 1);
      wgmma_wait<0>();
      pin(out);
      store_tile(dk + block.first * P::dkToken + keyHead * P::dkHead, P::dkToken, row - lane / 4, block.rows, out,
                 P::scale, P::scale, valueTile);
    }
  }
}

// dq of 128 queries of a head: a loop over tiles of 64 keys.
//
// Shared memory: queries, their dO, two stages of keys, one of values, barriers.
template <class P>
Q35_DEVICE void attention_query_gradient_hopper(const bf16 *, const bf16 *, const bf16 *, const bf16 *, const bf16 *,
                                                const float *, const int *seq, bf16 *dq, bf16 *, bf16 *,
                                                unsigned char *workspace) {
  using namespace attn;
  constexpr int rows = 128, keys = 64, heads = P::heads, stages = 2, tile = kTile<keys>;
  int head = blockIdx.x % heads;
  Segment block = find_segment<rows>(seq, int(P::blocks) - 1 - int(blockIdx.x) / heads);
  if (block.rows == 0) return;
  int last = block.first + block.rows - 1 - block.begin; // key that the last query sees
  int tiles = last / keys + 1;

  bf16 *queries = reinterpret_cast<bf16 *>(shared_memory()), *slopes = queries + 2 * tile;
  bf16 *keyTiles = slopes + 2 * tile, *valueTile = keyTiles + stages * tile;
  Barrier *queriesFull = reinterpret_cast<Barrier *>(valueTile + tile);
  Barrier *keysFull = queriesFull + 1, *keysEmpty = keysFull + stages;
  Barrier *valuesFull = keysEmpty + stages, *valuesEmpty = valuesFull + 1;
  if (threadIdx.x == 0) {
    barrier_init(queriesFull, 1);
    for (int s = 0; s < stages; ++s) {
      barrier_init(keysFull + s, 1);
      barrier_init(keysEmpty + s, 8); // a lane of every warp that multiplies
    }
    barrier_init(valuesFull, 1);
    barrier_init(valuesEmpty, 8);
    barrier_init_fence();
  }
  __syncthreads();

  if (threadIdx.x < kProducers) {
    give_registers<24>();
    if (threadIdx.x != 0) return;
    const TensorMap *maps = reinterpret_cast<const TensorMap *>(workspace);
    for (int i = 0; i < kBackwardMaps; ++i) tensor_map_acquire(maps + i);
    int keyHead = head / int(P::group);
    barrier_arrive_expect(queriesFull, 4 * tile * 2);
    for (int half = 0; half < 2; ++half) {
      load_rows(queries + half * tile, maps, queriesFull, block.first + half * 64, head);
      load_rows(slopes + half * tile, maps + 1, queriesFull, block.first + half * 64, head);
    }
    for (int i = 0; i < tiles; ++i) {
      int s = i % stages;
      if (i >= stages) barrier_wait(keysEmpty + s, (i / stages % 2) ^ 1);
      barrier_arrive_expect(keysFull + s, tile * 2);
      load_rows(keyTiles + s * tile, maps + 2, keysFull + s, block.begin + i * keys, keyHead);
      if (i >= 1) barrier_wait(valuesEmpty, (i % 2) ^ 1);
      barrier_arrive_expect(valuesFull, tile * 2);
      load_rows(valueTile, maps + 3, valuesFull, block.begin + i * keys, keyHead);
    }
  } else {
    take_registers<240>();
    constexpr float scale = P::scale * kLog2e;
    constexpr int stageStep = tile * 2 / 16;
    int group = __shfl_sync(0xffffffffu, threadIdx.x / kWarpgroup, 0) - 1, lane = threadIdx.x % 32;
    int row = threadIdx.x % kWarpgroup / 32 * 16 + lane / 4; // and row + 8, of the 64 of this warpgroup
    int valid = block.rows - group * 64;                     // rows of the document
    int mine = block.first - block.begin + group * 64;       // key of the first row
    // This warpgroup may need fewer tiles than the other.
    int ownTiles = valid <= 0 ? 0 : min(tiles, mine / keys + 1);

    if (ownTiles > 0) {
      bf16 *ownQueries = queries + group * tile;
      uint64 queryOperand = by_columns<64>(ownQueries), slopeOperand = by_columns<64>(slopes + group * tile);
      uint64 keysByColumns = by_columns<keys>(keyTiles), keysByRows = by_rows<keys>(keyTiles);
      uint64 valueOperand = by_columns<keys>(valueTile);
      const float *rowValues = reinterpret_cast<const float *>(workspace + kBackwardMaps * sizeof(TensorMap)) +
                               head * P::tokens + block.first + group * 64 + row;
      float lse[2], delta[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        bool inside = row + half * 8 < valid;
        lse[half] = inside ? rowValues[half * 8] : infinity();
        delta[half] = inside ? rowValues[P::heads * P::tokens + half * 8] : 0.0f;
      }
      float out[kSize / 8][4], score[keys / 8][4], slope[keys / 8][4];
      uint p[keys / 16][4];
      clear(out);
      auto start_scores = [&](int i) {
        int s = i % stages;
        barrier_wait(keysFull + s, i / stages % 2);
        pin(score);
        wgmma_fence();
        start_product(score, queryOperand, keysByColumns + s * stageStep);
      };
      auto start_slopes = [&](int i) {
        barrier_wait(valuesFull, i % 2);
        pin(slope);
        wgmma_fence();
        start_product(slope, slopeOperand, valueOperand);
      };
      // Between the two products of tile i and the sum of it.
      auto gradients = [&](int i) {
#pragma unroll
        for (int n = 0; n < keys / 8; ++n)
#pragma unroll
          for (int c = 0; c < 4; ++c) score[n][c] = fast_exp2(fmaf(score[n][c], scale, -lse[c / 2]));
        // The condition, which holds as powers are not negative, keeps the compiler from computing them after the wait.
        uint all = 0;
#pragma unroll
        for (int n = 0; n < keys / 8; ++n)
#pragma unroll
          for (int c = 0; c < 4; ++c) all |= float_to_bits(score[n][c]);
        if (lane == 0 && i > 0 && all != 0x80000001u) barrier_arrive(keysEmpty + (i - 1) % stages);
        wgmma_wait<0>();
        pin(slope);
        if (lane == 0) barrier_arrive(valuesEmpty);
#pragma unroll
        for (int n = 0; n < keys / 8; ++n)
#pragma unroll
          for (int c = 0; c < 4; ++c) score[n][c] *= slope[n][c] - delta[c / 2];
        if (i * keys + keys - 1 > mine) {
#pragma unroll
          for (int n = 0; n < keys / 8; ++n)
#pragma unroll
            for (int c = 0; c < 4; ++c)
              if (i * keys + n * 8 + lane % 4 * 2 + c % 2 > mine + row + c / 2 * 8) score[n][c] = 0;
        }
        pack(p, score);
      };
      auto start_gradient = [&](int i) {
        pin(out);
        wgmma_fence();
        start_sum(out, p, keysByRows + i % stages * stageStep);
      };
      barrier_wait(queriesFull, 0);
      start_scores(0);
      start_slopes(0);
      wgmma_wait<1>();
      pin(score);
      gradients(0);
      for (int i = 1; i < ownTiles; ++i) {
        start_gradient(i - 1);
        start_scores(i);
        wgmma_wait<1>();
        pin(out);
        // Now the registers of p are free for this one.
        start_slopes(i);
        wgmma_wait<1>();
        pin(score);
        gradients(i);
      }
      int inDocument = block.end - block.begin - (ownTiles - 1) * keys;
      if (inDocument < keys) {
        clear_rows<keys>(keyTiles + (ownTiles - 1) % stages * tile, inDocument);
        named_barrier_sync(1 + group, kWarpgroup);
      }
      start_gradient(ownTiles - 1);
      wgmma_wait<0>();
      pin(out);
      if (lane == 0) barrier_arrive(keysEmpty + (ownTiles - 1) % stages);
      store_tile(dq + (block.first + group * 64) * P::dqToken + head * P::dqHead, P::dqToken, row - lane / 4, valid, out,
                 P::scale, P::scale, ownQueries);
    }
    for (int i = ownTiles; i < tiles; ++i) {
      int s = i % stages;
      barrier_wait(keysFull + s, i / stages % 2);
      if (lane == 0) barrier_arrive(keysEmpty + s);
      barrier_wait(valuesFull, i % 2);
      if (lane == 0) barrier_arrive(valuesEmpty);
    }
  }
}

} // namespace q35
