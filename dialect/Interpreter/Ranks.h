#ifndef QWEN35_DIALECT_INTERPRETER_RANKS_H
#define QWEN35_DIALECT_INTERPRETER_RANKS_H

#include "dialect/Interpreter/Interpreter.h"
#include "dialect/QDist/IR/QDistDialect.h"

namespace qwen35::interpreter {

/// The part of a global value that a rank holds; all of it where the sharding
/// is partial (the sum over those axes then is not the value).
Tensor localPart(const Tensor &global, const qdist::Sharding &sharding,
                 const Mesh &mesh, int64_t rank);

/// A global value and how far ranks that should hold the same are apart: the
/// largest absolute difference.
struct Assembled {
  Tensor value;
  double spread = 0;
};

/// The global value of what the ranks hold: pieces in their places, partial
/// ones added, or the largest taken. `locals` has one per rank.
Assembled assemble(llvm::ArrayRef<Tensor> locals,
                   const qdist::Sharding &sharding, const Mesh &mesh);

} // namespace qwen35::interpreter

#endif // QWEN35_DIALECT_INTERPRETER_RANKS_H
