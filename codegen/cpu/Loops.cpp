#include "codegen/cpu/Loops.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace qwen35::codegen::cpu {
namespace {

constexpr int64_t kBlock = 64; // Tasks of dense kernels start at cache lines.

bool isDense(MemRefType type) {
  auto [strides, offset] = type.getStridesAndOffset();
  (void)offset;
  int64_t expected = 1;
  for (int64_t d = type.getRank() - 1; d >= 0; --d) {
    if (type.getDimSize(d) != 1 && strides[d] != expected)
      return false;
    expected *= type.getDimSize(d);
  }
  return true;
}

} // namespace

int64_t rowTasks(MemRefType type, int64_t cost) {
  return chooseTasks(rowCount(type), type.getShape().back() * cost);
}

int64_t elementTasks(ArrayRef<MemRefType> types, int64_t cost) {
  if (!llvm::all_of(types, isDense))
    return rowTasks(types.front(), cost);
  int64_t blocks = llvm::divideCeil(elementCount(types.front()), kBlock);
  return chooseTasks(blocks, kBlock * cost);
}

void forElements(KernelBuilder &k, ArrayRef<View> views, int64_t cost,
                 function_ref<void(ArrayRef<View>, Lanes)> body) {
  auto types =
      llvm::map_to_vector(views, [](const View &v) { return v.type(); });
  MemRefType type = types.front();
  int64_t tasks = elementTasks(types, cost);
  if (llvm::all_of(types, isDense)) {
    int64_t elements = elementCount(type);
    int64_t blocks = llvm::divideCeil(elements, kBlock);
    int64_t each = llvm::divideCeil(blocks, tasks) * kBlock;
    Val first = k.task() * double(each);
    Ix count = each;
    if (tasks == 1)
      count = elements;
    else if (each * tasks != elements)
      count = min(k.index(elements) - first, k.index(each));
    SmallVector<View> parts;
    for (const View &view : views)
      parts.push_back(
          tasks == 1 ? view.flat()
                     : view.flat().tile({first}, {std::min(each, elements)}));
    k.forLanes(count, [&](Lanes l) { body(parts, l); });
    return;
  }
  auto [lo, hi] = k.taskRange(rowCount(type), tasks);
  k.forLoop(lo, hi, 1, [&](Val row) {
    SmallVector<View> parts;
    for (const View &view : views)
      parts.push_back(view.row(row));
    k.forLanes(parts.front().size(0), [&](Lanes l) { body(parts, l); });
  });
}

ColumnSums ColumnSums::choose(int64_t rows, int64_t columns, int64_t cost) {
  constexpr int64_t kMostParts = 64;
  int64_t parts = std::min(chooseTasks(rows, columns * cost), kMostParts);
  return ColumnSums{
      rows, columns,
      int64_t(llvm::divideCeil(rows, llvm::divideCeil(rows, parts)))};
}

View ColumnSums::beginPart(KernelBuilder &k) const {
  View part = k.workspace(0, {parts, columns}, k.f32()).row(k.task());
  k.forLanes(columns, [&](Lanes l) { part.store(k.f32(0.0), {l.i}, l); });
  return part;
}

void ColumnSums::finish(KernelBuilder &k, ArrayRef<View> targets) const {
  View partial = k.workspace(0, {parts, columns}, k.f32());
  int64_t each = columns / targets.size();
  // Every task takes its piece of every target.
  int64_t tasks = stage1Tasks();
  auto [lo, hi] = k.taskRange(each, tasks);
  for (auto [i, target] : llvm::enumerate(targets)) {
    View to = target.flat().tile({lo}, {each});
    View from = partial.tile({0, lo + double(i * each)}, {parts, each});
    Ix count = tasks == 1 ? Ix(each) : Ix(hi - lo);
    k.forLanes(count, [&](Lanes l) {
      Val zero = k.zero(k.f32(), l.width);
      Val total =
          k.forLoop(0, parts, 1, {zero}, [&](Val part, ArrayRef<Val> carried) {
            return SmallVector<Val>{carried[0] + from.load({part, l.i}, l)};
          })[0];
      to.store(total, {l.i}, l);
    });
  }
}

} // namespace qwen35::codegen::cpu
