#include "dialect/Qwen35/IR/Infer.h"

using namespace mlir;

#define GET_OP_CLASSES
#include "dialect/Qwen35/IR/GlueOps.cpp.inc"

namespace qwen35 {

using Types = SmallVectorImpl<Type>;
using Where = std::optional<Location>;

LogicalResult LinearOp::inferReturnTypes(MLIRContext *, Where loc, Adaptor a,
                                         Types &out) {
  auto x = tensorOf(a.getX()), w = tensorOf(a.getWeight());
  if (x.getDimSize(1) != w.getDimSize(1)) // C1
    return Check<LinearOp>{loc}.fail("x has ", x.getDimSize(1),
                                     " columns but weight has ",
                                     w.getDimSize(1));
  Check<LinearOp> check{loc};
  if (failed(check.sameElement(a.getWeight(), "weight", a.getX(), "x"))) // C2
    return failure();
  auto element = check.productType(x.getElementType(), a.getOutTypeAttr());
  if (failed(element)) // C3
    return failure();
  out.push_back(tensorOf({x.getDimSize(0), w.getDimSize(0)}, *element));
  return success();
}

/// `value` in the elements of `like`.
static Value castTo(OpBuilder &b, Location loc, Value value, Value like) {
  auto type = tensorOf(value).clone(tensorOf(like).getElementType());
  return type == value.getType() ? value : CastOp::create(b, loc, type, value);
}

LogicalResult LinearOp::buildVjp(OpBuilder &b, ArrayRef<Value> dy,
                                 SmallVectorImpl<Value> &gradients) {
  Type element = tensorOf(getX()).getElementType(), wide = statsType(element);
  Value dyNarrow = castTo(b, getLoc(), dy[0], getX());
  Value dx = MatmulOp::create(b, getLoc(), dyNarrow, getWeight(), false, false,
                              TypeAttr());
  // No attribute where it says nothing new: equal ops must be equal.
  Value dw = MatmulOp::create(b, getLoc(), dyNarrow, getX(), true, false,
                              element == wide ? TypeAttr()
                                              : TypeAttr::get(wide));
  gradients.assign({dx, dw});
  return success();
}

LogicalResult MatmulOp::inferReturnTypes(MLIRContext *, Where loc, Adaptor a,
                                         Types &out) {
  auto lhs = tensorOf(a.getA()), rhs = tensorOf(a.getB());
  // The parser infers types before it fills in defaults: null means false.
  BoolAttr transposeA = a.getTransposeAAttr(), transposeB = a.getTransposeBAttr();
  bool ta = transposeA && transposeA.getValue();
  bool tb = transposeB && transposeB.getValue();
  int64_t inner = lhs.getDimSize(ta ? 0 : 1);
  int64_t rhsInner = rhs.getDimSize(tb ? 1 : 0);
  if (inner != rhsInner) // C1
    return Check<MatmulOp>{loc}.fail("inner dimensions are ", inner, " and ",
                                     rhsInner);
  Check<MatmulOp> check{loc};
  if (failed(check.sameElement(a.getB(), "b", a.getA(), "a"))) // C2
    return failure();
  auto element = check.productType(lhs.getElementType(), a.getOutTypeAttr());
  if (failed(element)) // C3
    return failure();
  out.push_back(tensorOf(
      {lhs.getDimSize(ta ? 1 : 0), rhs.getDimSize(tb ? 0 : 1)}, *element));
  return success();
}

LogicalResult SwigluOp::inferReturnTypes(MLIRContext *, Where loc, Adaptor a,
                                         Types &out) {
  if (failed(Check<SwigluOp>{loc}.sameType(a.getUp(), "up", a.getGate(),
                                           "gate"))) // C1
    return failure();
  out.push_back(a.getGate().getType());
  return success();
}

LogicalResult SwigluOp::buildVjp(OpBuilder &b, ArrayRef<Value> dy,
                                 SmallVectorImpl<Value> &gradients) {
  auto bwd = SwigluBwdOp::create(b, getLoc(), dy[0], getGate(), getUp());
  gradients.assign({bwd.getDgate(), bwd.getDup()});
  return success();
}

LogicalResult SwigluBwdOp::inferReturnTypes(MLIRContext *, Where loc,
                                            Adaptor a, Types &out) {
  Check<SwigluBwdOp> check{loc};
  if (failed(check.sameType(a.getUp(), "up", a.getGate(), "gate")) ||
      failed(check.sameType(a.getDy(), "dy", a.getGate(), "gate")))
    return failure();
  out.append(2, a.getGate().getType());
  return success();
}

LogicalResult AddOp::inferReturnTypes(MLIRContext *, Where loc, Adaptor a,
                                      Types &out) {
  if (failed(Check<AddOp>{loc}.sameType(a.getB(), "b", a.getA(), "a"))) // C1
    return failure();
  out.push_back(a.getA().getType());
  return success();
}

LogicalResult AddOp::buildVjp(OpBuilder &, ArrayRef<Value> dy,
                              SmallVectorImpl<Value> &gradients) {
  gradients.assign({dy[0], dy[0]});
  return success();
}

LogicalResult ScaleOp::inferReturnTypes(MLIRContext *, Where, Adaptor a,
                                        Types &out) {
  out.push_back(a.getX().getType());
  return success();
}

LogicalResult ScaleOp::buildVjp(OpBuilder &b, ArrayRef<Value> dy,
                                SmallVectorImpl<Value> &gradients) {
  gradients.assign({ScaleOp::create(b, getLoc(), dy[0], getFactor())});
  return success();
}

OpFoldResult ScaleOp::fold(FoldAdaptor) {
  return getFactor().isExactlyValue(1.0) ? getX() : Value();
}

LogicalResult MulScalarOp::inferReturnTypes(MLIRContext *, Where loc, Adaptor a,
                                            Types &out) {
  if (failed(Check<MulScalarOp>{loc}.stats(a.getS(), "s", a.getX(), "x"))) // C1
    return failure();
  out.push_back(a.getX().getType());
  return success();
}

LogicalResult MulScalarOp::buildVjp(OpBuilder &b, ArrayRef<Value> dy,
                                    SmallVectorImpl<Value> &gradients) {
  gradients.assign(
      {MulScalarOp::create(b, getLoc(), dy[0], getS()).getY(), Value()});
  return success();
}

LogicalResult ReshapeOp::verify() {
  auto x = tensorOf(getX()), y = tensorOf(getY());
  if (x.getElementType() != y.getElementType())
    return emitOpError("changes the element type from ")
           << x.getElementType() << " to " << y.getElementType();
  if (x.getNumElements() != y.getNumElements()) // C1
    return emitOpError("x has ") << x.getNumElements()
                                 << " elements but the result has "
                                 << y.getNumElements();
  return success();
}

OpFoldResult ReshapeOp::fold(FoldAdaptor) {
  if (getX().getType() == getY().getType())
    return getX();
  if (auto source = getX().getDefiningOp<ReshapeOp>()) {
    getXMutable().assign(source.getX());
    return getResult();
  }
  return {};
}

LogicalResult ReshapeOp::buildVjp(OpBuilder &b, ArrayRef<Value> dy,
                                  SmallVectorImpl<Value> &gradients) {
  gradients.assign({ReshapeOp::create(b, getLoc(), getX().getType(), dy[0])});
  return success();
}

OpFoldResult CastOp::fold(FoldAdaptor) {
  return getX().getType() == getY().getType() ? getX() : Value();
}

LogicalResult CastOp::buildVjp(OpBuilder &b, ArrayRef<Value> dy,
                               SmallVectorImpl<Value> &gradients) {
  gradients.assign({castTo(b, getLoc(), dy[0], getX())});
  return success();
}

LogicalResult SliceOp::inferReturnTypes(MLIRContext *, Where loc, Adaptor a,
                                        Types &out) {
  Check<SliceOp> check{loc};
  auto x = tensorOf(a.getX());
  int64_t axis = a.getAxis(), start = a.getStart(), size = a.getSize();
  if (axis < 0 || axis >= x.getRank()) // C1
    return check.fail("axis must be in [0, ", x.getRank(), "), got ", axis);
  if (start < 0 || size < 1 || size > x.getDimSize(axis) - start) // C2
    return check.fail("takes [", start, ", ", start + size,
                      ") of a dimension of ", x.getDimSize(axis));
  SmallVector<int64_t> shape(x.getShape());
  shape[axis] = size;
  out.push_back(tensorOf(shape, x.getElementType()));
  return success();
}

OpFoldResult SliceOp::fold(FoldAdaptor) {
  return getX().getType() == getY().getType() ? getX() : Value();
}

/// The rule of one slice by itself. The autodiff pass does not use it: it joins
/// the cotangents of all slices of a tensor into one concat.
LogicalResult SliceOp::buildVjp(OpBuilder &b, ArrayRef<Value> dy,
                                SmallVectorImpl<Value> &gradients) {
  auto x = tensorOf(getX());
  int64_t axis = getAxis(), before = getStart();
  int64_t after = x.getDimSize(axis) - before - getSize();
  SmallVector<Value> pieces;
  auto zeros = [&](int64_t size) {
    SmallVector<int64_t> shape(x.getShape());
    shape[axis] = size;
    if (size > 0)
      pieces.push_back(ZerosOp::create(b, getLoc(),
                                       tensorOf(shape, x.getElementType())));
  };
  zeros(before);
  pieces.push_back(dy[0]);
  zeros(after);
  gradients.assign({ConcatOp::create(b, getLoc(), pieces, axis)});
  return success();
}

LogicalResult ConcatOp::inferReturnTypes(MLIRContext *, Where loc, Adaptor a,
                                         Types &out) {
  Check<ConcatOp> check{loc};
  if (a.getInputs().empty())
    return check.fail("needs at least one operand");
  auto first = tensorOf(a.getInputs().front());
  int64_t axis = a.getAxis(), total = 0;
  if (axis < 0 || axis >= first.getRank())
    return check.fail("axis must be in [0, ", first.getRank(), "), got ",
                      axis);
  for (Value input : a.getInputs()) {
    auto type = tensorOf(input);
    bool fits = type.getRank() == first.getRank() &&
                type.getElementType() == first.getElementType();
    for (int64_t d = 0; fits && d < type.getRank(); ++d)
      fits = d == axis || type.getDimSize(d) == first.getDimSize(d);
    if (!fits) // C1
      return check.fail("joins ", first, " and ", type, " along dimension ",
                        axis);
    total += type.getDimSize(axis);
  }
  SmallVector<int64_t> shape(first.getShape());
  shape[axis] = total;
  out.push_back(tensorOf(shape, first.getElementType()));
  return success();
}

} // namespace qwen35
