// The packed, register-blocked matrix product.
//
//   for each block of depth KC:                      sum over k, ascending
//     pack b into panels [KC, NR]                    L2: 256 KiB at most
//     for each MR rows of a:
//       pack them                                    L1: 12 KiB
//       for each panel: MR x NR accumulators, one fused multiply-add per k
//
// Everything is static but the number of whole panels, so remainders get
// micro-kernels of their own size instead of tests in the inner loop. Packed
// panels are padded with zeros to whole vectors along k.

#include "codegen/cpu/Gemm.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace qwen35::codegen::cpu {
namespace {

constexpr int64_t kDepth = 256; // Depth of a block.

/// Transposes n vectors of n lanes, n = 8 or 16: 4 x 4 inside the 128-bit
/// quarters, then the quarters. All steps are single instructions of AVX.
SmallVector<Val> transposeVectors(SmallVector<Val> rows) {
  int64_t n = rows.size(), quarters = n / 4;
  // `pattern` selects within a quarter: 0..3 from a, 4..7 from b.
  auto inQuarters = [&](Val a, Val b, ArrayRef<int64_t> pattern) {
    SmallVector<int64_t> order;
    for (int64_t q = 0; q < quarters; ++q)
      for (int64_t lane : pattern)
        order.push_back(lane < 4 ? 4 * q + lane : n + 4 * q + lane - 4);
    return shuffleLanes(a, b, order);
  };
  // Whole quarters: 0 .. quarters-1 from a, the rest from b.
  auto ofQuarters = [&](Val a, Val b, ArrayRef<int64_t> pattern) {
    SmallVector<int64_t> order;
    for (int64_t quarter : pattern)
      for (int64_t lane = 0; lane < 4; ++lane)
        order.push_back(4 * quarter + lane);
    return shuffleLanes(a, b, order);
  };
  SmallVector<Val> blocks(n);
  for (int64_t g = 0; g < n; g += 4) {
    Val low01 = inQuarters(rows[g], rows[g + 1], {0, 4, 1, 5});
    Val high01 = inQuarters(rows[g], rows[g + 1], {2, 6, 3, 7});
    Val low23 = inQuarters(rows[g + 2], rows[g + 3], {0, 4, 1, 5});
    Val high23 = inQuarters(rows[g + 2], rows[g + 3], {2, 6, 3, 7});
    blocks[g] = inQuarters(low01, low23, {0, 1, 4, 5});
    blocks[g + 1] = inQuarters(low01, low23, {2, 3, 6, 7});
    blocks[g + 2] = inQuarters(high01, high23, {0, 1, 4, 5});
    blocks[g + 3] = inQuarters(high01, high23, {2, 3, 6, 7});
  }
  // blocks[4g + c], quarter q: column 4q + c of rows 4g .. 4g+3.
  SmallVector<Val> columns(n);
  for (int64_t c = 0; c < 4; ++c) {
    if (n == 8) {
      columns[c] = ofQuarters(blocks[c], blocks[4 + c], {0, 2});
      columns[4 + c] = ofQuarters(blocks[c], blocks[4 + c], {1, 3});
      continue;
    }
    Val even01 = ofQuarters(blocks[c], blocks[4 + c], {0, 2, 4, 6});
    Val odd01 = ofQuarters(blocks[c], blocks[4 + c], {1, 3, 5, 7});
    Val even23 = ofQuarters(blocks[8 + c], blocks[12 + c], {0, 2, 4, 6});
    Val odd23 = ofQuarters(blocks[8 + c], blocks[12 + c], {1, 3, 5, 7});
    columns[c] = ofQuarters(even01, even23, {0, 2, 4, 6});
    columns[4 + c] = ofQuarters(odd01, odd23, {0, 2, 4, 6});
    columns[8 + c] = ofQuarters(even01, even23, {1, 3, 5, 7});
    columns[12 + c] = ofQuarters(odd01, odd23, {1, 3, 5, 7});
  }
  return columns;
}

class ProductEmitter {
public:
  ProductEmitter(KernelBuilder &k, MatrixOperand a, MatrixOperand b, View c,
                 Start start, View addend, TileRange range)
      : k(k), a(a), b(b), c(c), start(start), addend(addend), range(range),
        M(c.size(0)), N(c.size(1)), K(a.columns()), lanes(k.width()) {
    assert(a.rows() == M && b.rows() == K && b.columns() == N);
    bool wide = k.registers() >= 32;
    rowStep = wide ? 12 : 6;
    panelVectors = 2;
    unroll = wide ? 2 : 4;
    rowTail = M % rowStep;
    int64_t shortest = std::min<int64_t>(
        N, range.columnCount.value ? N : range.columnCount.constant);
    if (shortest <= lanes)
      panelVectors = 1;
    // A product of few rows reads b once: no packing, and more columns at a
    // time so that the additions do not wait for each other.
    direct = !b.transposed && M <= rowStep && !range.rowCount.value;
    if (direct) {
      // A cut range leaves the remainder N % kTileColumnStep and no other.
      int64_t most = range.columnCount.value ? kTileColumnStep / lanes : 8;
      int64_t useful = llvm::divideCeil(shortest, lanes);
      panelVectors =
          std::clamp<int64_t>(std::min((wide ? 24 : 10) / M, useful), 1, most);
      if (range.columnCount.value)
        panelVectors = llvm::bit_floor<uint64_t>(panelVectors);
    }
    panel = panelVectors * lanes;
    columnTail = N % panel;
    depthBlocks = llvm::divideCeil(K, kDepth);
    depth = llvm::alignTo(llvm::divideCeil(K, depthBlocks), lanes);
    wholeVectors = K % lanes == 0;
    leftStep = a.transposed ? llvm::PowerOf2Ceil(rowStep) : depth + lanes;
  }

