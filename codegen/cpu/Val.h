#ifndef QWEN35_CODEGEN_CPU_VAL_H
#define QWEN35_CODEGEN_CPU_VAL_H

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/Value.h"
#include "llvm/ADT/ArrayRef.h"

namespace qwen35::codegen::cpu {

/// A value of the kernel being built: a scalar f32, f64, i32, i64, index or i1,
/// or a vector of one of them. Operators append the operation at the builder's
/// insertion point and fold constants.
///
/// Operands of one operator have the same element type; a scalar beside a
/// vector is broadcast, and a C++ number takes the type of the other operand
/// (`x * 2.0`, `i + 1`). Integers are signed. Floating-point operations allow
/// fused multiply-add (`contract`) and nothing else, so NaN and infinities keep
/// their meaning and the order of a sum is the order in which it is written.
class Val {
public:
  Val() = default;
  Val(mlir::ImplicitLocOpBuilder &builder, mlir::Value value)
      : builder(&builder), value(value) {}

  explicit operator bool() const { return static_cast<bool>(value); }
  mlir::Value get() const { return value; }
  mlir::ImplicitLocOpBuilder &b() const { return *builder; }

  mlir::Type type() const { return value.getType(); }
  mlir::Type element() const;
  bool isVector() const;
  bool isFloat() const;
  /// Elements of a vector, 1 for a scalar.
  int64_t lanes() const;
  /// A constant of the same type as this value.
  Val like(double number) const;

private:
  mlir::ImplicitLocOpBuilder *builder = nullptr;
  mlir::Value value;
};

Val operator+(Val a, Val b);
Val operator-(Val a, Val b);
Val operator*(Val a, Val b);
Val operator/(Val a, Val b); ///< Integers round towards zero.
Val operator%(Val a, Val b); ///< Integers only.
Val operator-(Val a);
Val operator&(Val a, Val b); ///< Integers and i1.
Val operator|(Val a, Val b);
Val operator^(Val a, Val b);
Val shiftLeft(Val a, Val bits);
Val shiftRightLogical(Val a, Val bits);
Val shiftRight(Val a, Val bits); ///< Arithmetic.
/// Comparisons give i1 (or a vector of i1); with a NaN all but != are false.
Val operator<(Val a, Val b);
Val operator<=(Val a, Val b);
Val operator>(Val a, Val b);
Val operator>=(Val a, Val b);
Val operator==(Val a, Val b);
Val operator!=(Val a, Val b);

#define QWEN35_CPU_MIXED(OP)                                                   \
  inline Val operator OP(Val a, double b) { return a OP a.like(b); }           \
  inline Val operator OP(double a, Val b) { return b.like(a) OP b; }
QWEN35_CPU_MIXED(+)
QWEN35_CPU_MIXED(-)
QWEN35_CPU_MIXED(*)
QWEN35_CPU_MIXED(/)
QWEN35_CPU_MIXED(%)
QWEN35_CPU_MIXED(<)
QWEN35_CPU_MIXED(<=)
QWEN35_CPU_MIXED(>)
QWEN35_CPU_MIXED(>=)
QWEN35_CPU_MIXED(==)
QWEN35_CPU_MIXED(!=)
QWEN35_CPU_MIXED(&)
QWEN35_CPU_MIXED(|)
#undef QWEN35_CPU_MIXED

/// condition ? a : b, per element where the condition is a vector.
Val select(Val condition, Val a, Val b);
inline Val select(Val c, Val a, double b) { return select(c, a, a.like(b)); }
inline Val select(Val c, double a, Val b) { return select(c, b.like(a), b); }
/// a < b ? a : b and a > b ? a : b (one instruction; a NaN in either gives b).
Val min(Val a, Val b);
Val max(Val a, Val b);
inline Val min(Val a, double b) { return min(a, a.like(b)); }
inline Val max(Val a, double b) { return max(a, a.like(b)); }
Val abs(Val a);
/// a * b + c, rounded once.
Val fma(Val a, Val b, Val c);
Val sqrt(Val a);
inline Val rsqrt(Val a) { return 1.0 / sqrt(a); }

/// Copies of a scalar in a vector; a vector is returned as it is.
Val broadcast(Val a, int64_t lanes);
/// 0, 1, 2 .. of an integer, index or float element type.
Val iota(mlir::ImplicitLocOpBuilder &b, mlir::Type element, int64_t lanes);
/// Conversion of the element type among f32, f64, i32, i64, index (signed;
/// float to integer towards zero); i1 widens to 0 and 1.
Val cast(Val a, mlir::Type element);
/// Reinterprets the bits of each element: f32 as i32, f64 as i64, and back.
Val bitcast(Val a, mlir::Type element);
Val extract(Val vector, int64_t lane);
Val extract(Val vector, Val lane);
Val insert(Val scalar, Val vector, int64_t lane);
/// Lanes of a (0..n-1) and b (n..) in the order given.
Val shuffleLanes(Val a, Val b, llvm::ArrayRef<int64_t> order);
/// Lanes first .. first+lanes-1.
Val sliceLanes(Val vector, int64_t first, int64_t lanes);

/// Horizontal reductions of a vector in a fixed order: upper half onto lower
/// half until one lane is left. The number of lanes is a power of two.
Val reduceAdd(Val vector);
Val reduceMax(Val vector);
Val reduceMin(Val vector);

//===----------------------------------------------------------------------===//
// Transcendental functions, inline; scalars and vectors. Math.cpp
//===----------------------------------------------------------------------===//

/// f32: relative error below 2e-7 wherever the result is normal, correctly
/// rounded to zero or a denormal below, +inf above 88.73; NaN stays NaN.
/// f64: relative error below 1e-15, same ends.
Val exp(Val a);
/// f32, f64 by way of f64: relative error below 2e-7 (f32). log(0) = -inf,
/// negative: NaN.
Val log(Val a);
/// f32, a > -1; accurate near 0.
Val log1p(Val a);
/// f32: log(1 + e^a), accurate at both ends.
Val softplus(Val a);
/// f32: 1 / (1 + e^-a).
Val sigmoid(Val a);
/// f32: a * sigmoid(a).
Val silu(Val a);
/// f64, |a| up to 1e9: absolute error below 1e-15 * max(1, |a| * 1e-9).
void sinCos(Val a, Val &sine, Val &cosine);

} // namespace qwen35::codegen::cpu

#endif // QWEN35_CODEGEN_CPU_VAL_H
