// lm_loss and lm_loss_grad: linear head and cross entropy without logits of all
// tokens. Both work on blocks of 64 tokens; the gradient keeps the logits of one
// chunk of blocks in its workspace, turns them into their gradient in place and
// multiplies that into dh and dweight before the next chunk overwrites it. With
// {accumulate = true} dweight is added to one more operand.
//
// lm_stats, lm_stats_loss and lm_stats_grad are the same for a head whose rows
// are split over ranks. Labels count from the rank's first row: -1 is a row of
// another rank, which has the target logit, -100 no target.

#include "codegen/cpu/Families.h"
#include "codegen/cpu/Gemm.h"
#include "codegen/cpu/KernelBuilder.h"

#include "llvm/Support/MathExtras.h"

#include <limits>

using namespace mlir;

namespace qwen35::codegen::cpu {
namespace {

constexpr int64_t kBlock = 64;   // tokens whose logits one task forms
constexpr int64_t kIgnored = -100; // label without a target

LogicalResult checkHead(const KernelSpec &spec, EmitError emitError) {
  Type f32 = Float32Type::get(spec.inputs[0].getContext());
  Type i32 = IntegerType::get(spec.inputs[0].getContext(), 32);
  if (failed(requireType(spec, spec.inputs[0], "h", {kAny, kAny}, f32,
                         emitError)))
    return failure();
  int64_t tokens = spec.inputs[0].getDimSize(0);
  int64_t columns = spec.inputs[0].getDimSize(1);
  return success(
      succeeded(requireType(spec, spec.inputs[1], "weight", {kAny, columns},
                            f32, emitError)) &&
      succeeded(requireType(spec, spec.inputs[2], "labels", {tokens}, i32,
                            emitError)));
}

/// Statistics are f32: one per token, or a scalar.
LogicalResult checkStats(const KernelSpec &spec, MemRefType type,
                         StringRef what, ArrayRef<int64_t> shape,
                         EmitError emitError) {
  return requireType(spec, type, what, shape,
                     Float32Type::get(type.getContext()), emitError);
}

LogicalResult checkLoss(const KernelSpec &spec, EmitError emitError) {
  return success(
      succeeded(checkHead(spec, emitError)) &&
      succeeded(
          checkStats(spec, spec.inputs[3], "inv_count", {}, emitError)) &&
      succeeded(checkStats(spec, spec.outputs[0], "loss", {}, emitError)));
}

/// Calls body(rows) with the static number of rows of block `block` of `tokens`.
void forBlockRows(KernelBuilder &k, Val block, int64_t tokens,
                  llvm::function_ref<void(int64_t)> body) {
  int64_t full = tokens / kBlock, tail = tokens % kBlock;
  if (tail == 0)
    return body(kBlock);
  if (full == 0)
    return body(tail);
  k.ifThenElse(
      block < double(full), [&] { body(kBlock); }, [&] { body(tail); });
}

/// The columns [0, n) of a product in pieces of at most kTileColumns.
void forColumnTiles(KernelBuilder &k, int64_t n,
                    llvm::function_ref<void(Ix first, int64_t count)> body) {
  int64_t full = n / kTileColumns, tail = n % kTileColumns;
  if (full > 0)
    k.forLoop(0, full * kTileColumns, kTileColumns,
              [&](Val first) { body(first, kTileColumns); });
  if (tail > 0)
    body(full * kTileColumns, tail);
}

/// Adds the partial losses in order.
void sumLosses(KernelBuilder &k, View partials, Val invCount) {
  Val total = k.forLoop(0, partials.size(0), 1, {k.f64(0)},
                        [&](Val i, ArrayRef<Val> carried) {
                          return SmallVector<Val>{carried[0] +
                                                  partials.load({i})};
                        })[0];
  k.output(0).store(cast(total * cast(invCount, k.f64()), k.f32()), {});
}

/// Per row of a block: the largest logit, the sum of exponentials from there
/// and the logit of the label, 0 where the label is not one of the rows of w.
void emitStatistics(KernelBuilder &k, Val first, int64_t rows, View maxima,
                    View sums, View targets) {
  View h = k.input(0), w = k.input(1), labels = k.input(2);
  int64_t D = h.size(1);
  View logits = k.scratch({kBlock, kTileColumns}, k.f32());
  View hBlock = h.tile({first, 0}, {rows, D});
  k.forLoop(0, rows, 1, [&](Val row) {
    maxima.store(k.f32(-std::numeric_limits<float>::infinity()), {row});
    sums.store(k.f32(0), {row});
    targets.store(k.f32(0), {row});
  });
  forColumnTiles(k, w.size(0), [&](Ix column, int64_t count) {
    View tile = logits.tile({0, 0}, {rows, count});
    matmulRange(k, MatrixOperand{hBlock},
                MatrixOperand{w.tile({column, 0}, {count, D}), true}, tile,
                Start::Zero, View(), TileRange{0, rows, 0, count});
    k.forLoop(0, rows, 1, [&](Val row) {
      View line = tile.row(row);
      Val before = maxima.load({row});
      Val now = max(before, k.maximum(count, [&](Lanes l) {
        return line.load({l.i}, l);
      }));
      Val sum = k.sum(count, [&](Lanes l) {
        return exp(line.load({l.i}, l) - now);
      });
      sums.store(sums.load({row}) * exp(before - now) + sum, {row});
      maxima.store(now, {row});
      Val label = cast(labels.load({first + row}), k.index()) -
                  k.toIndex(column);
      k.ifThen((label >= 0.0) & (label < double(count)),
               [&] { targets.store(line.load({label}), {row}); });
    });
  });
}

/// The loss of a block from its statistics.
Val blockLoss(KernelBuilder &k, Val first, int64_t rows, View labels,
              View maxima, View sums, View targets) {
  return k.forLoop(
      0, rows, 1, {k.f64(0)}, [&](Val row, ArrayRef<Val> carried) {
        Val nll = maxima.load({row}) + log(sums.load({row})) -
                  targets.load({row});
        Val ignored = labels.load({first + row}) == double(kIgnored);
        return SmallVector<Val>{
            carried[0] + select(ignored, k.f64(0), cast(nll, k.f64()))};
      })[0];
}

int64_t blocksOf(int64_t tokens) { return llvm::divideCeil(tokens, kBlock); }

class LmLoss : public KernelFamily {
public:
  StringRef op() const override { return "lm_loss"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 4, 1, emitError)) ||
        failed(checkLoss(spec, emitError)))
      return failure();
    int64_t blocks = blocksOf(spec.inputs[0].getDimSize(0));
    KernelPlan plan;
    plan.grids = {blocks, 1};
    plan.workspaceBytes = blocks * 8;
    return plan;
  }

  void emit(const KernelSpec &, unsigned stage,
            KernelBuilder &k) const override {
    int64_t tokens = k.input(0).size(0);
    View partials = k.workspace(0, {blocksOf(tokens)}, k.f64());
    if (stage == 1)
      return sumLosses(k, partials, k.input(3).load({}));
    View maxima = k.scratch({kBlock}, k.f32());
    View sums = k.scratch({kBlock}, k.f32());
    View targets = k.scratch({kBlock}, k.f32());
    Val first = k.task() * double(kBlock);
    forBlockRows(k, k.task(), tokens, [&](int64_t rows) {
      emitStatistics(k, first, rows, maxima, sums, targets);
      partials.store(blockLoss(k, first, rows, k.input(2), maxima, sums,
                               targets),
                     {k.task()});
    });
  }
};