  void emit() {
    packedA = k.packedLeft();
    if (!direct)
      packedB = k.packedRight();
    if (depthBlocks == 1) {
      block(k.index(0), k.index(K), Val());
      return;
    }
    k.forLoop(0, K, depth, [&](Val k0) {
      block(k0, min(k.index(K) - k0, k.index(depth)), k0 == 0.0);
    });
  }

private:
  static Val plus(KernelBuilder &k, Ix a, Ix b) {
    if (!a.value && !b.value)
      return k.index(a.constant + b.constant);
    return k.toIndex(a) + k.toIndex(b);
  }

  /// Panels without a remainder in a count of rows or columns.
  Ix wholePanels(Ix count, int64_t step) {
    if (count.value)
      return count.value / double(step);
    return count.constant / step;
  }

  /// body(number of the panel) for whole panels, tail(number) for the cut one.
  void forPanels(Ix count, int64_t step, int64_t tail,
                 function_ref<void(Val)> whole,
                 function_ref<void(Val, int64_t)> cut) {
    Ix panels = wholePanels(count, step);
    if (panels.value || panels.constant > 1)
      k.forLoop(0, panels, 1, whole);
    else if (panels.constant == 1)
      whole(k.index(0));
    if (!count.value) {
      if (int64_t rest = count.constant % step)
        cut(k.index(panels.constant), rest);
    } else if (tail) {
      Val rest = count.value % double(step);
      k.ifThen(rest != 0.0, [&] { cut(panels.value, tail); });
    }
  }

  void block(Val k0, Val length, Val isFirst) {
    if (!direct)
      forPanels(
          range.columnCount, panel, columnTail,
          [&](Val p) { packB(k0, length, p, panel); },
          [&](Val p, int64_t columns) { packB(k0, length, p, columns); });
    auto rows = [&](Val p, int64_t count) {
      Val first = plus(k, range.firstRow, p * double(rowStep));
      packA(k0, length, first, count);
      forPanels(
          range.columnCount, panel, columnTail,
          [&](Val q) { micro(k0, length, first, count, q, panel, isFirst); },
          [&](Val q, int64_t columns) {
            micro(k0, length, first, count, q, columns, isFirst);
          });
    };
    forPanels(
        range.rowCount, rowStep, rowTail, [&](Val p) { rows(p, rowStep); },
        rows);
  }

  /// Whole vectors along the depth; the mask of the last covers what is real.
  void forDepthVectors(Val length, function_ref<void(Lanes)> body) {
    if (wholeVectors) {
      k.forLoop(0, length, lanes, [&](Val i) { body(Lanes{i, lanes, Val()}); });
      return;
    }
    k.forLanes(length, body);
  }

  /// Rows of a to [row, depth] or, where a is transposed, [depth, row].
  void packA(Val k0, Val length, Val first, int64_t count) {
    if (!a.transposed) {
      View from = a.view.tile({first, k0}, {count, depth});
      View to = packedA.restride({count, depth}, {leftStep, 1});
      forDepthVectors(length, [&](Lanes l) {
        for (int64_t row = 0; row < count; ++row)
          to.storeVector(from.load({row, l.i}, l), {row, l.i});
      });
      return;
    }
    View from = a.view.tile({k0, first}, {depth, count});
    View to = packedA.restride({depth, leftStep}, {leftStep, 1});
    Val mask = count == leftStep ? Val() : k.firstLanes(count, leftStep);
    k.forLoop(0, length, 1, [&](Val i) {
      to.storeVector(from.loadVector({i, 0}, leftStep, mask), {i, 0});
    });
    padDepth(length, [&](Val i) {
      to.storeVector(k.zero(k.f32(), leftStep), {i, 0});
    });
  }

  /// Calls body for the depths from length up to a whole vector.
  void padDepth(Val length, function_ref<void(Val)> body) {
    if (wholeVectors)
      return;
    Val padded = (length + double(lanes - 1)) / double(lanes) * double(lanes);
    k.forLoop(length, padded, 1, body);
  }

  View panelOf(Val number) {
    return packedB.tile({number * double(depth * panel)}, {depth * panel})
        .restride({depth, panel}, {panel, 1});
  }

