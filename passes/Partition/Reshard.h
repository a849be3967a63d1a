#ifndef QWEN35_PASSES_PARTITION_RESHARD_H
#define QWEN35_PASSES_PARTITION_RESHARD_H

#include "dialect/QDist/IR/QDistDialect.h"

#include "mlir/IR/Builders.h"

namespace qwen35 {

/// Emits what turns a rank's part of a value split as `from` into its part
/// split as `to`; `value` has the type of the part.
///
/// Errors  Emitted at `loc`: a document table that would have to move, or a
///         value that would have to become partial.
mlir::FailureOr<mlir::Value> reshard(mlir::OpBuilder &builder,
                                     mlir::Location loc, mlir::Value value,
                                     const qdist::Sharding &from,
                                     const qdist::Sharding &to,
                                     const Mesh &mesh);

/// What ops call the axes.
mlir::ArrayAttr namesOf(mlir::OpBuilder &builder, MeshAxes axes,
                        const Mesh &mesh);

/// all_reduce of one value.
mlir::Value allReduce(mlir::OpBuilder &builder, mlir::Location loc,
                      mlir::Value value, MeshAxes axes, const Mesh &mesh,
                      llvm::StringRef kind = "sum");

/// Row numbers counted from the first of the rank's `size` rows.
mlir::Value localIds(mlir::OpBuilder &builder, mlir::Location loc,
                     mlir::Value ids, MeshAxes axes, int64_t size,
                     const Mesh &mesh);

} // namespace qwen35

#endif // QWEN35_PASSES_PARTITION_RESHARD_H
