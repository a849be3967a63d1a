#ifndef QWEN35_DIALECT_INTERPRETER_COLLECTIVES_H
#define QWEN35_DIALECT_INTERPRETER_COLLECTIVES_H

#include "dialect/Interpreter/Evaluators.h"
#include "dialect/QDist/IR/QDistDialect.h"

// Private to this library: ops that need the frames of all ranks, or to know
// the rank.

namespace qwen35::interpreter {

bool isCollective(mlir::OperationName name);
inline bool isCollective(mlir::Operation *op) {
  return isCollective(op->getName());
}

/// Runs the op on every rank; `frames` has one per rank. Returns what is wrong,
/// or nothing.
template <typename Real>
std::optional<std::string>
evaluateCollective(mlir::Operation *op, const Mesh &mesh,
                   std::vector<Frame<Real>> &frames, Memory &memory);

} // namespace qwen35::interpreter

#endif // QWEN35_DIALECT_INTERPRETER_COLLECTIVES_H
