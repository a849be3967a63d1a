#pragma once
#include "q35/gemm.cuh"

// Routed experts without dropping: moe_experts and moe_experts_bwd.
//
// The tokens * topK slots (slot = token * topK + choice) are sorted by expert, then by slot, into rows. The rows of an
// expert follow each other; empty ones, which have no slot, fill them up to a multiple of 64, so that no 64 rows belong to
// two experts. Activations of the workspace are by row, zeros in empty ones; x and dy are gathered by the products that
// read them, and sums over the slots of a token read rows back in slot order. Row counts never leave the device: grids are
// persistent and walk a list of row tiles. With P::shard a slot of expert -1 is another rank's: it has no row, and what
// would come of it is 0.

namespace q35 {

template <class T>
struct MoeArguments {
  using Element = T;
  const T *dy, *x;
  const float *weights;
  const int *idx;
  const T *gateUp, *down; // the parameters
  T *y, *dx;
  float *dweights, *dGateUp, *dDown;
  unsigned char *workspace;
  const float *accGateUp = nullptr, *accDown = nullptr; // P::accumulate: laid out as dGateUp and dDown
  double *squares = nullptr;                            // P::squares: sum of the squares of dGateUp and dDown
};

template <class T>
Q35_DEVICE MoeArguments<T> moe_arguments(const T *x, const float *weights, const int *idx, const T *gateUp,
                                         const T *down, T *y, unsigned char *workspace) {
  return {nullptr, x, weights, idx, gateUp, down, y, nullptr, nullptr, nullptr, nullptr, workspace};
}

template <class T>
Q35_DEVICE MoeArguments<T> moe_arguments(const T *dy, const T *x, const float *weights, const int *idx,
                                         const T *gateUp, const T *down, T *dx, float *dweights, float *dGateUp,
                                         float *dDown, unsigned char *workspace) {
  return {dy, x, weights, idx, gateUp, down, nullptr, dx, dweights, dGateUp, dDown, workspace};
}

template <class T>
Q35_DEVICE MoeArguments<T> moe_arguments(const T *dy, const T *x, const float *weights, const int *idx,
                                         const T *gateUp, const T *down, const float *accGateUp, const float *accDown,
                                         T *dx, float *dweights, float *dGateUp, float *dDown,
                                         unsigned char *workspace) {
  return {dy, x, weights, idx, gateUp, down, nullptr, dx, dweights, dGateUp, dDown, workspace, accGateUp, accDown};
}

template <class T>
Q35_DEVICE MoeArguments<T> moe_arguments(const T *dy, const T *x, const float *weights, const int *idx,
                                         const T *gateUp, const T *down, T *dx, float *dweights, float *dGateUp,
                                         float *dDown, double *squares, unsigned char *workspace) {
  return {dy, x, weights, idx, gateUp, down, nullptr, dx, dweights, dGateUp, dDown, workspace, nullptr, nullptr, squares};
}

template <class T>
Q35_DEVICE MoeArguments<T> moe_arguments(const T *dy, const T *x, const float *weights, const int *idx,
                                         const T *gateUp, const T *down, const float *accGateUp, const float *accDown,
                                         T *dx, float *dweights, float *dGateUp, float *dDown, double *squares,
                                         unsigned char *workspace) {
  return {dy, x, weights, idx, gateUp, down, nullptr, dx, dweights, dGateUp, dDown, workspace, accGateUp, accDown, squares};
}

// The plan in the workspace.
template <class P>
struct RoutePlan {
  static constexpr int kTileRows = 128, kAlign = 64;
  static constexpr int kTopK = P::topK, kSlots = P::tokens * P::topK;
  static constexpr int kUsable = P::experts < kSlots ? P::experts : kSlots; // experts that can have rows
  static constexpr int kRows = kSlots + kUsable * (kAlign - 1);
  static constexpr int kBlockSlots = 512; // per block of the plan's stages
  static constexpr int kBlocks = (kSlots + kBlockSlots - 1) / kBlockSlots;
  static constexpr int kMaxTiles = (kSlots + kTileRows - 1) / kTileRows + kUsable;

  int *counts;  // [experts][kBlocks]: slots of a block that went to an expert; then of all blocks before it
  int *totals;  // [experts], rows that have slots
  int *offsets; // [experts], first row of an expert
  int *tiles;   // [0]: row tiles; then an expert and a first row for each
  int *slots;   // [kRows], slot of a row, or -1
  int *rows;    // [kSlots], row of a slot, or -1

