#ifndef QWEN35_CODEGEN_CPU_LOOPS_H
#define QWEN35_CODEGEN_CPU_LOOPS_H

#include "codegen/cpu/KernelBuilder.h"

namespace qwen35::codegen::cpu {

/// Tasks over the rows of a tensor, where an element costs about `cost`
/// additions; for KernelBuilder::taskRange(rowCount(type), ..).
int64_t rowTasks(mlir::MemRefType type, int64_t cost);
/// Tasks over the elements of equally shaped tensors, for forElements. (An
/// argument's type and that of its View are alike here.)
int64_t elementTasks(llvm::ArrayRef<mlir::MemRefType> types, int64_t cost);

/// The elements of equally shaped views that belong to this task of
/// elementTasks(their types, cost): body gets rank-1 parts of the views and the
/// lanes to work on. Where all are dense they are walked as one row.
void forElements(KernelBuilder &k, llvm::ArrayRef<View> views, int64_t cost,
                 llvm::function_ref<void(llvm::ArrayRef<View>, Lanes)> body);

/// Column sums over rows in two stages, the fixed order of every weight
/// gradient. Stage 0 has one task per part; each adds up its rows in a row of
/// the workspace [parts, columns]. Stage 1 adds the parts in order.
struct ColumnSums {
  int64_t rows, columns, parts;

  /// Few parts, since stage 1 reads all of them; `cost` per row element.
  static ColumnSums choose(int64_t rows, int64_t columns, int64_t cost);
  int64_t workspaceBytes() const { return parts * columns * 4; }
  int64_t stage1Tasks() const { return chooseTasks(columns, parts); }

  /// Stage 0: the partial row of this task, set to zero.
  View beginPart(KernelBuilder &k) const;
  std::pair<Val, Val> rowsOfTask(KernelBuilder &k) const {
    return k.taskRange(rows, parts);
  }
  /// Stage 1, of stage1Tasks() tasks: the sums. The columns are those of the
  /// targets one after another (rank 1, dense), all equally long.
  void finish(KernelBuilder &k, llvm::ArrayRef<View> targets) const;
};

} // namespace qwen35::codegen::cpu

#endif // QWEN35_CODEGEN_CPU_LOOPS_H
