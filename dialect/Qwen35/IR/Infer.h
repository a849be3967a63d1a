#ifndef QWEN35_DIALECT_QWEN35_IR_INFER_H
#define QWEN35_DIALECT_QWEN35_IR_INFER_H

#include "dialect/Qwen35/IR/Qwen35Dialect.h"
#include "runtime/schema/stripe_table.h"

namespace qwen35 {

/// The ranked tensor type of an operand whose ODS constraint demands one.
inline mlir::RankedTensorType tensorOf(mlir::Value value) {
  return mlir::cast<mlir::RankedTensorType>(value.getType());
}

inline mlir::RankedTensorType tensorOf(llvm::ArrayRef<int64_t> shape,
                                       mlir::Type element) {
  return mlir::RankedTensorType::get(shape, element);
}

/// The element type of statistics (rstd, lse), of small parameters and of the
/// gradients of parameters: f32, or f64 where values are.
inline mlir::Type statsType(mlir::Type element) {
  return element.isF64() ? element
                         : mlir::Float32Type::get(element.getContext());
}

/// Checks of one op during type inference, where there is no Operation yet.
template <typename Op>
struct Check {
  std::optional<mlir::Location> loc;

  /// Reports `message` in the form of emitOpError and returns failure.
  template <typename... Args>
  mlir::LogicalResult fail(Args &&...message) const {
    return mlir::emitOptionalError(loc, "'", Op::getOperationName(), "' op ",
                                   std::forward<Args>(message)...);
  }

  mlir::LogicalResult sameType(mlir::Value a, llvm::StringRef nameA,
                               mlir::Value b, llvm::StringRef nameB) const {
    if (a.getType() == b.getType())
      return mlir::success();
    return fail(nameA, " is ", a.getType(), " but ", nameB, " is ",
                b.getType());
  }

  /// `value` has elements of `expected`, as `of` demands.
  mlir::LogicalResult element(mlir::Value value, llvm::StringRef name,
                              mlir::Type expected, mlir::Value of,
                              llvm::StringRef nameOf) const {
    if (tensorOf(value).getElementType() == expected)
      return mlir::success();
    return fail(name, " is ", value.getType(), ", expected elements of ",
                expected, " where ", nameOf, " is ", of.getType());
  }

  mlir::LogicalResult sameElement(mlir::Value value, llvm::StringRef name,
                                  mlir::Value of,
                                  llvm::StringRef nameOf) const {
    return element(value, name, tensorOf(of).getElementType(), of, nameOf);
  }

  /// `value` has the element type of the statistics of `of`.
  mlir::LogicalResult stats(mlir::Value value, llvm::StringRef name,
                            mlir::Value of, llvm::StringRef nameOf) const {
    return element(value, name, statsType(tensorOf(of).getElementType()), of,
                   nameOf);
  }

  /// `value` is a statistic or gradient itself: it is never rounded to bf16.
  mlir::LogicalResult unrounded(mlir::Value value,
                                llvm::StringRef name) const {
    if (!tensorOf(value).getElementType().isBF16())
      return mlir::success();
    return fail(name, " is ", value.getType(), ", expected elements of f32");
  }

  /// The element type of a product of operands of `element`: theirs, or the
  /// one that `outType` asks for.
  mlir::FailureOr<mlir::Type> productType(mlir::Type element,
                                          mlir::TypeAttr outType) const {
    if (!outType || outType.getValue() == element)
      return element;
    if (outType.getValue() == statsType(element))
      return outType.getValue();
    return fail("out_type is ", outType.getValue(),
                " for a product of operands of ", element, ", expected ",
                statsType(element), element.isBF16() ? " or bf16" : "");
  }

  mlir::LogicalResult shape(mlir::Value value, llvm::StringRef name,
                            llvm::ArrayRef<int64_t> expected) const {
    auto type = tensorOf(value);
    if (type.getShape() == expected)
      return mlir::success();
    return fail(name, " is ", type, ", expected shape ",
                mlir::RankedTensorType::get(expected, type.getElementType()));
  }

  mlir::LogicalResult tokens(int64_t tokens, mlir::Value seq) const {
    int64_t table = mlir::cast<SeqType>(seq.getType()).getTokens();
    if (tokens == table)
      return mlir::success();
    return fail("has ", tokens, " tokens but its document table describes ",
                table);
  }

  /// How many ranks share a row whose stripes `stripes` describes.
  mlir::FailureOr<int64_t> ranks(mlir::Value stripes) const {
    int64_t words = tensorOf(stripes).getNumElements();
    if (int64_t ranks = StripeTable::ranksOf(words))
      return ranks;
    return fail("stripes has ", words,
                " words, expected 8 and 6 for each of the ranks");
  }

  /// The same for a rank that has `tokens`, which both tables describe.
  mlir::FailureOr<int64_t> stripes(int64_t tokens, mlir::Value seq,
                                   mlir::Value stripes) const {
    if (failed(this->tokens(tokens, seq)))
      return mlir::failure();
    if (tokens % StripeTable::kLocal != 0)
      return fail("has ", tokens, " tokens, which are not two stripes");
    return ranks(stripes);
  }

  mlir::LogicalResult positive(const llvm::APFloat &value,
                               llvm::StringRef name) const {
    double number = value.convertToDouble();
    if (number > 0) // NaN fails too
      return mlir::success();
    return fail(name, " must be greater than zero, got ", number);
  }
};

} // namespace qwen35

#endif // QWEN35_DIALECT_QWEN35_IR_INFER_H
