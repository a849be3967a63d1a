// moe_experts and moe_experts_bwd: routed experts without dropping. Slots (token,
// choice) are sorted by expert into blocks of 64 rows that belong to one expert
// each; a task takes a block through gather, products and activation. Row counts
// are only known at run time, so there are as many blocks as could be needed and
// unused ones end at once. Empty rows of a block are zeros. With {accumulate =
// true} the gradients of the parameters are added to two more operands. With
// {shard} the slots of expert -1 are another rank's: no row is theirs, and what
// would come of them is 0.

#include "codegen/cpu/Families.h"
#include "codegen/cpu/Gemm.h"
#include "codegen/cpu/KernelBuilder.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace qwen35::codegen::cpu {
namespace {

constexpr int64_t kRows = 64;

/// Hands out aligned pieces of the workspace.
class Layout {
public:
  int64_t take(int64_t elements) {
    int64_t at = bytes;
    bytes += llvm::alignTo(elements * 4, 64);
    return at;
  }
  int64_t bytes = 0;
};

struct Shape {
  int64_t T, D, K, E, I;
  int64_t blocks; ///< As many as any routing can need.
  // Offsets into the workspace, bytes.
  int64_t blockStart; ///< i32 [E + 1], first block of an expert
  int64_t blockExpert; ///< i32 [blocks]
  int64_t slotOf;     ///< i32 [blocks * 64], slot of a row, -1 for none
  int64_t rowOf;      ///< i32 [T * K], row of a slot
  int64_t x, dy, gateUp, h, out; ///< f32 per row: D, D, 2I, I, D
  int64_t bytes;

  /// Operands x, weights, idx, w_gate_up, w_down from `first` on.
  Shape(const KernelSpec &spec, unsigned first, bool backward) {
    MemRefType rows = spec.inputs[first];
    T = rows.getDimSize(0);
    D = rows.getDimSize(1);
    K = spec.inputs[first + 1].getDimSize(1);
    E = spec.inputs[first + 3].getDimSize(0);
    I = spec.inputs[first + 4].getDimSize(2);
    blocks = llvm::divideCeil(T * K, kRows) + std::min(E, T * K);
    int64_t total = blocks * kRows;
    Layout layout;
    blockStart = layout.take(E + 1);
    blockExpert = layout.take(blocks);
    slotOf = layout.take(total);
    rowOf = layout.take(T * K);
    x = layout.take(total * D);
    dy = backward ? layout.take(total * D) : 0;
    gateUp = layout.take(total * 2 * I);
    h = layout.take(total * I);
    out = layout.take(total * D);
    bytes = layout.bytes;
  }