  Q35_DEVICE explicit RoutePlan(unsigned char *workspace) {
    counts = reinterpret_cast<int *>(workspace);
    totals = counts + P::experts * kBlocks;
    offsets = totals + P::experts;
    tiles = offsets + P::experts;
    slots = tiles + 1 + 2 * kMaxTiles;
    rows = slots + kRows;
  }

  Q35_DEVICE static int aligned(int rows) { return (rows + kAlign - 1) / kAlign * kAlign; }
};

Q35_DEVICE int inclusive_warp_scan(int value) {
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    int before = __shfl_up_sync(0xffffffffu, value, step);
    if (int(threadIdx.x) % 32 >= step) value += before;
  }
  return value;
}

// Stage 1 of the plan, kBlocks blocks of 256 threads: counts of a block. Shared memory: an int per expert.
template <class P, class... Args>
Q35_DEVICE void moe_plan_count(Args... args) {
  auto a = moe_arguments(args...);
  using Plan = RoutePlan<P>;
  Plan plan(a.workspace);
  int *count = reinterpret_cast<int *>(shared_memory());
  for (int e = threadIdx.x; e < P::experts; e += blockDim.x) count[e] = 0;
  __syncthreads();
  int first = blockIdx.x * Plan::kBlockSlots;
  for (int i = threadIdx.x; i < Plan::kBlockSlots; i += blockDim.x)
    if (int slot = first + i; slot < Plan::kSlots) {
      int e = a.idx[slot / Plan::kTopK * P::idxStride + slot % Plan::kTopK];
      if (!P::shard || e >= 0) atomicAdd(&count[e], 1);
    }
  __syncthreads();
  for (int e = threadIdx.x; e < P::experts; e += blockDim.x) plan.counts[e * Plan::kBlocks + blockIdx.x] = count[e];
}

// Stage 2, a warp per expert: running sums over blocks.
template <class P, class... Args>
Q35_DEVICE void moe_plan_scan(Args... args) {
  auto a = moe_arguments(args...);
  using Plan = RoutePlan<P>;
  Plan plan(a.workspace);
  int e = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (e >= P::experts) return;
  int *counts = plan.counts + e * Plan::kBlocks, total = 0;
  for (int first = 0; first < Plan::kBlocks; first += 32) {
    bool inside = first + lane < Plan::kBlocks;
    int count = inside ? counts[first + lane] : 0, sum = inclusive_warp_scan(count);
    if (inside) counts[first + lane] = total + sum - count;
    total += __shfl_sync(0xffffffffu, sum, 31);
  }
  if (lane == 0) plan.totals[e] = total;
}