class LmStats : public KernelFamily {
public:
  StringRef op() const override { return "lm_stats"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 3, 3, emitError)) ||
        failed(checkHead(spec, emitError)))
      return failure();
    int64_t tokens = spec.inputs[0].getDimSize(0);
    StringRef names[] = {"highest", "sum", "target"};
    for (auto [type, name] : llvm::zip_equal(spec.outputs, names))
      if (failed(checkStats(spec, type, name, {tokens}, emitError)))
        return failure();
    KernelPlan plan;
    plan.grids = {blocksOf(tokens)};
    return plan;
  }

  void emit(const KernelSpec &, unsigned, KernelBuilder &k) const override {
    Val first = k.task() * double(kBlock);
    forBlockRows(k, k.task(), k.input(0).size(0), [&](int64_t rows) {
      auto block = [&](unsigned output) {
        return k.output(output).tile({first}, {rows});
      };
      emitStatistics(k, first, rows, block(0), block(1), block(2));
    });
  }
};

class LmStatsLoss : public KernelFamily {
public:
  StringRef op() const override { return "lm_stats_loss"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 5, 1, emitError)))
      return failure();
    MemRefType labels = spec.inputs[0];
    if (failed(requireType(spec, labels, "labels", {kAny},
                           IntegerType::get(labels.getContext(), 32),
                           emitError)) ||
        failed(checkStats(spec, spec.inputs[1], "inv_count", {}, emitError)))
      return failure();
    int64_t tokens = labels.getDimSize(0);
    StringRef names[] = {"highest", "sum", "target"};
    for (auto [type, name] :
         llvm::zip_equal(ArrayRef(spec.inputs).drop_front(2), names))
      if (failed(checkStats(spec, type, name, {tokens}, emitError)))
        return failure();
    if (failed(checkStats(spec, spec.outputs[0], "loss", {}, emitError)))
      return failure();
    KernelPlan plan;
    plan.grids = {blocksOf(tokens), 1};
    plan.workspaceBytes = plan.grids[0] * 8;
    return plan;
  }

  void emit(const KernelSpec &, unsigned stage,
            KernelBuilder &k) const override {
    View labels = k.input(0);
    View partials = k.workspace(0, {blocksOf(labels.size(0))}, k.f64());
    if (stage == 1)
      return sumLosses(k, partials, k.input(1).load({}));
    Val first = k.task() * double(kBlock);
    forBlockRows(k, k.task(), labels.size(0), [&](int64_t rows) {
      auto block = [&](unsigned input) {
        return k.input(input).tile({first}, {rows});
      };
      partials.store(
          blockLoss(k, first, rows, labels, block(2), block(3), block(4)),
          {k.task()});
    });
  }
};

