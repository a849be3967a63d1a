#ifndef QWEN35_FRONTEND_DSL_TENSOR_H
#define QWEN35_FRONTEND_DSL_TENSOR_H

#include "dialect/Qwen35/IR/Qwen35Dialect.h"

namespace qwen35::dsl {

/// A value of the model under construction: a handle, cheap to copy. An empty
/// one stands for the result of an expression that was refused; whatever is
/// built from it is empty too, so only the first mistake is reported.
class Tensor {
public:
  Tensor() = default;
  explicit Tensor(mlir::Value value) : handle(value) {}

  explicit operator bool() const { return bool(handle); }
  mlir::Value value() const { return handle; }
  mlir::RankedTensorType type() const {
    return mlir::cast<mlir::RankedTensorType>(handle.getType());
  }
  /// Sizes, in elements. An empty tensor has rank 0.
  llvm::ArrayRef<int64_t> shape() const {
    return handle ? type().getShape() : llvm::ArrayRef<int64_t>();
  }
  int64_t rank() const { return int64_t(shape().size()); }
  int64_t dim(int64_t axis) const { return shape()[axis]; }

private:
  mlir::Value handle;
};

/// The document table of a packed row; every op that must not look across a
/// document border takes it.
class Documents {
public:
  Documents() = default;
  explicit Documents(mlir::Value value) : handle(value) {}

  mlir::Value value() const { return handle; }
  int64_t tokens() const { return type().getTokens(); }
  /// As in the type: padding at the end of a row counts as a document.
  int64_t maxDocs() const { return type().getMaxDocs(); }

private:
  SeqType type() const { return mlir::cast<SeqType>(handle.getType()); }

  mlir::Value handle;
};

} // namespace qwen35::dsl

#endif // QWEN35_FRONTEND_DSL_TENSOR_H