// Stage 3, kBlocks blocks of 256 threads: rows of the block's slots; block 0 also writes offsets and tiles. Shared memory:
// kBlockSlots + 16 ints and two per expert.
template <class P, class... Args>
Q35_DEVICE void moe_plan_rows(Args... args) {
  auto a = moe_arguments(args...);
  using Plan = RoutePlan<P>;
  constexpr int kThreads = 256, kPerThread = (P::experts + kThreads - 1) / kThreads;
  Plan plan(a.workspace);
  int *expertOf = reinterpret_cast<int *>(shared_memory()), *warpRows = expertOf + Plan::kBlockSlots;
  int *warpTiles = warpRows + kThreads / 32, *offset = warpTiles + kThreads / 32, *firstTile = offset + P::experts;
  int thread = threadIdx.x, lane = thread % 32, warp = thread / 32, first = blockIdx.x * Plan::kBlockSlots;

  for (int i = thread; i < Plan::kBlockSlots; i += kThreads) {
    int slot = first + i;
    expertOf[i] = slot < Plan::kSlots ? a.idx[slot / Plan::kTopK * P::idxStride + slot % Plan::kTopK] : -1;
  }
  // Every thread takes kPerThread experts that follow each other.
  auto tilesOf = [](int rows) { return (rows + Plan::kTileRows - 1) / Plan::kTileRows; };
  int rows = 0, tiles = 0;
  for (int i = 0; i < kPerThread; ++i)
    if (int e = thread * kPerThread + i; e < P::experts) {
      rows += plan.aligned(plan.totals[e]);
      tiles += tilesOf(plan.totals[e]);
    }
  int rowSum = inclusive_warp_scan(rows), tileSum = inclusive_warp_scan(tiles);
  if (lane == 31) {
    warpRows[warp] = rowSum;
    warpTiles[warp] = tileSum;
  }
  __syncthreads();
  rowSum -= rows;
  tileSum -= tiles;
  for (int w = 0; w < warp; ++w) {
    rowSum += warpRows[w];
    tileSum += warpTiles[w];
  }
  for (int i = 0; i < kPerThread; ++i)
    if (int e = thread * kPerThread + i; e < P::experts) {
      offset[e] = rowSum;
      firstTile[e] = tileSum;
      rowSum += plan.aligned(plan.totals[e]);
      tileSum += tilesOf(plan.totals[e]);
    }
  __syncthreads();

  for (int i = thread; i < Plan::kBlockSlots; i += kThreads) {
    int e = expertOf[i], before = 0;
    if (e < 0) {
      if (P::shard && first + i < Plan::kSlots) plan.rows[first + i] = -1;
      continue;
    }
    for (int other = 0; other < i; other += 4) {
      int4 four = *reinterpret_cast<const int4 *>(&expertOf[other]);
      before += (four.x == e) + (four.y == e && other + 1 < i) + (four.z == e && other + 2 < i) +
                (four.w == e && other + 3 < i);
    }
    int row = offset[e] + plan.counts[e * Plan::kBlocks + blockIdx.x] + before;
    plan.slots[row] = first + i;
    plan.rows[first + i] = row;
  }
  if (blockIdx.x != 0) return;
  for (int e = thread; e < P::experts; e += kThreads) plan.offsets[e] = offset[e];
  for (int e = warp; e < P::experts; e += kThreads / 32) {
    int total = plan.totals[e], count = tilesOf(total);
    for (int tile = lane; tile < count; tile += 32) {
      int *at = plan.tiles + 1 + 2 * (firstTile[e] + tile);
      at[0] = e;
      at[1] = offset[e] + tile * Plan::kTileRows;
    }
    for (int row = total + lane; row < plan.aligned(total); row += 32) plan.slots[offset[e] + row] = -1;
    if (e == P::experts - 1 && lane == 0) {
      plan.tiles[0] = firstTile[e] + count;
      if (P::shard && firstTile[e] + count == 0) plan.tiles[1] = plan.tiles[2] = 0; // Products look a tile ahead.
    }
  }
}

// Rows of a tile: those of one expert from `first` on, `count` that have slots and `stored` with the empty ones.
struct MoeRows {
  int expert, first, count, stored;
};

template <class P>
Q35_DEVICE MoeRows moe_rows(const RoutePlan<P> &plan, int tile) {
  constexpr int kTileRows = RoutePlan<P>::kTileRows;
  int expert = plan.tiles[1 + 2 * tile], first = plan.tiles[2 + 2 * tile];
  int left = plan.offsets[expert] + plan.totals[expert] - first;
  int count = left < kTileRows ? left : kTileRows;
  return {expert, first, count, plan.aligned(count)};
}

// Rows of x or dy by the slots of `count` rows.
template <class P, class T, bool AlongK>
struct GatheredLines {
  using Element = T;
  static constexpr bool alongK = AlongK, vector = P::vectorHidden;
  const T *base;
  int stride;
  const int *slots;
  int count, columns;
  Q35_DEVICE int offset(int i) const { return i < count ? slots[i] / int(P::topK) * stride : -1; }
};

// Rows of an expert's gate_up weight, in strips of eight: gate, then up of the same eight columns of h.
template <class P, class T>
struct GateUpLines {
  using Element = T;
  static constexpr bool alongK = true, vector = P::vectorHidden;
  const T *base; // of the expert
  int column;    // of h, that the tile starts at
  static constexpr int columns = P::hidden;
  Q35_DEVICE int offset(int i) const {
    int at = column + i / 16 * 8 + i % 8;
    return at < P::width ? (i / 8 % 2 * P::width + at) * P::gateUpStride : -1;
  }
};

template <class T>
using MoeTile = TileProduct<T, 128, 128, 4, 2, 3>;

// The workspace after the plan, by row.
template <class P, class T>
struct MoeBuffers {
  T *gateUp;      // [rows][2 * width], backward; then its gradient
  T *h;           // [rows][width]
  T *out;         // [rows][hidden]: of the down product, or dx
  float *partial; // [rows][P::parts], backward: shares of dweights
  Q35_DEVICE explicit MoeBuffers(unsigned char *workspace)
      : gateUp(reinterpret_cast<T *>(workspace + P::gateUpAt)), h(reinterpret_cast<T *>(workspace + P::hAt)),
        out(reinterpret_cast<T *>(workspace + P::outAt)), partial(reinterpret_cast<float *>(workspace + P::partialAt)) {}
};