/// lm_loss_grad, or from statistics lm_stats_grad: the same without a loss.
class LmGradient : public KernelFamily {
public:
  explicit LmGradient(bool fromStats) : fromStats(fromStats) {}
  StringRef op() const override {
    return fromStats ? "lm_stats_grad" : "lm_loss_grad";
  }

  FailureOr<KernelPlan> plan(const KernelSpec &spec,
                             EmitError emitError) const override {
    bool accumulates = spec.flag("accumulate");
    unsigned inputs = sumInput(), dh = dhOutput(), dw = dh + 1;
    if (failed(requireCounts(spec, accumulates ? inputs + 1 : inputs, dw + 1,
                             emitError)) ||
        failed(checkHead(spec, emitError)) ||
        failed(checkStats(spec, spec.inputs[3], "inv_count", {}, emitError)))
      return failure();
    int64_t tokens = spec.inputs[0].getDimSize(0);
    if (fromStats
            ? failed(checkStats(spec, spec.inputs[4], "highest", {tokens},
                                emitError)) ||
                  failed(checkStats(spec, spec.inputs[5], "sum", {tokens},
                                    emitError))
            : failed(checkStats(spec, spec.outputs[0], "loss", {}, emitError)))
      return failure();
    if (failed(requireSameShape(spec, spec.outputs[dh], "dh", spec.inputs[0],
                                "h", emitError)) ||
        failed(requireSameShape(spec, spec.outputs[dw], "dweight",
                                spec.inputs[1], "weight", emitError)) ||
        (accumulates && failed(requireSameShape(spec, spec.outputs[dw],
                                                "dweight", spec.inputs[inputs],
                                                "acc", emitError))))
      return failure();
    Sizes size = sizes(spec);
    KernelPlan plan;
    if (accumulates)
      plan.mayAlias = {{dw, inputs}};
    for (int64_t chunk = 0; chunk < size.chunks; ++chunk) {
      plan.grids.push_back(
          llvm::divideCeil(size.chunkTokens(chunk), kBlock));
      plan.grids.push_back(size.dhTiles(chunk) + size.dwTiles());
    }
    plan.workspaceBytes = size.partialsOffset();
    if (!fromStats) {
      plan.grids.push_back(1);
      plan.workspaceBytes += size.blocks * 8;
    }
    return plan;
  }

