#ifndef QWEN35_DIALECT_QDIST_IR_QDISTDIALECT_H
#define QWEN35_DIALECT_QDIST_IR_QDISTDIALECT_H

#include "dialect/Qwen35/IR/Qwen35Dialect.h"
#include "runtime/schema/mesh.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

#include "dialect/QDist/IR/QDistDialect.h.inc"

#define GET_ATTRDEF_CLASSES
#include "dialect/QDist/IR/QDistAttrs.h.inc"

#define GET_OP_CLASSES
#include "dialect/QDist/IR/CollectiveOps.h.inc"

namespace qwen35::qdist {

// Of the module; of arguments and results of functions; of ops at S2, one
// sharding per operand and per result.
inline constexpr llvm::StringLiteral kMeshAttr = "qdist.mesh";
inline constexpr llvm::StringLiteral kShardingAttr = "qdist.sharding";
inline constexpr llvm::StringLiteral kOperandsAttr = "qdist.operands";
inline constexpr llvm::StringLiteral kResultsAttr = "qdist.results";
// Of parameters in a plan, where they differ from the weight's sharding: that
// of the moments, and what is left partial of the gradient after a step.
inline constexpr llvm::StringLiteral kMomentsAttr = "qdist.moments";
inline constexpr llvm::StringLiteral kGradientAttr = "qdist.gradient";

/// The mesh of the module that holds the op, if it has one.
std::optional<Mesh> meshOf(mlir::Operation *op);

/// The atoms that the names of an op stand for. The op has been verified.
MeshAxes axesOf(const Mesh &mesh, mlir::ArrayAttr names);

/// Whether the op is a collective that is only started where it stands.
bool isAsync(mlir::Operation *op);

/// How one value lies on the ranks of a mesh: #qdist.sharding in numbers.
struct Sharding {
  llvm::SmallVector<MeshAxes> dims;
  /// Empty, or per dimension the sizes of its sections; empty: one section.
  llvm::SmallVector<llvm::SmallVector<int64_t>> sections;
  MeshAxes partial = 0;
  bool isMax = false;

  Sharding() = default;
  explicit Sharding(size_t rank) : dims(rank, 0) {}

  static Sharding of(ShardingAttr attr, const Mesh &mesh);
  ShardingAttr attr(mlir::MLIRContext *context, const Mesh &mesh) const;

  /// The axes of all dimensions.
  MeshAxes split() const {
    MeshAxes all = 0;
    for (MeshAxes axes : dims)
      all |= axes;
    return all;
  }
  llvm::ArrayRef<int64_t> sectionsOf(size_t dim) const {
    return sections.empty() ? llvm::ArrayRef<int64_t>()
                            : llvm::ArrayRef<int64_t>(sections[dim]);
  }
  void setSections(size_t dim, llvm::ArrayRef<int64_t> sizes);
  bool sameLayout(const Sharding &other) const;
  bool operator==(const Sharding &other) const {
    return sameLayout(other) && partial == other.partial &&
           (partial == 0 || isMax == other.isMax);
  }

  /// The type of the value on one rank. For a document table the one dimension
  /// is that of tokens: documents are split over the rows of data ranks alike,
  /// and a rank of cp holds segments of all of its row's (stripe_table.h).
  mlir::Type localType(mlir::Type global, const Mesh &mesh) const;
  /// Why a value of this global type cannot be split so, or nothing.
  std::optional<std::string> misfit(mlir::Type global, const Mesh &mesh) const;
};

} // namespace qwen35::qdist

#endif // QWEN35_DIALECT_QDIST_IR_QDISTDIALECT_H