  /// Columns of b to [depth, panel], missing ones zero.
  void packB(Val k0, Val length, Val number, int64_t columns) {
    Val first = plus(k, range.firstColumn, number * double(panel));
    View to = panelOf(number);
    int64_t vectors = llvm::divideCeil(columns, lanes);
    if (!b.transposed) {
      View from = b.view.tile({k0, first}, {depth, columns});
      k.forLoop(0, length, 1, [&](Val i) {
        for (int64_t v = 0; v < vectors; ++v) {
          int64_t real = std::min(columns - v * lanes, lanes);
          Val mask = real == lanes ? Val() : k.firstLanes(real, lanes);
          to.storeVector(from.loadVector({i, v * lanes}, lanes, mask),
                         {i, v * lanes});
        }
      });
      padDepth(length, [&](Val i) {
        for (int64_t v = 0; v < vectors; ++v)
          to.storeVector(k.zero(k.f32(), lanes), {i, v * lanes});
      });
      return;
    }
    View from = b.view.tile({first, k0}, {columns, depth});
    forDepthVectors(length, [&](Lanes l) {
      for (int64_t v = 0; v < vectors; ++v) {
        SmallVector<Val> rows;
        for (int64_t lane = 0; lane < lanes; ++lane) {
          int64_t column = v * lanes + lane;
          rows.push_back(column < columns ? from.load({column, l.i}, l)
                                          : k.zero(k.f32(), lanes));
        }
        SmallVector<Val> turned = transposeVectors(rows);
        for (int64_t i = 0; i < lanes; ++i)
          to.storeVector(turned[i], {l.i + double(i), v * lanes});
      }
    });
  }

  /// `count` rows times `columns` columns of panel `number` over one block.
  void micro(Val k0, Val length, Val firstRow, int64_t count, Val number,
             int64_t columns, Val isFirst) {
    int64_t vectors = llvm::divideCeil(columns, lanes);
    Val firstColumn = plus(k, range.firstColumn, number * double(panel));
    View left = a.transposed
                    ? packedA.restride({depth, leftStep}, {leftStep, 1})
                    : packedA.restride({count, depth}, {leftStep, 1});
    View right = direct ? b.view.tile({k0, firstColumn}, {depth, columns})
                        : panelOf(number);
    auto mask = [&](int64_t v) {
      int64_t real = std::min(columns - v * lanes, lanes);
      return real == lanes ? Val() : k.firstLanes(real, lanes);
    };
    SmallVector<Val> sums(count * vectors, k.zero(k.f32(), lanes));
    auto step = [&](Val i, MutableArrayRef<Val> sums) {
      SmallVector<Val> b;
      for (int64_t v = 0; v < vectors; ++v)
        b.push_back(
            right.loadVector({i, v * lanes}, lanes, direct ? mask(v) : Val()));
      for (int64_t row = 0; row < count; ++row) {
        Val scalar = a.transposed ? left.load({i, row}) : left.load({row, i});
        Val factor = broadcast(scalar, lanes);
        for (int64_t v = 0; v < vectors; ++v)
          sums[row * vectors + v] = fma(factor, b[v], sums[row * vectors + v]);
      }
    };
    // Zeros up to a whole vector follow in the packed operands, so the loop may
    // run over the end by less than its unrolling; b itself has no such zeros.
    int64_t steps = direct ? 1 : unroll;
    sums = k.forLoop(0, length, steps, sums, [&](Val i, ArrayRef<Val> carried) {
      SmallVector<Val> next(carried);
      for (int64_t u = 0; u < steps; ++u)
        step(u ? i + double(u) : i, next);
      return next;
    });

    View to = c.tile({firstRow, firstColumn}, {count, columns});
    auto finish = [&](View base) {
      for (int64_t row = 0; row < count; ++row)
        for (int64_t v = 0; v < vectors; ++v) {
          Val value = sums[row * vectors + v];
          if (base.get())
            value = base.loadVector({row, v * lanes}, lanes, mask(v)) + value;
          to.storeVector(value, {row, v * lanes}, mask(v));
        }
    };
    View base;
    if (start == Start::Add)
      base = to;
    else if (start == Start::Addend)
      base = addend.tile({firstRow, firstColumn}, {count, columns});
    if (!isFirst || start == Start::Add)
      finish(base);
    else
      k.ifThenElse(
          isFirst, [&] { finish(base); }, [&] { finish(to); });
  }

  KernelBuilder &k;
  MatrixOperand a, b;
  View c;
  Start start;
  View addend;
  TileRange range;
  int64_t M, N, K, lanes;
  int64_t rowStep, panelVectors, panel, unroll, rowTail, columnTail;
  int64_t depthBlocks, depth, leftStep;
  bool direct, wholeVectors;
  View packedA, packedB;
};

} // namespace

void matmulRange(KernelBuilder &k, MatrixOperand a, MatrixOperand b, View c,
                 Start start, View addend, TileRange range) {
  ProductEmitter(k, a, b, c, start, addend, range).emit();
}

void matmulTile(KernelBuilder &k, MatrixOperand a, MatrixOperand b, View c,
                bool accumulate) {
  int64_t rows = c.size(0), columns = c.size(1);
  for (int64_t first = 0; first < columns; first += kTileColumns)
    matmulRange(
        k, a, b, c, accumulate ? Start::Add : Start::Zero, View(),
        TileRange{0, rows, first, std::min(columns - first, kTileColumns)});
}

} // namespace qwen35::codegen::cpu