  void emit(const KernelSpec &spec, unsigned stage,
            KernelBuilder &k) const override {
    Sizes size = sizes(spec);
    View partials;
    if (!fromStats)
      partials = k.workspace(size.partialsOffset(), {size.blocks}, k.f64());
    int64_t chunk = stage / 2;
    if (chunk == size.chunks)
      return sumLosses(k, partials, k.input(3).load({}));
    View logits =
        k.workspace(0, {size.chunkTokens(chunk), size.V}, k.f32());
    if (stage % 2 == 0)
      emitGradientOfLogits(k, size, chunk, logits, partials);
    else
      emitProducts(k, size, chunk, logits,
                   spec.flag("accumulate") ? k.input(sumInput()) : View());
  }

private:
  unsigned sumInput() const { return fromStats ? 6 : 4; }
  unsigned dhOutput() const { return fromStats ? 0 : 1; }

  static constexpr int64_t kRows = 60;         // of a tile of dh
  static constexpr int64_t kVocabulary = 252;  // rows of a tile of dweight

  struct Sizes {
    int64_t T, D, V;
    int64_t chunk;  ///< Tokens whose logits exist at a time.
    int64_t chunks, blocks;

    /// Where the partial losses begin, behind the logits.
    int64_t partialsOffset() const { return llvm::alignTo(chunk * V * 4, 64); }
    int64_t chunkTokens(int64_t index) const {
      return std::min(chunk, T - index * chunk);
    }
    int64_t columnTiles() const { return llvm::divideCeil(D, kTileColumns); }
    int64_t dhTiles(int64_t index) const {
      return llvm::divideCeil(chunkTokens(index), kRows) * columnTiles();
    }
    int64_t dwTiles() const {
      return llvm::divideCeil(V, kVocabulary) * columnTiles();
    }
  };

  static Sizes sizes(const KernelSpec &spec) {
    Sizes size;
    size.T = spec.inputs[0].getDimSize(0);
    size.D = spec.inputs[0].getDimSize(1);
    size.V = spec.inputs[1].getDimSize(0);
    // At least two chunks, so that logits of all tokens never exist; 256 tokens
    // make the products efficient; beyond 8192 tokens, 32 chunks.
    int64_t half = llvm::alignTo(llvm::divideCeil(size.T, 2), kBlock);
    size.chunk = std::min<int64_t>(
        half, std::max<int64_t>(256, llvm::alignTo(size.T / 32, kBlock)));
    size.chunks = llvm::divideCeil(size.T, size.chunk);
    size.blocks = llvm::divideCeil(size.T, kBlock);
    return size;
  }

  /// One block: logits, then (softmax - onehot) * inv_count in their place.
  void emitGradientOfLogits(KernelBuilder &k, const Sizes &size, int64_t chunk,
                            View logits, View partials) const {
    View h = k.input(0), w = k.input(1), labels = k.input(2);
    Val invCount = k.input(3).load({});
    Val inChunk = k.task() * double(kBlock);
    Val first = inChunk + double(chunk * size.chunk);
    forBlockRows(k, k.task(), size.chunkTokens(chunk), [&](int64_t rows) {
      View hBlock = h.tile({first, 0}, {rows, size.D});
      View block = logits.tile({inChunk, 0}, {rows, size.V});
      forColumnTiles(k, size.V, [&](Ix column, int64_t count) {
        matmulRange(k, MatrixOperand{hBlock}, MatrixOperand{w, true}, block,
                    Start::Zero, View(), TileRange{0, rows, column, count});
      });
      Val loss = k.forLoop(
          0, rows, 1, {k.f64(0)}, [&](Val row, ArrayRef<Val> carried) {
            View line = block.row(row);
            Val label = labels.load({first + row});
            Val nll = k.ifValues(
                label == double(kIgnored),
                [&] {
                  k.forLanes(size.V, [&](Lanes l) {
                    line.store(k.zero(k.f32(), l.width), {l.i}, l);
                  });
                  return SmallVector<Val>{k.f64(0)};
                },
                [&] {
                  if (!fromStats)
                    return SmallVector<Val>{
                        gradientOfRow(k, size.V, line, label, invCount)};
                  gradientOfPart(k, size.V, line, label, invCount,
                                 k.input(4).load({first + row}),
                                 k.input(5).load({first + row}));
                  return SmallVector<Val>{k.f64(0)};
                })[0];
            return SmallVector<Val>{carried[0] + nll};
          })[0];
      if (!fromStats)
        partials.store(loss,
                       {k.task() + double(chunk * size.chunk / kBlock)});
    });
  }