// Calls body(rows, column tile) for every tile of `columnTiles` columns that is this block's.
template <class P, class Body>
Q35_DEVICE void for_row_tiles(const RoutePlan<P> &plan, int columnTiles, Body body) {
  int total = plan.tiles[0] * columnTiles;
#pragma unroll 1
  for (int i = blockIdx.x; i < total; i += gridDim.x) body(moe_rows(plan, i / columnTiles), i % columnTiles);
}

// The routing weight of a row of a tile, 0 for an empty one.
template <class P>
Q35_DEVICE float row_weight(const float *weights, const int *slots, int row, int count) {
  if (row >= count) return 0;
  int slot = slots[row];
  return weights[slot / int(P::topK) * P::weightsStride + slot % int(P::topK)];
}

template <class T>
Q35_DEVICE float activation_sigmoid(float x) {
  if constexpr (sizeof(T) == 4) return sigmoid(x);
  return __fdividef(1.0f, 1.0f + fast_exp2(x * -1.4426950408889634f));
}

// What becomes of a tile of gate and up in strips of eight columns; `column` of h is the tile's first. Forward:
// h = weight * silu(gate) * up. Backward: both as they are.
// weight(m, half): the routing weight of such a row.
template <class P, class Tile, class Arguments, class Weight>
Q35_DEVICE void finish_up(const Tile &tile, const Arguments &a, MoeRows rows, int column, Weight weightOf) {
  using T = typename Arguments::Element;
  MoeBuffers<P, T> buffers(a.workspace);
  column += tile.warp_column() / 2;
#pragma unroll
  for (int m = 0; m < Tile::kM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      int row = tile.row(m, half);
      bool inside = row < rows.stored;
      int64 at = rows.first + row;
      float weight = 0;
      if constexpr (!P::backward) weight = weightOf(m, half);
#pragma unroll
      for (int group = 0; group < Tile::kN; group += 8) {
        float gate[4][2], up[4][2];
#pragma unroll
        for (int j = 0; j < 4; ++j)
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            gate[j][e] = tile.c[m][group + j * 2][half * 2 + e];
            up[j][e] = tile.c[m][group + j * 2 + 1][half * 2 + e];
          }
        int first = column + group * 4, columns = int(P::width) - first;
        if constexpr (P::backward) {
          T *to = inside ? buffers.gateUp + at * (2 * P::width) + first : nullptr;
          store_fragments<P::vectorWidth>(to, columns, gate);
          store_fragments<P::vectorWidth>(inside ? to + P::width : nullptr, columns, up);
        } else {
#pragma unroll
          for (int j = 0; j < 4; ++j)
#pragma unroll
            for (int e = 0; e < 2; ++e)
              gate[j][e] = gate[j][e] * activation_sigmoid<T>(gate[j][e]) * up[j][e] * weight;
          store_fragments<P::vectorWidth>(inside ? buffers.h + at * P::width + first : nullptr, columns, gate);
        }
      }
    }
}

// gate and up of every row.
template <class P, class... Args>
Q35_DEVICE void moe_up(Args... args) {
  auto a = moe_arguments(args...);
  using T = typename decltype(a)::Element;
  RoutePlan<P> plan(a.workspace);
  for_row_tiles(plan, (P::width + 63) / 64, [&](MoeRows rows, int columnTile) {
    const int *slots = plan.slots + rows.first;
    GatheredLines<P, T, true> x{a.x, P::xStride, slots, rows.count, P::hidden};
    GateUpLines<P, T> w{a.gateUp + rows.expert * P::gateUpExpert, columnTile * 64};
    MoeTile<T> tile;
    tile.multiply(x, w, P::hidden, shared_memory());
    finish_up<P>(tile, a, rows, columnTile * 64, [&](int m, int half) {
      return row_weight<P>(a.weights, slots, tile.row(m, half), rows.count);
    });
  });
}