  static LogicalResult check(const KernelSpec &spec, unsigned first,
                             EmitError emitError) {
    MLIRContext *context = spec.inputs[0].getContext();
    Type f32 = Float32Type::get(context), i32 = IntegerType::get(context, 32);
    if (failed(requireType(spec, spec.inputs[first], "x", {kAny, kAny}, f32,
                           emitError)))
      return failure();
    int64_t T = spec.inputs[first].getDimSize(0);
    int64_t D = spec.inputs[first].getDimSize(1);
    if (failed(requireType(spec, spec.inputs[first + 1], "weights", {T, kAny},
                           f32, emitError)) ||
        failed(requireType(spec, spec.inputs[first + 2], "idx",
                           {T, spec.inputs[first + 1].getDimSize(1)}, i32,
                           emitError)) ||
        failed(requireType(spec, spec.inputs[first + 3], "w_gate_up",
                           {kAny, kAny, D}, f32, emitError)))
      return failure();
    MemRefType gateUp = spec.inputs[first + 3];
    return requireType(spec, spec.inputs[first + 4], "w_down",
                       {gateUp.getDimSize(0), D, gateUp.getDimSize(1) / 2},
                       f32, emitError);
  }
};

/// The workspace as views.
struct Buffers {
  Buffers(KernelBuilder &k, const Shape &s, bool backward) {
    blockStart = k.workspace(s.blockStart, {s.E + 1}, k.i32());
    blockExpert = k.workspace(s.blockExpert, {s.blocks}, k.i32());
    slotOf = k.workspace(s.slotOf, {s.blocks * kRows}, k.i32());
    rowOf = k.workspace(s.rowOf, {s.T * s.K}, k.i32());
    x = k.workspace(s.x, {s.blocks * kRows, s.D}, k.f32());
    if (backward)
      dy = k.workspace(s.dy, {s.blocks * kRows, s.D}, k.f32());
    gateUp = k.workspace(s.gateUp, {s.blocks * kRows, 2 * s.I}, k.f32());
    h = k.workspace(s.h, {s.blocks * kRows, s.I}, k.f32());
    out = k.workspace(s.out, {s.blocks * kRows, s.D}, k.f32());
  }
  View blockStart, blockExpert, slotOf, rowOf, x, dy, gateUp, h, out;
};

/// Sorts slots by expert, then by token: one task. `skip` sees the slots of
/// other ranks, where there can be some.
void emitPlan(KernelBuilder &k, const Shape &s, const Buffers &b, View idx,
              bool shard,
              llvm::function_ref<void(Val token, Val choice)> skip) {
  View counts = k.scratch({s.E}, k.i32());
  k.forLoop(0, s.E, 1, [&](Val e) { counts.store(k.i32(0), {e}); });
  auto forSlots = [&](llvm::function_ref<void(Val slot, Val expert)> body) {
    k.forLoop(0, s.T, 1, [&](Val token) {
      k.forLoop(0, s.K, 1, [&](Val choice) {
        Val slot = token * double(s.K) + choice;
        Val expert = cast(idx.load({token, choice}), k.index());
        if (shard)
          k.ifThen(expert >= 0.0, [&] { body(slot, expert); });
        else
          body(slot, expert);
      });
    });
  };
  if (shard)
    k.forLoop(0, s.T, 1, [&](Val token) {
      k.forLoop(0, s.K, 1, [&](Val choice) {
        k.ifThen(cast(idx.load({token, choice}), k.index()) < 0.0, [&] {
          b.rowOf.store(k.i32(-1), {token * double(s.K) + choice});
          skip(token, choice);
        });
      });
    });
  forSlots([&](Val, Val e) { counts.store(counts.load({e}) + 1.0, {e}); });
  Val used = k.forLoop(
      0, s.E, 1, {k.i32(0)}, [&](Val e, ArrayRef<Val> carried) {
        b.blockStart.store(carried[0], {e});
        Val blocks = (counts.load({e}) + double(kRows - 1)) / double(kRows);
        Val first = cast(carried[0], k.index());
        k.forLoop(first, first + cast(blocks, k.index()), 1, [&](Val block) {
          b.blockExpert.store(cast(e, k.i32()), {block});
        });
        // From now on: the next free row of the expert.
        counts.store(carried[0] * double(kRows), {e});
        return SmallVector<Val>{carried[0] + blocks};
      })[0];
  b.blockStart.store(used, {s.E});
  k.forLoop(cast(used, k.index()), s.blocks, 1,
            [&](Val block) { b.blockExpert.store(k.i32(-1), {block}); });
  k.forLoop(0, s.blocks * kRows, 1,
            [&](Val row) { b.slotOf.store(k.i32(-1), {row}); });
  forSlots([&](Val slot, Val e) {
    Val row = counts.load({e});
    counts.store(row + 1.0, {e});
    b.slotOf.store(cast(slot, k.i32()), {cast(row, k.index())});
    b.rowOf.store(row, {slot});
  });
}

/// c = a op(w) for the 64 rows of a block.
void blockProduct(KernelBuilder &k, View a, View w, bool transposed, View c) {
  int64_t n = c.size(1), full = n / kTileColumns, tail = n % kTileColumns;
  auto tile = [&](Ix column, int64_t count) {
    matmulRange(k, MatrixOperand{a}, MatrixOperand{w, transposed}, c,
                Start::Zero, View(), TileRange{0, kRows, column, count});
  };
  if (full > 0)
    k.forLoop(0, full * kTileColumns, kTileColumns,
              [&](Val column) { tile(column, kTileColumns); });
  if (tail > 0)
    tile(full * kTileColumns, tail);
}

/// to[row] = from[token of the slot], zeros for empty rows.
void gather(KernelBuilder &k, const Shape &s, const Buffers &b, Val firstRow,
            View from, View to) {
  k.forLoop(0, kRows, 1, [&](Val row) {
    Val slot = b.slotOf.load({firstRow + row});
    View target = to.row(row);
    k.ifThenElse(
        slot >= 0.0,
        [&] {
          View source = from.row(cast(slot, k.index()) / double(s.K));
          k.forLanes(s.D, [&](Lanes l) {
            target.store(source.load({l.i}, l), {l.i}, l);
          });
        },
        [&] {
          k.forLanes(s.D, [&](Lanes l) {
            target.store(k.zero(k.f32(), l.width), {l.i}, l);
          });
        });
  });
}

/// The routing weight of a row, 0 for an empty one.
Val rowWeight(KernelBuilder &k, const Shape &s, Val slot, View weights) {
  return k.ifValues(
      slot >= 0.0,
      [&] {
        Val at = cast(slot, k.index());
        return SmallVector<Val>{
            weights.load({at / double(s.K), at % double(s.K)})};
      },
      [&] { return SmallVector<Val>{k.f32(0)}; })[0];
}

/// y[token] = sum over its slots, in order, of rows of the workspace.
void combine(KernelBuilder &k, const Shape &s, const Buffers &b, Val token,
             bool shard, View y) {
  View target = y.row(token);
  k.forLanes(s.D, [&](Lanes l) {
    Val sum = k.forLoop(
        0, s.K, 1, {k.zero(k.f32(), l.width)},
        [&](Val choice, ArrayRef<Val> carried) {
          Val row = cast(b.rowOf.load({token * double(s.K) + choice}),
                         k.index());
          auto add = [&] {
            return SmallVector<Val>{carried[0] +
                                    b.out.row(row).load({l.i}, l)};
          };
          if (!shard)
            return add();
          return k.ifValues(row >= 0.0, add, [&] {
            return SmallVector<Val>{carried[0]};
          });
        })[0];
    target.store(sum, {l.i}, l);
  });
}

int64_t combineTasks(const Shape &s) { return chooseTasks(s.T, s.D * s.K); }

/// Calls body(expert, first row) unless no slot fell into the block.
void forUsedBlock(KernelBuilder &k, const Buffers &b, Val block,
                  llvm::function_ref<void(Val expert, Val firstRow)> body) {
  Val expert = b.blockExpert.load({block});
  k.ifThen(expert >= 0.0, [&] {
    body(cast(expert, k.index()), block * double(kRows));
  });
}

class MoeExperts : public KernelFamily {
public:
  StringRef op() const override { return "moe_experts"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 5, 1, emitError)) ||
        failed(Shape::check(spec, 0, emitError)) ||
        failed(requireSameShape(spec, spec.inputs[0], "x", spec.outputs[0],
                                "y", emitError)))
      return failure();
    Shape s(spec, 0, false);
    KernelPlan plan;
    plan.grids = {1, s.blocks, combineTasks(s)};
    plan.workspaceBytes = s.bytes;
    return plan;
  }

  void emit(const KernelSpec &spec, unsigned stage,
            KernelBuilder &k) const override {
    Shape s(spec, 0, false);
    Buffers b(k, s, false);
    bool shard = spec.flag("shard");
    if (stage == 0)
      return emitPlan(k, s, b, k.input(2), shard, [](Val, Val) {});
    if (stage == 2) {
      auto [lo, hi] = k.taskRange(s.T, combineTasks(s));
      k.forLoop(lo, hi, 1,
                [&](Val token) { combine(k, s, b, token, shard, k.output(0)); });
      return;
    }
    View weights = k.input(1);
    forUsedBlock(k, b, k.task(), [&](Val expert, Val firstRow) {
      View x = b.x.tile({firstRow, 0}, {kRows, s.D});
      View gateUp = b.gateUp.tile({firstRow, 0}, {kRows, 2 * s.I});
      View h = b.h.tile({firstRow, 0}, {kRows, s.I});
      gather(k, s, b, firstRow, k.input(0), x);
      blockProduct(k, x, k.input(3).at({expert}), true, gateUp);
      k.forLoop(0, kRows, 1, [&](Val row) {
        Val weight =
            rowWeight(k, s, b.slotOf.load({firstRow + row}), weights);
        View in = gateUp.row(row), out = h.row(row);
        k.forLanes(s.I, [&](Lanes l) {
          Val gate = in.load({l.i}, l), up = in.load({l.i + double(s.I)}, l);
          out.store(silu(gate) * up * weight, {l.i}, l);
        });
      });
      blockProduct(k, h, k.input(4).at({expert}), true,
                   b.out.tile({firstRow, 0}, {kRows, s.D}));
    });
  }
};

