#include "codegen/cpu/Val.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;

namespace qwen35::codegen::cpu {
namespace {

constexpr auto kFlags = arith::FastMathFlags::contract;

arith::FastMathFlagsAttr flags(ImplicitLocOpBuilder &b) {
  return arith::FastMathFlagsAttr::get(b.getContext(), kFlags);
}

Type withElement(Type type, Type element) {
  if (auto vector = dyn_cast<VectorType>(type))
    return VectorType::get(vector.getShape(), element);
  return element;
}

/// Broadcasts the scalar of a scalar-vector pair.
void unify(Val &a, Val &b) {
  assert(a && b && "operand without a value");
  assert(a.element() == b.element() && "operands of different element types");
  if (a.isVector() && !b.isVector())
    b = broadcast(b, a.lanes());
  else if (b.isVector() && !a.isVector())
    a = broadcast(a, b.lanes());
  assert(a.type() == b.type() && "vectors of different length");
}

template <typename Float, typename Int> Val binary(Val a, Val b) {
  unify(a, b);
  ImplicitLocOpBuilder &builder = a.b();
  if (a.isFloat())
    return Val(builder,
               builder.createOrFold<Float>(a.get(), b.get(), flags(builder)));
  return Val(builder, builder.createOrFold<Int>(a.get(), b.get()));
}

template <typename Int> Val integer(Val a, Val b) {
  unify(a, b);
  assert(!a.isFloat() && "integers only");
  return Val(a.b(), a.b().createOrFold<Int>(a.get(), b.get()));
}

Val compare(Val a, Val b, arith::CmpFPredicate f, arith::CmpIPredicate i) {
  unify(a, b);
  if (a.isFloat())
    return Val(a.b(), arith::CmpFOp::create(a.b(), f, a.get(), b.get()));
  return Val(a.b(), a.b().createOrFold<arith::CmpIOp>(i, a.get(), b.get()));
}

Val reduce(Val vector, llvm::function_ref<Val(Val, Val)> combine) {
  assert(llvm::isPowerOf2_64(vector.lanes()));
  while (vector.lanes() > 1) {
    int64_t half = vector.lanes() / 2;
    vector =
        combine(sliceLanes(vector, 0, half), sliceLanes(vector, half, half));
  }
  return vector.isVector() ? extract(vector, int64_t{0}) : vector;
}

} // namespace

Type Val::element() const { return getElementTypeOrSelf(value.getType()); }

bool Val::isVector() const { return isa<VectorType>(value.getType()); }

bool Val::isFloat() const { return isa<FloatType>(element()); }

int64_t Val::lanes() const {
  auto vector = dyn_cast<VectorType>(value.getType());
  return vector ? vector.getNumElements() : 1;
}

Val Val::like(double number) const {
  Type scalar = element();
  TypedAttr attr;
  if (auto type = dyn_cast<FloatType>(scalar)) {
    attr = FloatAttr::get(type, number);
  } else {
    auto integer = static_cast<int64_t>(number);
    assert(static_cast<double>(integer) == number && "not an integer");
    attr = IntegerAttr::get(scalar, integer);
  }
  if (auto vector = dyn_cast<VectorType>(value.getType()))
    attr = DenseElementsAttr::get(vector, cast<Attribute>(attr));
  return Val(b(), arith::ConstantOp::create(b(), attr));
}

Val operator+(Val a, Val b) {
  return binary<arith::AddFOp, arith::AddIOp>(a, b);
}
Val operator-(Val a, Val b) {
  return binary<arith::SubFOp, arith::SubIOp>(a, b);
}
Val operator*(Val a, Val b) {
  return binary<arith::MulFOp, arith::MulIOp>(a, b);
}
Val operator/(Val a, Val b) {
  return binary<arith::DivFOp, arith::DivSIOp>(a, b);
}
Val operator%(Val a, Val b) { return integer<arith::RemSIOp>(a, b); }
Val operator&(Val a, Val b) { return integer<arith::AndIOp>(a, b); }
Val operator|(Val a, Val b) { return integer<arith::OrIOp>(a, b); }
Val operator^(Val a, Val b) { return integer<arith::XOrIOp>(a, b); }
Val shiftLeft(Val a, Val bits) { return integer<arith::ShLIOp>(a, bits); }
Val shiftRightLogical(Val a, Val bits) {
  return integer<arith::ShRUIOp>(a, bits);
}
Val shiftRight(Val a, Val bits) { return integer<arith::ShRSIOp>(a, bits); }

Val operator-(Val a) {
  if (!a.isFloat())
    return a.like(0) - a;
  return Val(a.b(), arith::NegFOp::create(a.b(), a.get(), kFlags));
}

Val operator<(Val a, Val b) {
  return compare(a, b, arith::CmpFPredicate::OLT, arith::CmpIPredicate::slt);
}
Val operator<=(Val a, Val b) {
  return compare(a, b, arith::CmpFPredicate::OLE, arith::CmpIPredicate::sle);
}
Val operator>(Val a, Val b) {
  return compare(a, b, arith::CmpFPredicate::OGT, arith::CmpIPredicate::sgt);
}
Val operator>=(Val a, Val b) {
  return compare(a, b, arith::CmpFPredicate::OGE, arith::CmpIPredicate::sge);
}
Val operator==(Val a, Val b) {
  return compare(a, b, arith::CmpFPredicate::OEQ, arith::CmpIPredicate::eq);
}
Val operator!=(Val a, Val b) {
  return compare(a, b, arith::CmpFPredicate::UNE, arith::CmpIPredicate::ne);
}

Val select(Val condition, Val a, Val b) {
  if (condition.isVector()) {
    a = broadcast(a, condition.lanes());
    b = broadcast(b, condition.lanes());
  }
  unify(a, b);
  return Val(a.b(), a.b().createOrFold<arith::SelectOp>(condition.get(),
                                                        a.get(), b.get()));
}

Val min(Val a, Val b) {
  unify(a, b);
  if (!a.isFloat())
    return Val(a.b(), a.b().createOrFold<arith::MinSIOp>(a.get(), b.get()));
  return select(a < b, a, b);
}

Val max(Val a, Val b) {
  unify(a, b);
  if (!a.isFloat())
    return Val(a.b(), a.b().createOrFold<arith::MaxSIOp>(a.get(), b.get()));
  return select(a > b, a, b);
}

Val abs(Val a) {
  if (!a.isFloat())
    return max(a, -a);
  return Val(a.b(), math::AbsFOp::create(a.b(), a.get(), kFlags));
}

Val fma(Val a, Val b, Val c) {
  unify(a, b);
  unify(a, c);
  unify(b, c);
  return Val(a.b(),
             math::FmaOp::create(a.b(), a.get(), b.get(), c.get(), kFlags));
}

Val sqrt(Val a) {
  return Val(a.b(), math::SqrtOp::create(a.b(), a.get(), kFlags));
}

Val broadcast(Val a, int64_t lanes) {
  if (a.isVector()) {
    assert(a.lanes() == lanes && "vectors of different length");
    return a;
  }
  auto type = VectorType::get({lanes}, a.type());
  return Val(a.b(), a.b().createOrFold<vector::BroadcastOp>(type, a.get()));
}

Val iota(ImplicitLocOpBuilder &b, Type element, int64_t lanes) {
  auto type = VectorType::get({lanes}, element);
  SmallVector<Attribute> numbers;
  for (int64_t i = 0; i < lanes; ++i) {
    if (isa<FloatType>(element))
      numbers.push_back(b.getFloatAttr(element, static_cast<double>(i)));
    else
      numbers.push_back(b.getIntegerAttr(element, i));
  }
  return Val(
      b, arith::ConstantOp::create(b, DenseElementsAttr::get(type, numbers)));
}

Val cast(Val a, Type element) {
  Type from = a.element();
  if (from == element)
    return a;
  ImplicitLocOpBuilder &b = a.b();
  Type to = withElement(a.type(), element);
  if (isa<FloatType>(from) && isa<FloatType>(element)) {
    if (from.getIntOrFloatBitWidth() < element.getIntOrFloatBitWidth())
      return Val(b, b.createOrFold<arith::ExtFOp>(to, a.get()));
    return Val(b, b.createOrFold<arith::TruncFOp>(to, a.get()));
  }
  if (isa<FloatType>(from)) {
    if (isa<IndexType>(element))
      return cast(cast(a, b.getI64Type()), element);
    return Val(b, arith::FPToSIOp::create(b, to, a.get()));
  }
  if (isa<FloatType>(element)) {
    if (isa<IndexType>(from))
      return cast(cast(a, b.getI64Type()), element);
    if (from.isInteger(1))
      return Val(b, arith::UIToFPOp::create(b, to, a.get()));
    return Val(b, arith::SIToFPOp::create(b, to, a.get()));
  }
  if (isa<IndexType>(from) || isa<IndexType>(element)) {
    if (from.isInteger(1))
      return Val(b, b.createOrFold<arith::IndexCastUIOp>(to, a.get()));
    return Val(b, b.createOrFold<arith::IndexCastOp>(to, a.get()));
  }
  if (from.isInteger(1))
    return Val(b, b.createOrFold<arith::ExtUIOp>(to, a.get()));
  if (from.getIntOrFloatBitWidth() < element.getIntOrFloatBitWidth())
    return Val(b, b.createOrFold<arith::ExtSIOp>(to, a.get()));
  return Val(b, b.createOrFold<arith::TruncIOp>(to, a.get()));
}

Val bitcast(Val a, Type element) {
  return Val(a.b(), a.b().createOrFold<arith::BitcastOp>(
                        withElement(a.type(), element), a.get()));
}

Val extract(Val vector, int64_t lane) {
  return Val(vector.b(),
             vector.b().createOrFold<vector::ExtractOp>(vector.get(), lane));
}

Val extract(Val vector, Val lane) {
  return Val(vector.b(), vector::ExtractOp::create(vector.b(), vector.get(),
                                                   OpFoldResult(lane.get())));
}

Val insert(Val scalar, Val vector, int64_t lane) {
  return Val(vector.b(), vector::InsertOp::create(vector.b(), scalar.get(),
                                                  vector.get(), lane));
}

Val shuffleLanes(Val a, Val b, llvm::ArrayRef<int64_t> order) {
  return Val(a.b(), vector::ShuffleOp::create(a.b(), a.get(), b.get(), order));
}

Val sliceLanes(Val vector, int64_t first, int64_t lanes) {
  SmallVector<int64_t> order(lanes);
  for (int64_t i = 0; i < lanes; ++i)
    order[i] = first + i;
  return shuffleLanes(vector, vector, order);
}

Val reduceAdd(Val vector) {
  return reduce(vector, [](Val a, Val b) { return a + b; });
}
Val reduceMax(Val vector) {
  return reduce(vector, [](Val a, Val b) { return max(a, b); });
}
Val reduceMin(Val vector) {
  return reduce(vector, [](Val a, Val b) { return min(a, b); });
}

} // namespace qwen35::codegen::cpu