// Stores a tile of C, 16 bytes (bf16) or 8 at a time where Vector; `row` maps a row of the tile to where its first column
// goes, or null.
template <bool Vector, class Tile, class Row>
Q35_DEVICE void store_tile(const Tile &tile, int columns, Row row) {
  columns -= tile.warp_column();
#pragma unroll
  for (int m = 0; m < Tile::kM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      auto *to = row(tile.row(m, half));
      if (to != nullptr) to += tile.warp_column();
#pragma unroll
      for (int group = 0; group < Tile::kN; group += 4) {
        float value[4][2];
#pragma unroll
        for (int j = 0; j < 4; ++j)
#pragma unroll
          for (int e = 0; e < 2; ++e) value[j][e] = tile.c[m][group + j][half * 2 + e];
        store_fragments<Vector>(to != nullptr ? to + group * 8 : nullptr, columns - group * 8, value);
      }
    }
}

// Adds to a tile of C what lies where `row` maps its rows to, in pairs where Vector.
template <bool Vector, class Tile, class Row>
Q35_DEVICE void add_to_tile(Tile &tile, int columns, Row row) {
  columns -= tile.warp_column();
#pragma unroll
  for (int m = 0; m < Tile::kM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float *from = row(tile.row(m, half));
      if (from == nullptr) continue;
      from += tile.warp_column();
#pragma unroll
      for (int n = 0; n < Tile::kN; ++n) {
        int at = n * 8 + threadIdx.x % 4 * 2;
        float pair[2] = {0, 0};
        if constexpr (Vector) {
          if (at < columns) load(pair, from + at);
        } else {
          if (at < columns) pair[0] = from[at];
          if (at + 1 < columns) pair[1] = from[at + 1];
        }
        tile.c[m][n][half * 2] += pair[0];
        tile.c[m][n][half * 2 + 1] += pair[1];
      }
    }
}

// A tile of out.
template <class P, class Tile, class T>
Q35_DEVICE void finish_out(const Tile &tile, T *out, MoeRows rows, int column) {
  store_tile<P::vectorHidden>(tile, int(P::hidden) - column, [&](int row) {
    return row < rows.count ? out + (rows.first + row) * P::hidden + column : nullptr;
  });
}

// out = h times the expert's w_down, by row.
template <class P, class... Args>
Q35_DEVICE void moe_down(Args... args) {
  auto a = moe_arguments(args...);
  using T = typename decltype(a)::Element;
  RoutePlan<P> plan(a.workspace);
  MoeBuffers<P, T> buffers(a.workspace);
  for_row_tiles(plan, (P::hidden + 127) / 128, [&](MoeRows rows, int columnTile) {
    int column = columnTile * 128;
    Lines<T, true, P::vectorWidth> h{buffers.h + rows.first * P::width, P::width, rows.count, P::width};
    Lines<T, true, P::vectorWidth> w{a.down + rows.expert * P::downExpert + column * P::downStride, P::downStride,
                                     int(P::hidden) - column, P::width};
    MoeTile<T> tile;
    tile.multiply(h, w, P::width, shared_memory());
    finish_out<P>(tile, buffers.out, rows, column);
  });
}

// Up to eight columns of one row: gate and up, `width` apart, become their gradients, h is written, and the share of the
// gradient of the weight returned.
template <class P, class T>
Q35_DEVICE float activation_bwd(const float (&dh)[8], float weight, T *gateAt, T *hAt, int columns) {
  constexpr int vec = kVec<T>;
  float gate[8], up[8], h[8], share = 0;
  if constexpr (P::vectorWidth) {
#pragma unroll
    for (int i = 0; i < 8; i += vec) {
      if (i < columns) {
        load(*reinterpret_cast<float (*)[vec]>(&gate[i]), gateAt + i);
        load(*reinterpret_cast<float (*)[vec]>(&up[i]), gateAt + P::width + i);
      } else {
#pragma unroll
        for (int j = i; j < i + vec; ++j) gate[j] = up[j] = 0;
      }
    }
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      gate[i] = i < columns ? to_float(gateAt[i]) : 0;
      up[i] = i < columns ? to_float(gateAt[P::width + i]) : 0;
    }
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    float open = activation_sigmoid<T>(gate[i]), active = gate[i] * open, slope = open * (1 + gate[i] * (1 - open));
    share += dh[i] * active * up[i];
    h[i] = active * up[i] * weight;
    gate[i] = dh[i] * weight * up[i] * slope;
    up[i] = dh[i] * weight * active;
  }
  if constexpr (P::vectorWidth) {
#pragma unroll
    for (int i = 0; i < 8; i += vec) {
      if (i >= columns) continue;
      store(gateAt + i, *reinterpret_cast<const float (*)[vec]>(&gate[i]));
      store(gateAt + P::width + i, *reinterpret_cast<const float (*)[vec]>(&up[i]));
      store(hAt + i, *reinterpret_cast<const float (*)[vec]>(&h[i]));
    }
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (i >= columns) continue;
      gateAt[i] = from_float<T>(gate[i]);
      gateAt[P::width + i] = from_float<T>(up[i]);
      hAt[i] = from_float<T>(h[i]);
    }
  }
  return share;
}

