#pragma once
#include "q35/gemm_hopper.cuh"
#include "q35/moe.cuh"

// The products of moe.cuh for bf16 on Hopper. Weights and activations come as boxes of tensor maps, rows of x and dy by
// cp.async. Sizes are multiples of 64.

namespace q35 {

// Tensor maps in the workspace.
struct MoeMaps {
  enum {
    kGateUp,       // w_gate_up along k, in strips of eight: gate, then up
    kDown,         // w_down along k
    kH,            // h along k
    kForward,      // so many in moe_experts
    kDownAcross = kDown, // and in moe_experts_bwd: w_down across k
    kGateUpAcross = kForward,
    kD,       // d(gate, up) along k
    kDAcross, // and across it
    kBackward,
    kHAcross = kH,
  };
};

template <class P>
Q35_DEVICE TensorMap *moe_maps(unsigned char *workspace) {
  return reinterpret_cast<TensorMap *>(workspace + P::mapsAt);
}

// Stage 1 of the plan, and one more block that makes the maps.
template <class P, class... Args>
Q35_DEVICE void moe_plan_count_hopper(Args... args) {
  using Plan = RoutePlan<P>;
  if (blockIdx.x < Plan::kBlocks) return moe_plan_count<P>(args...);
  auto a = moe_arguments(args...);
  MoeBuffers<P, bf16> buffers(a.workspace);
  __shared__ TensorMap scratch[8];
  int warp = threadIdx.x / 32;
  TensorMap *map = moe_maps<P>(a.workspace) + warp, *own = scratch + warp;
  constexpr int D = P::hidden, I = P::width, E = P::experts, R = Plan::kRows;
  constexpr int64 gateUpRow = P::gateUpStride * 2, downRow = P::downStride * 2;
  // Rows of an activation along k, 64 a box; columns across it, 64 rows and `columns` / 64 panels a box.
  auto along = [&](const bf16 *base, int64 width) {
    make_tensor_map(map, own, base, {int(width), R, 1, 1}, {width * 2, width * 2, width * 2}, {64, 64, 1, 1});
  };
  auto across = [&](const bf16 *base, int64 width, int columns) {
    make_tensor_map(map, own, base, {64, R, int(width / 64), 1}, {width * 2, 128, width * 2}, {64, 64, columns / 64, 1});
  };
  if (warp == MoeMaps::kGateUp)
    make_tensor_map(map, own, a.gateUp, {D, 8, 2, (2 * E - 1) * I / 8}, {gateUpRow, I * gateUpRow, 8 * gateUpRow},
                    {64, 8, 2, 16});
  if constexpr (!P::backward) {
    if (warp == MoeMaps::kDown)
      make_tensor_map(map, own, a.down, {I, D, E, 1}, {downRow, P::downExpert * 2, downRow}, {64, 256, 1, 1});
    if (warp == MoeMaps::kH) along(buffers.h, I);
  } else {
    if (warp == MoeMaps::kDownAcross)
      make_tensor_map(map, own, a.down, {64, D, I / 64, E}, {downRow, 128, P::downExpert * 2}, {64, 64, 4, 1});
    if (warp == MoeMaps::kHAcross) across(buffers.h, I, 256);
    if (warp == MoeMaps::kGateUpAcross)
      make_tensor_map(map, own, a.gateUp, {64, 2 * I, D / 64, E}, {gateUpRow, 128, P::gateUpExpert * 2}, {64, 64, 4, 1});
    if (warp == MoeMaps::kD) along(buffers.gateUp, 2 * I);
    if (warp == MoeMaps::kDAcross) across(buffers.gateUp, 2 * I, 128);
  }
}

// A tile of a product of rows.
struct MoeRowsWork {
  MoeRows tile;
  int column, steps, rows;
};

using MoeRowsShared = HopperShared<4, kBulkBytes>;
using MoeGradientShared = HopperShared<4>;

struct Nothing {};

// Weights of the two rows of a thread.
struct HopperWeights {
  float half[2];
};
template <class P>
Q35_DEVICE HopperWeights hopper_weights(const float *weights, const RoutePlan<P> &plan, MoeRows rows) {
  const int *slots = plan.slots + rows.first;
  return {{row_weight<P>(weights, slots, HopperTile::row(0, 0), rows.count),
           row_weight<P>(weights, slots, HopperTile::row(0, 1), rows.count)}};
}

// Works on tiles of `tileColumns` of `columns`, k deep.
template <bool AcrossB, bool Gathered, class P, class Produce, class Prepare, class Finish>
Q35_DEVICE void hopper_rows(const RoutePlan<P> &plan, int columns, int tileColumns, int k, Produce produce,
                            Prepare prepare, Finish finish) {
  int columnTiles = (columns + tileColumns - 1) / tileColumns;
  auto work = [&](int i) {
    MoeRows rows = moe_rows(plan, i / columnTiles);
    return MoeRowsWork{rows, i % columnTiles * tileColumns, k / 64, rows.stored};
  };
  hopper_products<MoeRowsShared::kStages, false, AcrossB, Gathered>(
      [&] { return plan.tiles[0] * columnTiles; }, work, [](MoeRowsWork) { return Nothing(); }, produce, prepare, finish,
      [] {});
}

// The first 64 or 128 rows of a tile along k. Thread 0.
Q35_DEVICE void load_rows(unsigned char *to, const TensorMap *map, Barrier *full, int step, MoeRows rows) {
  tensor_load(to, map, full, step * 64, rows.first, 0, 0);
  if (rows.stored > 64) tensor_load(to + HopperStages::kPanel, map, full, step * 64, rows.first + 64, 0, 0);
}

// A tile of out.
template <class P>
Q35_DEVICE void hopper_out(const HopperTile &tile, bf16 *out, MoeRows rows, int column) {
  store_tile_bulk(tile, shared_memory() + MoeRowsShared::kEnd, int(P::hidden) - column, [&](int row) {
    return row < rows.count ? out + (rows.first + row) * P::hidden + column : nullptr;
  });
}

template <class P, class... Args>
Q35_DEVICE void moe_up_hopper(Args... args) {
  auto a = moe_arguments(args...);
  RoutePlan<P> plan(a.workspace);
  const TensorMap *map = moe_maps<P>(a.workspace) + MoeMaps::kGateUp;
  if (threadIdx.x == 0) tensor_map_acquire(map);
  hopper_rows<false, true>(
      plan, P::width, 128, P::hidden,
      [&](MoeRowsWork w, Nothing) {
        GatheredLines<P, bf16, true> x{a.x, P::xStride, plan.slots + w.tile.first, w.tile.count, P::hidden};
        TileLoader<decltype(x), 128, 128> loader(x, threadIdx.x);
        int strip = (w.tile.expert * 2 * int(P::width) + w.column) / 8;
        return [=](int step, unsigned char *to, unsigned char *toB, Barrier *full) {
          if (threadIdx.x == 0) {
            barrier_arrive_expect(full, HopperStages::kBytesB);
            tensor_load(toB, map, full, step * 64, 0, 0, strip);
          }
          loader.load(to, step * 64);
        };
      },
      [&](MoeRowsWork w) {
        if constexpr (P::backward) return Nothing();
        else return hopper_weights(a.weights, plan, w.tile);
      },
      [&](const HopperTile &tile, MoeRowsWork w, auto ready) {
        finish_up<P>(tile, a, w.tile, w.column, [&](int, int half) {
          if constexpr (P::backward) return 0.0f;
          else return ready.half[half];
        });
      });
}

template <class P, class... Args>
Q35_DEVICE void moe_down_hopper(Args... args) {
  auto a = moe_arguments(args...);
  RoutePlan<P> plan(a.workspace);
  MoeBuffers<P, bf16> buffers(a.workspace);
  const TensorMap *maps = moe_maps<P>(a.workspace);
  if (threadIdx.x == 0) {
    tensor_map_acquire(maps + MoeMaps::kH);
    tensor_map_acquire(maps + MoeMaps::kDown);
  }
  hopper_rows<false, false>(
      plan, P::hidden, 256, P::width,
      [&](MoeRowsWork w, Nothing) {
        return [=](int step, unsigned char *to, unsigned char *toB, Barrier *full) {
          barrier_arrive_expect(full, HopperStages::kBytesB + w.rows * 128);
          tensor_load(toB, maps + MoeMaps::kDown, full, step * 64, w.column, w.tile.expert, 0);
          load_rows(to, maps + MoeMaps::kH, full, step, w.tile);
        };
      },
      [](MoeRowsWork) { return Nothing(); },
      [&](const HopperTile &tile, MoeRowsWork w, Nothing) { hopper_out<P>(tile, buffers.out, w.tile, w.column); });
}

template <class P, class... Args>
Q35_DEVICE void moe_down_bwd_hopper(Args... args) {
  auto a = moe_arguments(args...);
  RoutePlan<P> plan(a.workspace);
  const TensorMap *map = moe_maps<P>(a.workspace) + MoeMaps::kDownAcross;
  if (threadIdx.x == 0) tensor_map_acquire(map);
  hopper_rows<true, true>(
      plan, P::width, 256, P::hidden,
      [&](MoeRowsWork w, Nothing) {
        GatheredLines<P, bf16, true> dy{a.dy, P::dyStride, plan.slots + w.tile.first, w.tile.count, P::hidden};
        TileLoader<decltype(dy), 128, 128> loader(dy, threadIdx.x);
        return [=](int step, unsigned char *to, unsigned char *toB, Barrier *full) {
          if (threadIdx.x == 0) {
            barrier_arrive_expect(full, HopperStages::kBytesB);
            tensor_load(toB, map, full, 0, step * 64, w.column / 64, w.tile.expert);
          }
          loader.load(to, step * 64);
        };
      },
      [&](MoeRowsWork w) { return hopper_weights(a.weights, plan, w.tile); },
      [&](const HopperTile &tile, MoeRowsWork w, HopperWeights ready) {
        finish_down_bwd<P>(tile, a, w.tile, w.column, [&](int, int half) { return ready.half[half]; });
      });
}

template <class P, class... Args>
Q35_DEVICE void moe_up_bwd_hopper(Args... args) {
  auto a = moe_arguments(args...);
  RoutePlan<P> plan(a.workspace);
  MoeBuffers<P, bf16> buffers(a.workspace);
  const TensorMap *maps = moe_maps<P>(a.workspace);
  if (threadIdx.x == 0) {
    tensor_map_acquire(maps + MoeMaps::kD);
    tensor_map_acquire(maps + MoeMaps::kGateUpAcross);
  }
  hopper_rows<true, false>(
      plan, P::hidden, 256, 2 * P::width,
      [&](MoeRowsWork w, Nothing) {
        return [=](int step, unsigned char *to, unsigned char *toB, Barrier *full) {
          barrier_arrive_expect(full, HopperStages::kBytesB + w.rows * 128);
          tensor_load(toB, maps + MoeMaps::kGateUpAcross, full, 0, step * 64, w.column / 64, w.tile.expert);
          load_rows(to, maps + MoeMaps::kD, full, step, w.tile);
        };
      },
      [](MoeRowsWork) { return Nothing(); },
      [&](const HopperTile &tile, MoeRowsWork w, Nothing) { hopper_out<P>(tile, buffers.out, w.tile, w.column); });
}

// A tile of the gradient of a parameter.
struct MoeWeightWork {
  WeightTile tile;
  int steps, rows;
};

// Tokens of those of 64 slots of which this thread, one of 128, loads 16 bytes of each panel; -1 where there is no slot.
struct SlotRows {
  static constexpr int kEach = 4;
  int token[kEach];
};
template <class P>
Q35_DEVICE SlotRows slot_rows(const RoutePlan<P> &plan, WeightTile w, int first) {
  SlotRows rows;
#pragma unroll
  for (int pass = 0; pass < SlotRows::kEach; ++pass) {
    int i = first + pass * 16 + int(threadIdx.x) / 8;
    rows.token[pass] = i < w.count ? plan.slots[w.first + i] / int(P::topK) : -1;
  }
  return rows;
}

// Starts to load these rows of x or dy: panels of 64 columns, of which there are `columns` from `base` on.
template <int Panels>
Q35_DEVICE void load_slot_rows(unsigned char *to, const bf16 *base, int stride, int columns, const SlotRows &rows) {
  int chunk = threadIdx.x % 8, mine = threadIdx.x / 8;
#pragma unroll
  for (int pass = 0; pass < SlotRows::kEach; ++pass)
#pragma unroll
    for (int panel = 0; panel < Panels; ++panel) {
      bool valid = rows.token[pass] >= 0 && panel * 64 + chunk * 8 < columns;
      int column = panel * 64 + chunk * 8;
      cp_async16(to + panel * HopperStages::kPanel + tile_chunk(pass * 16 + mine, chunk),
                 base + (valid ? rows.token[pass] * stride + column : 0), valid);
    }
}

// Sums of squares go from `firstSquares` on.
template <int M, int N, class P, class Produce, class Finish>
Q35_DEVICE void hopper_gradient(const RoutePlan<P> &plan, unsigned char *workspace, int firstSquares, Produce produce,
                                Finish finish) {
  GradientSquares<P> squares;
  auto work = [&](int i) {
    WeightTile tile = weight_tile<P, M, N, 256>(plan, i);
    return MoeWeightWork{tile, plan.aligned(tile.count) / 64, M - tile.m < 128 ? M - tile.m : 128};
  };
  auto look_up = [&](MoeWeightWork w) { return slot_rows<P>(plan, w.tile, 0); };
  hopper_products<MoeGradientShared::kStages, true, true, true>(
      [] { return kWeightTiles<P, M, N, 256>; }, work, look_up, produce, [](MoeWeightWork) { return Nothing(); },
      [&](HopperTile &tile, MoeWeightWork w, Nothing) { finish(tile, w, squares); },
      [&] { squares.store(workspace, firstSquares, threadIdx.x / 32 - 4); });
}

template <class P, class... Args>
Q35_DEVICE void moe_gate_up_gradient_hopper(Args... args) {
  auto a = moe_arguments(args...);
  RoutePlan<P> plan(a.workspace);
  const TensorMap *map = moe_maps<P>(a.workspace) + MoeMaps::kDAcross;
  if (threadIdx.x == 0) tensor_map_acquire(map);
  constexpr int M = 2 * P::width, N = P::hidden;
  hopper_gradient<M, N>(
      plan, a.workspace, 0,
      [&](MoeWeightWork w, SlotRows rows) {
        return [=, &plan](int step, unsigned char *to, unsigned char *toB, Barrier *full) mutable {
          if (threadIdx.x == 0) {
            barrier_arrive_expect(full, HopperStages::kBytesA);
            tensor_load(to, map, full, 0, w.tile.first + step * 64, w.tile.m / 64, 0);
          }
          load_slot_rows<4>(toB, a.x + w.tile.n, P::xStride, N - w.tile.n, rows);
          rows = slot_rows<P>(plan, w.tile, step * 64 + 64);
        };
      },
      [&](HopperTile &tile, MoeWeightWork w, GradientSquares<P> &squares) {
        add_gate_up_gradient<P>(tile, a, w.tile);
        squares.add(tile);
        float *first = a.dGateUp + w.tile.expert * P::dGateUpExpert + w.tile.m * P::dGateUpStride + w.tile.n;
        store_tile_streaming(tile, N - w.tile.n, [&](int row) { return first + row * P::dGateUpStride; });
      });
}

template <class P, class... Args>
Q35_DEVICE void moe_down_gradient_hopper(Args... args) {
  auto a = moe_arguments(args...);
  RoutePlan<P> plan(a.workspace);
  const TensorMap *map = moe_maps<P>(a.workspace) + MoeMaps::kHAcross;
  if (threadIdx.x == 0) tensor_map_acquire(map);
  constexpr int M = P::hidden, N = P::width;
  hopper_gradient<M, N>(
      plan, a.workspace, P::downSquares,
      [&](MoeWeightWork w, SlotRows rows) {
        return [=, &plan](int step, unsigned char *to, unsigned char *toB, Barrier *full) mutable {
          if (threadIdx.x == 0) {
            barrier_arrive_expect(full, HopperStages::kBytesB);
            tensor_load(toB, map, full, 0, w.tile.first + step * 64, w.tile.n / 64, 0);
          }
          load_slot_rows<2>(to, a.dy + w.tile.m, P::dyStride, M - w.tile.m, rows);
          rows = slot_rows<P>(plan, w.tile, step * 64 + 64);
        };
      },
      [&](HopperTile &tile, MoeWeightWork w, GradientSquares<P> &squares) {
        add_down_gradient<P>(tile, a, w.tile);
        squares.add(tile);
        float *first = a.dDown + w.tile.expert * P::dDownExpert + w.tile.m * P::dDownStride + w.tile.n;
        store_tile_streaming(tile, N - w.tile.n, [&](int row) { return first + row * P::dDownStride; });
      });
}

} // namespace q35
