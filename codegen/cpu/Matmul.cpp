// linear: out = x w^T, the forward product of every projection.
// matmul: out = a b with either operand transposed, for their gradients.
// Both take a third operand `acc` with {accumulate = true}: out = acc +
// product.

#include "codegen/cpu/Families.h"
#include "codegen/cpu/Gemm.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace qwen35::codegen::cpu {
namespace {

/// Rows and columns of the result in one task. Independent of the target, so
/// that a plan is as well.
struct Tiles {
  int64_t rows, columns; ///< Of a whole tile.
  int64_t rowTiles, columnTiles;
};

Tiles chooseTiles(int64_t M, int64_t N, int64_t K) {
  // Packing costs each operand element once per tile, so tiles are as large as
  // the packed panels allow, smaller where too few tasks would be left.
  constexpr int64_t kMostRows = 504, kTasks = 16;
  constexpr double kLeastWork = 2e6; // multiply-adds of a task, about 50 us
  int64_t rows = std::min(llvm::alignTo(M, kTileRowStep), uint64_t(kMostRows));
  int64_t columns =
      std::min(llvm::alignTo(N, kTileColumnStep), uint64_t(kTileColumns));
  auto tiles = [&] {
    return llvm::divideCeil(M, rows) * llvm::divideCeil(N, columns);
  };
  while (tiles() < kTasks &&
         double(rows) * double(columns) * double(K) > 2 * kLeastWork) {
    if (rows >= columns && rows > kTileRowStep)
      rows = llvm::alignTo(rows / 2, kTileRowStep);
    else if (columns > kTileColumnStep)
      columns = llvm::alignTo(columns / 2, kTileColumnStep);
    else
      break;
  }
  // Equal tiles instead of a small last one.
  rows = llvm::alignTo(llvm::divideCeil(M, llvm::divideCeil(M, rows)),
                       kTileRowStep);
  columns = llvm::alignTo(llvm::divideCeil(N, llvm::divideCeil(N, columns)),
                          kTileColumnStep);
  return Tiles{rows, columns, int64_t(llvm::divideCeil(M, rows)),
               int64_t(llvm::divideCeil(N, columns))};
}

class Product : public KernelFamily {
public:
  explicit Product(bool isLinear) : isLinear(isLinear) {}

  StringRef op() const override { return isLinear ? "linear" : "matmul"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec,
                             EmitError emitError) const override {
    bool accumulates = spec.flag("accumulate");
    if (failed(requireCounts(spec, accumulates ? 3 : 2, 1, emitError)))
      return failure();
    const char *left = isLinear ? "x" : "a", *right = isLinear ? "w" : "b";
    Type f32 = Float32Type::get(spec.inputs[0].getContext());
    if (failed(requireType(spec, spec.inputs[0], left, {kAny, kAny}, f32,
                           emitError)) ||
        failed(requireType(spec, spec.inputs[1], right, {kAny, kAny}, f32,
                           emitError)))
      return failure();
    Sizes size = sizes(spec);
    int64_t depth = spec.inputs[1].getDimSize(transposesRight(spec) ? 1 : 0);
    if (size.K != depth)
      return emitError() << op() << ": " << left << " has " << size.K
                         << " elements along the sum but " << right << " has "
                         << depth;
    if (failed(requireType(spec, spec.outputs[0], "the result",
                           {size.M, size.N}, f32, emitError)) ||
        (accumulates && failed(requireType(spec, spec.inputs[2], "acc",
                                           {size.M, size.N}, f32, emitError))))
      return failure();
    KernelPlan plan;
    if (usesDots(spec, size)) {
      plan.grids = {chooseTasks(size.M, size.N * size.K)};
    } else {
      Tiles tiles = chooseTiles(size.M, size.N, size.K);
      plan.grids = {tiles.rowTiles * tiles.columnTiles};
    }
    if (accumulates)
      plan.mayAlias = {{0, 2}};
    return plan;
  }

  void emit(const KernelSpec &spec, unsigned, KernelBuilder &k) const override {
    Sizes size = sizes(spec);
    bool accumulates = spec.flag("accumulate");
    View a = k.input(0), b = k.input(1), out = k.output(0);
    View addend = accumulates ? k.input(2) : View();
    if (usesDots(spec, size)) {
      emitDots(k, size, a, b, out, addend);
      return;
    }
    Tiles tiles = chooseTiles(size.M, size.N, size.K);
    // Neighbouring tasks share the columns of b, the operand packed whole.
    Val rowTile = k.task() % double(tiles.rowTiles);
    Val columnTile = k.task() / double(tiles.rowTiles);
    auto range = [&](Val tile, int64_t step, int64_t tiles, int64_t size,
                     Ix &first, Ix &count) {
      if (tiles == 1) {
        first = 0;
        count = size;
        return;
      }
      Val start = tile * double(step);
      first = start;
      count = size % step == 0 ? Ix(step)
                               : Ix(min(k.index(size) - start, k.index(step)));
    };
    TileRange tile{0, 0, 0, 0};
    range(rowTile, tiles.rows, tiles.rowTiles, size.M, tile.firstRow,
          tile.rowCount);
    range(columnTile, tiles.columns, tiles.columnTiles, size.N,
          tile.firstColumn, tile.columnCount);
    matmulRange(k, MatrixOperand{a, transposesLeft(spec)},
                MatrixOperand{b, transposesRight(spec)}, out,
                accumulates ? Start::Addend : Start::Zero, addend, tile);
  }

private:
  struct Sizes {
    int64_t M, N, K;
  };

  bool transposesLeft(const KernelSpec &spec) const {
    return !isLinear && spec.flag("transpose_a");
  }
  bool transposesRight(const KernelSpec &spec) const {
    return isLinear || spec.flag("transpose_b");
  }

  Sizes sizes(const KernelSpec &spec) const {
    MemRefType a = spec.inputs[0], b = spec.inputs[1];
    bool left = transposesLeft(spec), right = transposesRight(spec);
    return Sizes{a.getDimSize(left ? 1 : 0), b.getDimSize(right ? 0 : 1),
                 a.getDimSize(left ? 0 : 1)};
  }

  /// A few columns, both operands contiguous along the sum: packing would cost
  /// more than the product.
  bool usesDots(const KernelSpec &spec, const Sizes &size) const {
    return size.N <= 4 && transposesRight(spec) && !transposesLeft(spec);
  }

  static void emitDots(KernelBuilder &k, const Sizes &size, View a, View b,
                       View out, View addend) {
    auto [lo, hi] = k.taskRange(size.M, chooseTasks(size.M, size.N * size.K));
    k.forLoop(lo, hi, 1, [&](Val row) {
      View left = a.at({row});
      auto dots = k.sums(size.K, size.N, [&](Lanes l) {
        Val x = left.load({l.i}, l);
        SmallVector<Val> terms;
        for (int64_t n = 0; n < size.N; ++n)
          terms.push_back(x * b.load({n, l.i}, l));
        return terms;
      });
      for (int64_t n = 0; n < size.N; ++n) {
        Val value = dots[n];
        if (addend.get())
          value = addend.load({row, n}) + value;
        out.store(value, {row, n});
      }
    });
  }

  bool isLinear;
};

} // namespace

void registerMatmulKernels() {
  registerKernel(std::make_unique<Product>(/*isLinear=*/true));
  registerKernel(std::make_unique<Product>(/*isLinear=*/false));
}

} // namespace qwen35::codegen::cpu