// What becomes of a tile of dh: gate and up become their gradients, h the weighted activation, and the shares of
// dweights = <dh, silu(gate) up> of P::partColumns columns each go to `partial`. Empty rows have gate = up = dh = 0.
template <class P, class Tile, class Arguments, class Weight>
Q35_DEVICE void finish_down_bwd(const Tile &tile, const Arguments &a, MoeRows rows, int column, Weight weightOf) {
  using T = typename Arguments::Element;
  MoeBuffers<P, T> buffers(a.workspace);
  column += tile.warp_column();
#pragma unroll
  for (int m = 0; m < Tile::kM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      int row = tile.row(m, half);
      int64 at = rows.first + row;
      float weight = weightOf(m, half), share = 0;
#pragma unroll
      for (int group = 0; group < Tile::kN; group += 4) {
        float value[4][2], dh[8];
#pragma unroll
        for (int j = 0; j < 4; ++j)
#pragma unroll
          for (int e = 0; e < 2; ++e) value[j][e] = tile.c[m][group + j][half * 2 + e];
        transpose_quad(value, dh);
        int mine = column + (group + int(threadIdx.x) % 4) * 8;
        if (row >= rows.stored || mine >= P::width) continue;
        share += activation_bwd<P>(dh, weight, buffers.gateUp + at * (2 * P::width) + mine,
                                   buffers.h + at * P::width + mine, P::width - mine);
      }
      share = warp_sum<4>(share);
      if (row < rows.count && threadIdx.x % 4 == 0) buffers.partial[at * P::parts + column / int(P::partColumns)] = share;
    }
}

// dh = dy w_down of every row, never stored.
template <class P, class... Args>
Q35_DEVICE void moe_down_bwd(Args... args) {
  auto a = moe_arguments(args...);
  using T = typename decltype(a)::Element;
  RoutePlan<P> plan(a.workspace);
  for_row_tiles(plan, (P::width + 127) / 128, [&](MoeRows rows, int columnTile) {
    const int *slots = plan.slots + rows.first;
    int column = columnTile * 128;
    GatheredLines<P, T, true> dy{a.dy, P::dyStride, slots, rows.count, P::hidden};
    Lines<T, false, P::vectorWidth> w{a.down + rows.expert * P::downExpert + column, P::downStride, P::hidden,
                                      int(P::width) - column};
    MoeTile<T> tile;
    tile.multiply(dy, w, P::hidden, shared_memory());
    finish_down_bwd<P>(tile, a, rows, column, [&](int m, int half) {
      return row_weight<P>(a.weights, slots, tile.row(m, half), rows.count);
    });
  });
}

// out = d(gate, up) times the expert's w_gate_up, by row.
template <class P, class... Args>
Q35_DEVICE void moe_up_bwd(Args... args) {
  auto a = moe_arguments(args...);
  using T = typename decltype(a)::Element;
  RoutePlan<P> plan(a.workspace);
  MoeBuffers<P, T> buffers(a.workspace);
  for_row_tiles(plan, (P::hidden + 127) / 128, [&](MoeRows rows, int columnTile) {
    int column = columnTile * 128;
    Lines<T, true, P::vectorWidth> d{buffers.gateUp + rows.first * (2 * P::width), 2 * P::width, rows.count, 2 * P::width};
    Lines<T, false, P::vectorHidden> w{a.gateUp + rows.expert * P::gateUpExpert + column, P::gateUpStride, 2 * P::width,
                                       int(P::hidden) - column};
    MoeTile<T> tile;
    tile.multiply(d, w, 2 * P::width, shared_memory());
    finish_out<P>(tile, buffers.out, rows, column);
  });
}

// A tile of the gradient of an [experts][M][N] parameter, at row m and column n.
struct WeightTile {
  int expert, first, count; // its rows; `count` have slots
  int m, n;
};