  /// The columns of a row that one rank has.
  static void gradientOfPart(KernelBuilder &k, int64_t V, View line, Val label,
                             Val invCount, Val largest, Val sum) {
    Val scale = invCount / sum;
    k.forLanes(V, [&](Lanes l) {
      line.store(exp(line.load({l.i}, l) - largest) * scale, {l.i}, l);
    });
    Val at = cast(label, k.index());
    k.ifThen(at >= 0.0,
             [&] { line.store(line.load({at}) - invCount, {at}); });
  }

  static Val gradientOfRow(KernelBuilder &k, int64_t V, View line, Val label,
                           Val invCount) {
    Val at = cast(label, k.index());
    Val target = line.load({at});
    Val largest =
        k.maximum(V, [&](Lanes l) { return line.load({l.i}, l); });
    Val sum = k.sum(
        V, [&](Lanes l) { return exp(line.load({l.i}, l) - largest); });
    Val scale = invCount / sum;
    k.forLanes(V, [&](Lanes l) {
      line.store(exp(line.load({l.i}, l) - largest) * scale, {l.i}, l);
    });
    line.store(line.load({at}) - invCount, {at});
    return cast(largest + log(sum) - target, k.f64());
  }

  /// dh = dlogits weight and dweight (+)= dlogits^T h: tiles of both. The first
  /// chunk adds to `acc`, where there is one.
  void emitProducts(KernelBuilder &k, const Sizes &size, int64_t chunk,
                    View logits, View acc) const {
    View h = k.input(0), w = k.input(1);
    View dh = k.output(dhOutput()), dw = k.output(dhOutput() + 1);
    int64_t rows = size.chunkTokens(chunk), first = chunk * size.chunk;
    auto tile = [&](Val number, int64_t M, int64_t rowStep) {
      Val row = number / double(size.columnTiles()) * double(rowStep);
      Val column =
          number % double(size.columnTiles()) * double(kTileColumns);
      TileRange range{row, min(k.index(M) - row, k.index(rowStep)), column,
                      min(k.index(size.D) - column, k.index(kTileColumns))};
      // Where there is one tile its size is known while compiling.
      if (M <= rowStep) {
        range.firstRow = 0;
        range.rowCount = M;
      }
      if (size.D <= kTileColumns) {
        range.firstColumn = 0;
        range.columnCount = size.D;
      }
      return range;
    };
    int64_t dhTiles = size.dhTiles(chunk);
    k.ifThenElse(
        k.task() < double(dhTiles),
        [&] {
          matmulRange(k, MatrixOperand{logits}, MatrixOperand{w},
                      dh.tile({first, 0}, {rows, size.D}), Start::Zero,
                      View(), tile(k.task(), rows, kRows));
        },
        [&] {
          matmulRange(k, MatrixOperand{logits, true},
                      MatrixOperand{h.tile({first, 0}, {rows, size.D})}, dw,
                      chunk > 0 ? Start::Add
                                : acc.get() ? Start::Addend : Start::Zero,
                      chunk == 0 ? acc : View(),
                      tile(k.task() - double(dhTiles), size.V, kVocabulary));
        });
  }

  bool fromStats;
};

} // namespace

void registerLossKernels() {
  registerKernel(std::make_unique<LmLoss>());
  registerKernel(std::make_unique<LmStats>());
  registerKernel(std::make_unique<LmStatsLoss>());
  for (bool fromStats : {false, true})
    registerKernel(std::make_unique<LmGradient>(fromStats));
}

} // namespace qwen35::codegen::cpu