/// Stage 1 leaves x, dy, d(gate, up), the weighted activation and dx of every
/// row; stage 2 sums dx over slots and multiplies out the weight gradients.
class MoeExpertsBwd : public KernelFamily {
public:
  StringRef op() const override { return "moe_experts_bwd"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec,
                             EmitError emitError) const override {
    bool accumulates = spec.flag("accumulate");
    if (failed(requireCounts(spec, accumulates ? 8 : 6, 4, emitError)) ||
        failed(Shape::check(spec, 1, emitError)) ||
        failed(requireSameShape(spec, spec.inputs[1], "x", spec.inputs[0],
                                "dy", emitError)) ||
        failed(requireSameShape(spec, spec.inputs[1], "x", spec.outputs[0],
                                "dx", emitError)) ||
        failed(requireSameShape(spec, spec.inputs[2], "weights",
                                spec.outputs[1], "dweights", emitError)) ||
        failed(requireSameShape(spec, spec.inputs[4], "w_gate_up",
                                spec.outputs[2], "dw_gate_up", emitError)) ||
        failed(requireSameShape(spec, spec.inputs[5], "w_down",
                                spec.outputs[3], "dw_down", emitError)) ||
        (accumulates &&
         (failed(requireSameShape(spec, spec.outputs[2], "dw_gate_up",
                                  spec.inputs[6], "its sum", emitError)) ||
          failed(requireSameShape(spec, spec.outputs[3], "dw_down",
                                  spec.inputs[7], "its sum", emitError)))))
      return failure();
    Shape s(spec, 1, true);
    KernelPlan plan;
    if (accumulates)
      plan.mayAlias = {{2, 6}, {3, 7}};
    plan.grids = {1, s.blocks,
                  combineTasks(s) + s.E * (tiles(2 * s.I, s.D) +
                                           tiles(s.D, s.I))};
    plan.workspaceBytes = s.bytes;
    return plan;
  }