template <class P, int M, int N, int TileN>
constexpr int kWeightTiles = P::experts * ((M + 127) / 128) * ((N + TileN - 1) / TileN);

template <class P, int M, int N, int TileN>
Q35_DEVICE WeightTile weight_tile(const RoutePlan<P> &plan, int tile) {
  constexpr int tilesN = (N + TileN - 1) / TileN, perExpert = (M + 127) / 128 * tilesN;
  int expert = tile / perExpert;
  return {expert, plan.offsets[expert], plan.totals[expert], tile % perExpert / tilesN * 128, tile % tilesN * TileN};
}

// Where row `row` of a tile of a gradient begins in the gradient or in what it is added to.
template <class P, class Float>
Q35_DEVICE Float *gate_up_gradient_row(Float *base, WeightTile w, int row) {
  Float *first = base + w.expert * P::dGateUpExpert + (w.m + row) * P::dGateUpStride + w.n;
  return w.m + row < 2 * P::width ? first : nullptr;
}
template <class P, class Float>
Q35_DEVICE Float *down_gradient_row(Float *base, WeightTile w, int row) {
  Float *first = base + w.expert * P::dDownExpert + (w.m + row) * P::dDownStride + w.n;
  return w.m + row < P::hidden ? first : nullptr;
}

template <class P, class Tile, class Arguments>
Q35_DEVICE void add_gate_up_gradient(Tile &tile, const Arguments &a, WeightTile w) {
  if constexpr (P::accumulate)
    add_to_tile<P::pairsGateUp>(tile, int(P::hidden) - w.n,
                                [&](int row) { return gate_up_gradient_row<P>(a.accGateUp, w, row); });
}
template <class P, class Tile, class Arguments>
Q35_DEVICE void add_down_gradient(Tile &tile, const Arguments &a, WeightTile w) {
  if constexpr (P::accumulate)
    add_to_tile<P::pairsDown>(tile, int(P::width) - w.n,
                              [&](int row) { return down_gradient_row<P>(a.accDown, w, row); });
}

// P::squares: what a thread has of the squares of gradients, as they are stored. Elements of a tile outside of the
// parameter are 0, or not finite where others of the tile are not either.
template <class P>
struct GradientSquares {
  static constexpr int kWarps = 8; // that have tiles
  double sum = 0;

  // In f32 for a tile; in f64 where squares might leave its range.
  template <class Tile>
  Q35_DEVICE void add(const Tile &tile) {
    if constexpr (P::squares) {
      float part[4] = {};
      each(tile, [&](int e, float c) { part[e] = fmaf(c, c, part[e]); });
      float total = part[0] + part[1] + (part[2] + part[3]);
      if (total > 1e-30f && total < 1e30f)
        sum += total;
      else
        each(tile, [&](int, float c) { sum += double(c) * double(c); });
    }
  }

  // A sum of every warp of the block, from the first of all blocks on. By whole warps.
  Q35_DEVICE void store(unsigned char *workspace, int first, int warp) {
    if constexpr (P::squares) {
      double total = warp_sum_f64(sum);
      double *sums = reinterpret_cast<double *>(workspace + P::squaresAt);
      if (threadIdx.x % 32 == 0) sums[first + int(blockIdx.x) * kWarps + warp] = total;
    }
  }

private:
  template <class Tile, class Each>
  Q35_DEVICE static void each(const Tile &tile, Each take) {
#pragma unroll
    for (int m = 0; m < Tile::kM; ++m)
#pragma unroll
      for (int n = 0; n < Tile::kN; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) take(e, tile.c[m][n][e]);
  }
};

template <class P, class Tile, class Arguments>
Q35_DEVICE void finish_gate_up_gradient(Tile &tile, const Arguments &a, WeightTile w, GradientSquares<P> &squares) {
  add_gate_up_gradient<P>(tile, a, w);
  squares.add(tile);
  store_tile<P::pairsGateUp>(tile, int(P::hidden) - w.n,
                             [&](int row) { return gate_up_gradient_row<P>(a.dGateUp, w, row); });
}

template <class P, class Tile, class Arguments>
Q35_DEVICE void finish_down_gradient(Tile &tile, const Arguments &a, WeightTile w, GradientSquares<P> &squares) {
  add_down_gradient<P>(tile, a, w);
  squares.add(tile);
  store_tile<P::pairsDown>(tile, int(P::width) - w.n,
                           [&](int row) { return down_gradient_row<P>(a.dDown, w, row); });
}

