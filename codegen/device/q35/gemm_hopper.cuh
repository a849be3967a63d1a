#pragma once
#include "q35/gemm.cuh"
#include "q35/hopper.cuh"

// Products of tiles 128x256 on Hopper by persistent blocks of three warpgroups: one fills stages of shared memory, ahead
// over the borders of tiles; two multiply with wgmma, 64 rows each, and finish their tile while the next is being filled.
//
// Stages hold tiles as gemm.cuh has them: [128] and [256] lines of 128 bytes along k, or panels of 64 columns and 64
// lines across it. That is what boxes of swizzled tensor maps are as well.

namespace q35 {

struct HopperStages {
  static constexpr int kBytesA = 128 * 128, kBytesB = 256 * 128, kBytes = kBytesA + kBytesB;
  static constexpr int kPanel = 64 * 128; // 64 lines
  static constexpr int kThreads = 384;
};

// Shared memory of `Stages` stages, and from kEnd on `Extra` bytes for epilogues.
template <int Stages, int Extra = 0>
struct HopperShared {
  static constexpr int kStages = Stages, kEnd = Stages * HopperStages::kBytes + 128, kBytes = kEnd + Extra;
};

// A tile of C as epilogues see it, see TileProduct.
struct HopperTile {
  static constexpr int kM = 1, kN = 32;
  float c[1][kN][4];
  Q35_DEVICE static int warp_row() { return (int(threadIdx.x) / 32 - 4) * 16; }
  Q35_DEVICE static int warp_column() { return 0; }
  Q35_DEVICE static int row(int, int half) { return warp_row() + half * 8 + int(threadIdx.x) % 32 / 4; }
};

// C = A B^T for tiles blockIdx.x, blockIdx.x + gridDim.x, ... of tiles().
//   work(i)                   what tile i is: `steps` of 64 of k; `rows` of it, 64 or 128 are multiplied. By all threads.
//   look_up(work)             what loading takes a while to look up: a tile ahead. By threads that call `produce`
//   produce(work, found)      a function load(step, a, b, full) that thread 0 of the first warpgroup, or all of it where
//                             Gathered, calls to fill a stage: thread 0 arrives at `full` once, with the bytes of its boxes;
//                             other copies are by cp.async
//   prepare(work)             what is to be looked up for the end, by the warpgroups of the rows
//   finish(tile, work, ready) with what `prepare` found
//   done()                    once, by the warpgroups of the rows, after their last tile
template <int Stages, bool AcrossA, bool AcrossB, bool Gathered, class Tiles, class Work, class LookUp, class Produce,
          class Prepare, class Finish, class Done>
Q35_DEVICE void hopper_products(Tiles tiles, Work work, LookUp look_up, Produce produce, Prepare prepare, Finish finish,
                                Done done) {
  using S = HopperStages;
  unsigned char *shared = shared_memory();
  Barrier *full = reinterpret_cast<Barrier *>(shared + Stages * S::kBytes), *empty = full + Stages;
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    for (int s = 0; s < Stages; ++s) {
      barrier_init(full + s, Gathered ? 128 + 1 : 1);
      barrier_init(empty + s, 8);
    }
    barrier_init_fence();
  }
  __syncthreads();
  int at = 0; // steps of all tiles so far

