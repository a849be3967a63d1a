#ifndef QWEN35_PASSES_PARTITION_STRIPES_H
#define QWEN35_PASSES_PARTITION_STRIPES_H

#include "dialect/QDist/IR/QDistDialect.h"

#include "mlir/IR/Builders.h"

namespace qwen35 {

/// Ops that read tokens in order, where the ranks of a row hold stripes of it.
///
/// Source  docs/rationale/0011: what stands for each of them, and what passes
///         between the ranks: maps of states, tails, keys and values.
class StripedOps {
public:
  StripedOps(mlir::OpBuilder &builder, const Mesh &mesh)
      : b(builder), mesh(mesh) {}

  /// The results of `op` on a rank, from its parts of the operands and its
  /// stripe table; empty if it is no such op.
  llvm::SmallVector<mlir::Value>
  place(mlir::Operation *op, mlir::ValueRange inputs, mlir::Value stripes);

private:
  /// What the ranks of the row have, in one collective.
  llvm::SmallVector<mlir::Value> gather(mlir::Location loc,
                                        mlir::ValueRange values);
  llvm::SmallVector<mlir::Value> reduceScatter(mlir::Location loc,
                                               mlir::ValueRange values);
  mlir::Value gatheredTails(mlir::Location loc, mlir::Value x,
                            mlir::Value weight);

  /// The map of the rank's stripes, and the states before them.
  struct Maps {
    mlir::Value k, v, g, beta, m, states;
  };
  Maps mapsOf(mlir::Location loc, mlir::Value k, mlir::Value v, mlir::Value g,
              mlir::Value beta, mlir::FloatAttr eps, mlir::Value seq,
              mlir::Value stripes);

  mlir::OpBuilder &b;
  const Mesh &mesh;
  llvm::SmallVector<Maps> known; // forward makes them, backward reads them
};

} // namespace qwen35

#endif // QWEN35_PASSES_PARTITION_STRIPES_H