  void emit(const KernelSpec &spec, unsigned stage,
            KernelBuilder &k) const override {
    Shape s(spec, 1, true);
    Buffers b(k, s, true);
    bool shard = spec.flag("shard");
    if (stage == 0)
      return emitPlan(k, s, b, k.input(3), shard, [&](Val token, Val choice) {
        k.output(1).store(k.f32(0), {token, choice});
      });
    if (stage == 1)
      return emitBlock(k, s, b);
    bool accumulates = spec.flag("accumulate");
    View accGateUp = accumulates ? k.input(6) : View();
    View accDown = accumulates ? k.input(7) : View();
    double combines = double(combineTasks(s));
    k.ifThenElse(
        k.task() < combines,
        [&] {
          auto [lo, hi] = k.taskRange(s.T, combineTasks(s));
          k.forLoop(lo, hi, 1,
                    [&](Val token) {
                      combine(k, s, b, token, shard, k.output(0));
                    });
        },
        [&] {
          Val task = k.task() - combines;
          double first = double(s.E * tiles(2 * s.I, s.D));
          k.ifThenElse(
              task < first,
              [&] {
                emitWeights(k, b, task, b.gateUp, b.x, accGateUp, k.output(2));
              },
              [&] {
                emitWeights(k, b, task - first, b.dy, b.h, accDown,
                            k.output(3));
              });
        });
  }

private:
  static constexpr int64_t kTileRows = 252;
  static int64_t tiles(int64_t rows, int64_t columns) {
    return llvm::divideCeil(rows, kTileRows) *
           llvm::divideCeil(columns, kTileColumns);
  }