  if (warp < 4) {
    give_registers<40>();
    if (!Gathered && threadIdx.x != 0) return;
    int count = tiles();
    auto next = work(blockIdx.x < count ? blockIdx.x : 0);
    auto found = look_up(next);
#pragma unroll 1
    for (int i = blockIdx.x; i < count; i += gridDim.x) {
      auto w = next;
      auto load = produce(w, found);
      next = work(i + gridDim.x < count ? i + gridDim.x : i);
      found = look_up(next);
#pragma unroll 1
      for (int step = 0; step < w.steps; ++step, ++at) {
        int s = at % Stages;
        unsigned char *stage = shared + s * S::kBytes;
        barrier_wait(empty + s, at / Stages % 2 ^ 1);
        load(step, stage, stage + S::kBytesA, full + s);
        if constexpr (Gathered) barrier_arrive_copied(full + s);
      }
    }
  } else {
    take_registers<232>();
    int half = warp / 4 - 1, count = tiles();
    auto next = work(blockIdx.x < count ? blockIdx.x : 0);
#pragma unroll 1
    for (int i = blockIdx.x; i < count; i += gridDim.x) {
      // Looked up a tile ahead, and under the products.
      auto w = next;
      next = work(i + gridDim.x < count ? i + gridDim.x : i);
      if (half * 64 >= w.rows) {
#pragma unroll 1
        for (int step = 0; step < w.steps; ++step, ++at) {
          barrier_wait(full + at % Stages, at / Stages % 2);
          __syncwarp(); // No lane may come when the phase after it has ended too.
          if (lane == 0) barrier_arrive(empty + at % Stages);
        }
        continue;
      }
      auto ready = prepare(w);
      HopperTile tile;
#pragma unroll
      for (int n = 0; n < tile.kN; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) tile.c[0][n][e] = 0;
#pragma unroll 1
      for (int step = 0; step < w.steps; ++step, ++at) {
        int s = at % Stages;
        const unsigned char *stage = shared + s * S::kBytes;
        barrier_wait(full + s, at / Stages % 2);
        if constexpr (Gathered) fence_async_proxy();
        uint64 a = wgmma_operand(stage + half * S::kPanel, AcrossA ? S::kPanel : 16, 1024);
        uint64 b = wgmma_operand(stage + S::kBytesA, AcrossB ? S::kPanel : 16, 1024);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < 4; ++k)
          wgmma_add<AcrossA, AcrossB>(tile.c[0], a + k * (AcrossA ? 128 : 2), b + k * (AcrossB ? 128 : 2));
        wgmma_commit();
        wgmma_wait<1>();
        if (step > 0 && lane == 0) barrier_arrive(empty + (at - 1) % Stages);
      }
      wgmma_wait<0>();
      pin(tile.c[0]);
      if (w.steps > 0 && lane == 0) barrier_arrive(empty + (at - 1) % Stages);
      finish(tile, w, ready);
    }
    done();
    bulk_wait_read();
  }
}

// A row of half a tile of bf16 in shared memory: pads spread the rows of a fragment over all banks.
constexpr int kBulkRow = 128 * 2 + 16;
constexpr int kBulkBytes = 8 * 16 * kBulkRow; // of a block

// Stores a tile in bf16 while the next one is multiplied: each warp leaves half of its 16 rows in `shared` (kBulkBytes), from
// where the copy engine takes them. row(i) is where row i of the tile goes, at multiples of 16 bytes, or null; `columns`
// fills 16 bytes.
template <class Row>
Q35_DEVICE void store_tile_bulk(const HopperTile &tile, unsigned char *shared, int columns, Row row) {
  int lane = threadIdx.x % 32;
  unsigned char *own = shared + (threadIdx.x / 32 - 4) * (16 * kBulkRow);
  bf16 *to = row(tile.warp_row() + lane % 16);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    bulk_wait_read();
    __syncwarp();
#pragma unroll
    for (int n = 0; n < 16; ++n)
#pragma unroll
      for (int low = 0; low < 2; ++low) {
        const float(&c)[4] = tile.c[0][half * 16 + n];
        float pair[2] = {c[low * 2], c[low * 2 + 1]};
        store(reinterpret_cast<bf16 *>(own + (low * 8 + lane / 4) * kBulkRow) + n * 8 + lane % 4 * 2, pair);
      }
    fence_async_proxy();
    __syncwarp();
    int left = columns - half * 128;
    if (lane < 16 && left > 0 && to != nullptr)
      bulk_store(to + half * 128, own + lane * kBulkRow, (left < 128 ? left : 128) * 2);
    bulk_commit();
  }
}

// Stores a tile in f32 straight from registers, which leaves shared memory to the products: rows as above. Streaming, since
// it is too much to find it in the cache again; without that, what products read is lost from there, and they take twice
// the time.
template <class Row>
Q35_DEVICE void store_tile_streaming(const HopperTile &tile, int columns, Row row) {
  int lane = threadIdx.x % 32;
  bool odd = lane % 2 != 0;
#pragma unroll
  for (int low = 0; low < 2; ++low) {
    float *line = row(tile.row(0, low));
#pragma unroll
    for (int n = 0; n < 32; n += 2) {
      // Neighbours trade pairs: even lanes get four columns of fragment n, odd ones of fragment n + 1.
      const float *mine = tile.c[0][n] + low * 2, *next = tile.c[0][n + 1] + low * 2;
      float got[2];
#pragma unroll
      for (int e = 0; e < 2; ++e) got[e] = __shfl_xor_sync(0xffffffffu, odd ? mine[e] : next[e], 1);
      float4 four = odd ? make_float4(got[0], got[1], next[0], next[1]) : make_float4(mine[0], mine[1], got[0], got[1]);
      int column = (n + odd) * 8 + lane % 4 / 2 * 4;
      if (line != nullptr && column < columns) __stcs(reinterpret_cast<float4 *>(line + column), four);
    }
  }
}

} // namespace q35
