#include "codegen/cuda/Rows.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace qwen35::codegen::cuda {

int64_t accessWidth(llvm::ArrayRef<RowOperand> operands) {
  MemRefType first = operands.front().type;
  int64_t width = 16 / bytesOf(first.getElementType());
  if (first.getShape().back() % width)
    return 1;
  for (const RowOperand &operand : operands)
    for (auto [size, stride] : llvm::zip(operand.type.getShape().drop_back(),
                                         stridesOf(operand.type)))
      if (size != 1 && stride % width)
        return 1;
  return width;
}

llvm::FailureOr<RowLayout>
RowLayout::choose(const KernelSpec &spec, llvm::ArrayRef<RowOperand> operands,
                  EmitError emitError) {
  MemRefType first = operands.front().type;
  RowLayout layout;
  layout.rows = rowCount(first);
  layout.columns = first.getShape().back();
  layout.width = accessWidth(operands);

  // As few accesses per thread as can be: sums over rows and weights then take
  // few registers, which loads in flight need more.
  int64_t accesses = llvm::divideCeil(layout.columns, layout.width);
  layout.vectors = llvm::divideCeil(accesses, 512);
  int64_t lanes = llvm::divideCeil(accesses, layout.vectors);
  layout.lanes = lanes <= 32 ? static_cast<int64_t>(llvm::PowerOf2Ceil(lanes))
                             : llvm::alignTo(lanes, 32);
  constexpr int64_t kMaxElements = 32;
  if (layout.vectors * layout.width > kMaxElements) {
    emitError() << spec.op << ": rows of " << layout.columns
                << " columns do not fit the registers of a block, which hold "
                << 512 * kMaxElements;
    return failure();
  }
  layout.groups = std::max<int64_t>(1, 256 / layout.lanes);
  layout.keepWeight = layout.vectors == 1;

  bool twoLevels = llvm::any_of(operands, [](const RowOperand &operand) {
    return !rowStride(operand.type);
  });
  if (twoLevels)
    layout.inner = first.getDimSize(first.getRank() - 2);
  for (const RowOperand &operand : operands) {
    MemRefType type = operand.type;
    int64_t outer, row = 0;
    if (twoLevels) {
      llvm::SmallVector<int64_t> strides = stridesOf(type);
      int64_t rank = type.getRank();
      row = strides[rank - 2];
      // The dimensions around the innermost rows must be one.
      std::optional<int64_t> merged = rowStride(MemRefType::get(
          type.getShape().drop_back(), type.getElementType(),
          StridedLayoutAttr::get(type.getContext(), 0,
                                 ArrayRef(strides).drop_back())));
      if (!merged) {
        emitError() << spec.op << ": the rows of " << operand.name
                    << " lie at strides of more than two levels: " << type;
        return failure();
      }
      outer = *merged;
    } else {
      outer = *rowStride(type);
    }
    layout.starts.emplace_back((operand.name + "Outer").str(), outer);
    layout.starts.emplace_back((operand.name + "Row").str(), row);
  }
  return layout;
}

DeviceStage RowLayout::stage(const GpuTarget &target, llvm::StringRef header,
                             llvm::StringRef function,
                             int64_t residentThreads) const {
  DeviceStage stage;
  stage.header = header.str();
  stage.function = function.str();
  stage.threads = threads();
  int64_t resident = std::max<int64_t>(1, residentThreads / threads());
  // Long rows get what registers they need.
  stage.minBlocks = prefetch() ? static_cast<int>(resident) : 1;
  stage.blocks = std::min<int64_t>(llvm::divideCeil(rows, groups * unroll),
                                   target.multiprocessors * resident);
  stage.constant("rows", rows)
      .constant("columns", columns)
      .constant("width", width)
      .constant("lanes", lanes)
      .constant("vectors", vectors)
      .constant("groups", groups)
      .constant("unroll", unroll)
      .constant("prefetch", prefetch())
      .constant("keepWeight", keepWeight)
      .constant("inner", inner);
  for (const auto &[name, value] : starts)
    stage.constant(name, value);
  return stage;
}

DeviceStage sumPartialsStage(int64_t parts, int64_t columns,
                             llvm::StringRef header, llvm::StringRef function) {
  // About eight loads per thread.
  int64_t slices = std::clamp<int64_t>(
      static_cast<int64_t>(llvm::PowerOf2Ceil(llvm::divideCeil(parts, 8))), 1,
      32);
  DeviceStage stage;
  stage.header = header.str();
  stage.function = function.str();
  stage.blocks = llvm::divideCeil(columns, 32);
  stage.threads = static_cast<int>(32 * slices);
  stage.constant("parts", parts)
      .constant("columns", columns)
      .constant("slices", slices);
  return stage;
}

llvm::LogicalResult requireDense(const KernelSpec &spec, MemRefType type,
                                 llvm::StringRef what, EmitError emitError) {
  int64_t expected = 1;
  llvm::SmallVector<int64_t> strides = stridesOf(type);
  for (int64_t d = type.getRank() - 1; d >= 0; --d) {
    if (type.getDimSize(d) != 1 && strides[d] != expected)
      return emitError() << spec.op << ": " << what
                         << " must have no gaps, got " << type;
    expected *= type.getDimSize(d);
  }
  return success();
}

} // namespace qwen35::codegen::cuda
