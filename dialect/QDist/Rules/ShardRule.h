#ifndef QWEN35_DIALECT_QDIST_RULES_SHARDRULE_H
#define QWEN35_DIALECT_QDIST_RULES_SHARDRULE_H

#include "dialect/QDist/IR/QDistDialect.h"

#include <string>

namespace qwen35::qdist {

/// How an op may be split: which dimensions go together.
///
/// A *factor* is a loop of the op: `linear` has tokens, inputs and outputs. A
/// dimension of an operand or result is a list of factors, outermost first;
/// usually one, two for query heads = key heads x group. Splitting a factor
/// over some axes splits every dimension it is in; a result that lacks the
/// factor becomes a partial sum over them.
struct ShardRule {
  enum class Kind {
    Split,    // any axes
    Sequence, // tokens in their order: as the document table is split
    Whole,    // not split
  };
  struct Factor {
    char name;
    int64_t size = 1;
    Kind kind = Kind::Split;
    uint32_t complete = 0; // bits of results that lack it and are no part of a
                           // sum for that: the op adds up the ranks itself
  };
  using Dims = llvm::SmallVector<llvm::SmallVector<int, 2>>;

  llvm::SmallVector<Factor> factors;
  llvm::SmallVector<Dims> operands, results;
  /// The results are linear in these operands together: what is partial over
  /// the same axes in all of them stays so in the results.
  llvm::SmallVector<bool> linear;
  /// Operands that decide before all others, in order.
  llvm::SmallVector<unsigned> first;
  /// The dimension along which slice and concat cut or join, or -1.
  int64_t axis = -1;

  bool valid() const { return !operands.empty() || !results.empty(); }

  /// From "tk,nk->tn": a letter per dimension, "(hg)" for one of two factors,
  /// nothing for a scalar. Letters of `whole` are not split, those of
  /// `sequence` as the document table is. Operands beyond those listed are
  /// scalars.
  static ShardRule make(mlir::Operation *op, llvm::StringRef text,
                        llvm::StringRef whole = "",
                        llvm::StringRef sequence = "");
  /// All operands and results have one shape, except scalars.
  static ShardRule elementwise(mlir::Operation *op);
};

/// How one op is split.
struct OpSharding {
  llvm::SmallVector<Sharding> operands, results;
};

/// What `solve` has to know of an operand.
struct Given {
  Sharding sharding;
  /// A parameter or its state: it stays where it is and decides.
  bool stays = false;
  std::string name; // of the seed, for errors
};

/// Chooses the axes of every factor from how the operands are split; operands
/// that stay decide first, then the widest split; an axis goes to one factor.
/// `wanted` has, for results, shardings that decide factors no operand has, or
/// is empty.
///
/// Errors  Two operands that stay and disagree: the message names both.
mlir::FailureOr<OpSharding>
solve(mlir::Operation *op, const ShardRule &rule, llvm::ArrayRef<Given> given,
      llvm::ArrayRef<Sharding> wanted, const Mesh &mesh);

} // namespace qwen35::qdist

#include "dialect/QDist/Rules/ShardableOp.h.inc"

namespace qwen35::qdist {

/// Gives every op of the qwen35 dialect its rule.
void registerShardRules(mlir::DialectRegistry &registry);

} // namespace qwen35::qdist

#endif // QWEN35_DIALECT_QDIST_RULES_SHARDRULE_H