  static void emitBlock(KernelBuilder &k, const Shape &s, const Buffers &b) {
    View weights = k.input(2), dweights = k.output(1);
    forUsedBlock(k, b, k.task(), [&](Val expert, Val firstRow) {
      View x = b.x.tile({firstRow, 0}, {kRows, s.D});
      View dy = b.dy.tile({firstRow, 0}, {kRows, s.D});
      View gateUp = b.gateUp.tile({firstRow, 0}, {kRows, 2 * s.I});
      View h = b.h.tile({firstRow, 0}, {kRows, s.I});
      View wGateUp = k.input(4).at({expert}), wDown = k.input(5).at({expert});
      gather(k, s, b, firstRow, k.input(1), x);
      gather(k, s, b, firstRow, k.input(0), dy);
      blockProduct(k, x, wGateUp, true, gateUp);
      // h holds the gradient of the weighted activation first.
      blockProduct(k, dy, wDown, false, h);
      k.forLoop(0, kRows, 1, [&](Val row) {
        Val slot = b.slotOf.load({firstRow + row});
        Val weight = rowWeight(k, s, slot, weights);
        View in = gateUp.row(row), out = h.row(row);
        Val dweight = k.sum(s.I, [&](Lanes l) {
          Val gate = in.load({l.i}, l), up = in.load({l.i + double(s.I)}, l);
          Val dh = out.load({l.i}, l);
          Val open = sigmoid(gate), active = gate * open;
          Val slope = open * (1.0 + gate * (1.0 - open));
          in.store(dh * weight * up * slope, {l.i}, l);
          in.store(dh * weight * active, {l.i + double(s.I)}, l);
          out.store(active * up * weight, {l.i}, l);
          return dh * active * up;
        });
        k.ifThen(slot >= 0.0, [&] {
          Val at = cast(slot, k.index());
          dweights.store(dweight, {at / double(s.K), at % double(s.K)});
        });
      });
      blockProduct(k, gateUp, wGateUp, false,
                   b.out.tile({firstRow, 0}, {kRows, s.D}));
    });
  }

  /// One tile of the gradient of an expert's weight: left^T right summed over
  /// its blocks in order; zeros where it has none, or what `acc` has there.
  static void emitWeights(KernelBuilder &k, const Buffers &b, Val task,
                          View left, View right, View acc, View out) {
    int64_t M = left.size(1), N = right.size(1);
    int64_t columnTiles = llvm::divideCeil(N, kTileColumns);
    Val expert = task / double(tiles(M, N)), tile = task % double(tiles(M, N));
    Val row = tile / double(columnTiles) * double(kTileRows);
    Val column = tile % double(columnTiles) * double(kTileColumns);
    TileRange range{row, min(k.index(M) - row, k.index(kTileRows)), column,
                    min(k.index(N) - column, k.index(kTileColumns))};
    if (M <= kTileRows) {
      range.firstRow = 0;
      range.rowCount = M;
    }
    if (N <= kTileColumns) {
      range.firstColumn = 0;
      range.columnCount = N;
    }
    View c = out.at({expert}), before = acc.get() ? acc.at({expert}) : View();
    k.forLoop(range.firstRow, k.toIndex(range.firstRow) + k.toIndex(range.rowCount), 1, [&](Val r) {
      View line = c.row(r), from = before.get() ? before.row(r) : View();
      k.forLanes(range.columnCount, [&](Lanes l) {
        Val at = k.toIndex(range.firstColumn) + l.i;
        line.store(from.get() ? from.load({at}, l) : k.zero(k.f32(), l.width),
                   {at}, l);
      });
    });
    Val first = cast(b.blockStart.load({expert}), k.index());
    Val end = cast(b.blockStart.load({expert + 1.0}), k.index());
    k.forLoop(first, end, 1, [&](Val block) {
      Val at = block * double(kRows);
      matmulRange(k, MatrixOperand{left.tile({at, 0}, {kRows, M}), true},
                  MatrixOperand{right.tile({at, 0}, {kRows, N})}, c,
                  Start::Add, View(), range);
    });
  }
};

} // namespace

void registerMoeKernels() {
  registerKernel(std::make_unique<MoeExperts>());
  registerKernel(std::make_unique<MoeExpertsBwd>());
}

} // namespace qwen35::codegen::cpu