// dw_gate_up (+)= d(gate, up)^T x over the rows of an expert; zeros where it has none.
template <class P, class... Args>
Q35_DEVICE void moe_gate_up_gradient(Args... args) {
  auto a = moe_arguments(args...);
  using T = typename decltype(a)::Element;
  RoutePlan<P> plan(a.workspace);
  MoeBuffers<P, T> buffers(a.workspace);
  constexpr int M = 2 * P::width, N = P::hidden;
  GradientSquares<P> squares;
#pragma unroll 1
  for (int i = blockIdx.x; i < kWeightTiles<P, M, N, 128>; i += gridDim.x) {
    WeightTile w = weight_tile<P, M, N, 128>(plan, i);
    Lines<T, false, P::vectorWidth> d{buffers.gateUp + int64(w.first) * M + w.m, M, w.count, M - w.m};
    GatheredLines<P, T, false> x{a.x + w.n, P::xStride, plan.slots + w.first, w.count, N - w.n};
    MoeTile<T> tile;
    tile.multiply(d, x, w.count, shared_memory());
    finish_gate_up_gradient<P>(tile, a, w, squares);
  }
  squares.store(a.workspace, 0, threadIdx.x / 32);
}

// dw_down (+)= dy^T h.
template <class P, class... Args>
Q35_DEVICE void moe_down_gradient(Args... args) {
  auto a = moe_arguments(args...);
  using T = typename decltype(a)::Element;
  RoutePlan<P> plan(a.workspace);
  MoeBuffers<P, T> buffers(a.workspace);
  constexpr int M = P::hidden, N = P::width;
  GradientSquares<P> squares;
#pragma unroll 1
  for (int i = blockIdx.x; i < kWeightTiles<P, M, N, 128>; i += gridDim.x) {
    WeightTile w = weight_tile<P, M, N, 128>(plan, i);
    GatheredLines<P, T, false> dy{a.dy + w.m, P::dyStride, plan.slots + w.first, w.count, M - w.m};
    Lines<T, false, P::vectorWidth> h{buffers.h + int64(w.first) * N + w.n, N, w.count, N - w.n};
    MoeTile<T> tile;
    tile.multiply(dy, h, w.count, shared_memory());
    finish_down_gradient<P>(tile, a, w, squares);
  }
  squares.store(a.workspace, P::downSquares, threadIdx.x / 32);
}

// A block per token: sums its rows of `out` in slot order into y or dx, and backward its dweights. P::squares: the first
// block adds up those of all warps.
template <class P, class... Args>
Q35_DEVICE void moe_combine(Args... args) {
  auto a = moe_arguments(args...);
  using T = typename decltype(a)::Element;
  RoutePlan<P> plan(a.workspace);
  MoeBuffers<P, T> buffers(a.workspace);
  int token = blockIdx.x;
  if constexpr (P::squares) {
    if (token == 0) {
      const double *sums = reinterpret_cast<const double *>(a.workspace + P::squaresAt);
      double sum = 0;
#pragma unroll 4
      for (int i = threadIdx.x; i < P::squareSums; i += P::threads) sum += sums[i];
      double total = block_sum_f64<P::threads>(sum);
      if (threadIdx.x == 0) *a.squares = total;
      return;
    }
    --token;
  }
  const int *rows = plan.rows + token * P::topK;
  T *to = (P::backward ? a.dx : a.y) + token * P::yStride;
  constexpr int vec = P::vectorHidden ? kVec<T> : 1;
  for (int column = threadIdx.x * vec; column < P::hidden; column += blockDim.x * vec) {
    float sum[vec] = {};
#pragma unroll 8
    for (int choice = 0; choice < P::topK; ++choice) {
      int row = rows[choice];
      if (P::shard && row < 0) continue;
      float value[vec];
      load(value, buffers.out + row * P::hidden + column);
#pragma unroll
      for (int i = 0; i < vec; ++i) sum[i] += value[i];
    }
    store(to + column, sum);
  }
  if constexpr (P::backward) {
    for (int choice = threadIdx.x; choice < P::topK; choice += blockDim.x) {
      int row = rows[choice];
      const float *partial = buffers.partial + row * P::parts;
      float sum = 0;
      for (int part = 0; part < P::parts; ++part)
        if (!P::shard || row >= 0) sum += partial[part];
      a.dweights[token * P::dweightsStride + choice] = sum;
    }
  }
}

} // namespace q35
