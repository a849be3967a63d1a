#ifndef QWEN35_CODEGEN_CUDA_ROWS_H
#define QWEN35_CODEGEN_CUDA_ROWS_H

#include "codegen/cuda/Kernel.h"

namespace qwen35::codegen::cuda {

/// An operand whose rows a kernel walks, by the name of its constants.
struct RowOperand {
  llvm::StringRef name;
  mlir::MemRefType type;
};

/// Elements in accesses of up to 16 bytes: as many as divide the columns and
/// every stride of the operands, 1 or a whole 16 bytes. Views must begin at
/// multiples of it, which their types do not tell: slices of the frontend do.
int64_t accessWidth(llvm::ArrayRef<RowOperand> operands);

/// How rows that stay in registers are spread over threads: the constants of
/// q35/rows.cuh.
struct RowLayout {
  int64_t rows, columns;
  int64_t width;        ///< Elements of an access.
  int64_t lanes;        ///< Threads of a row.
  int64_t vectors;      ///< Accesses of a thread per row.
  int64_t groups;       ///< Rows of a block.
  int64_t unroll = 1;   ///< Sets of rows in flight.
  bool keepWeight;      ///< In registers, rather than read for every row.
  int64_t inner = 1;    ///< Rows in a group of the two-level strides.
  llvm::SmallVector<std::pair<std::string, int64_t>> starts;

  /// Operands of one shape. Fails with an error for rows longer than registers
  /// hold or strides of more than two levels.
  static llvm::FailureOr<RowLayout> choose(const KernelSpec &spec,
                                           llvm::ArrayRef<RowOperand> operands,
                                           EmitError emitError);

  int threads() const { return static_cast<int>(lanes * groups); }
  /// Whether rows are loaded while others are worked on.
  bool prefetch() const { return width * vectors <= 16; }
  /// A stage of a persistent grid with about `residentThreads` per
  /// multiprocessor and these constants.
  DeviceStage stage(const GpuTarget &target, llvm::StringRef header,
                    llvm::StringRef function, int64_t residentThreads) const;
};

/// The stage that adds `parts` rows of `columns` floats at the start of the
/// workspace with a function that calls q35::sum_partials.
DeviceStage sumPartialsStage(int64_t parts, int64_t columns,
                             llvm::StringRef header, llvm::StringRef function);

/// Statistics of rows: no gaps.
llvm::LogicalResult requireDense(const KernelSpec &spec, mlir::MemRefType type,
                                 llvm::StringRef what, EmitError emitError);

} // namespace qwen35::codegen::cuda

#endif // QWEN35_CODEGEN_CUDA_ROWS_H
