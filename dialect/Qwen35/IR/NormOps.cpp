#include "dialect/Qwen35/IR/Infer.h"

using namespace mlir;

#define GET_OP_CLASSES
#include "dialect/Qwen35/IR/NormOps.cpp.inc"

namespace qwen35 {

using Types = SmallVectorImpl<Type>;
using Where = std::optional<Location>;

LogicalResult RmsNormOp::inferReturnTypes(MLIRContext *, Where loc, Adaptor a,
                                          Types &out) {
  Check<RmsNormOp> check{loc};
  auto x = tensorOf(a.getX());
  if (x.getRank() == 0)
    return check.fail("x must have at least one dimension");
  int64_t columns = x.getShape().back();
  int64_t weights = tensorOf(a.getWeight()).getDimSize(0);
  if (weights != columns) // C1
    return check.fail("weight has ", weights,
                      " elements but the rows of x have ", columns);
  if (failed(check.stats(a.getWeight(), "weight", a.getX(), "x")) || // C1
      failed(check.positive(a.getEps(), "eps")))                     // C2
    return failure();
  out.push_back(x);
  out.push_back(
      tensorOf(x.getShape().drop_back(), statsType(x.getElementType())));
  return success();
}

LogicalResult RmsNormOp::buildVjp(OpBuilder &b, ArrayRef<Value> dy,
                                  SmallVectorImpl<Value> &gradients) {
  auto bwd = RmsNormBwdOp::create(b, getLoc(), dy[0], getX(), getWeight(),
                                  getRstd(), getOffsetAttr());
  gradients.assign({bwd.getDx(), bwd.getDweight()});
  return success();
}

LogicalResult RmsNormBwdOp::inferReturnTypes(MLIRContext *, Where loc,
                                             Adaptor a, Types &out) {
  Check<RmsNormBwdOp> check{loc};
  auto x = tensorOf(a.getX());
  if (failed(check.sameType(a.getDy(), "dy", a.getX(), "x"))) // C1
    return failure();
  if (x.getRank() == 0 || tensorOf(a.getWeight()).getDimSize(0) !=
                              x.getShape().back()) // C2
    return check.fail("weight is ", a.getWeight().getType(), " but x is ", x);
  if (failed(check.shape(a.getRstd(), "rstd", x.getShape().drop_back())) ||
      failed(check.stats(a.getWeight(), "weight", a.getX(), "x")) || // C3
      failed(check.stats(a.getRstd(), "rstd", a.getX(), "x")))
    return failure();
  out.push_back(x);
  out.push_back(a.getWeight().getType());
  return success();
}

LogicalResult GatedRmsNormOp::inferReturnTypes(MLIRContext *, Where loc,
                                               Adaptor a, Types &out) {
  Check<GatedRmsNormOp> check{loc};
  auto o = tensorOf(a.getO());
  if (failed(check.sameType(a.getZ(), "z", a.getO(), "o"))) // C1
    return failure();
  int64_t columns = o.getShape().back();
  int64_t weights = tensorOf(a.getWeight()).getDimSize(0);
  if (weights != columns) // C2
    return check.fail("weight has ", weights,
                      " elements but the head rows of o have ", columns);
  if (failed(check.stats(a.getWeight(), "weight", a.getO(), "o")) || // C2
      failed(check.positive(a.getEps(), "eps")))                     // C3
    return failure();
  out.push_back(o);
  out.push_back(
      tensorOf(o.getShape().drop_back(), statsType(o.getElementType())));
  return success();
}

LogicalResult GatedRmsNormOp::buildVjp(OpBuilder &b, ArrayRef<Value> dy,
                                       SmallVectorImpl<Value> &gradients) {
  auto bwd = GatedRmsNormBwdOp::create(b, getLoc(), dy[0], getO(), getZ(),
                                       getWeight(), getRstd());
  gradients.assign({bwd.getDO(), bwd.getDz(), bwd.getDweight()});
  return success();
}

LogicalResult GatedRmsNormBwdOp::inferReturnTypes(MLIRContext *, Where loc,
                                                  Adaptor a, Types &out) {
  Check<GatedRmsNormBwdOp> check{loc};
  auto o = tensorOf(a.getO());
  if (failed(check.sameType(a.getDy(), "dy", a.getO(), "o")) ||
      failed(check.sameType(a.getZ(), "z", a.getO(), "o"))) // C1
    return failure();
  if (tensorOf(a.getWeight()).getDimSize(0) != o.getShape().back()) // C2
    return check.fail("weight is ", a.getWeight().getType(), " but o is ", o);
  if (failed(check.shape(a.getRstd(), "rstd", o.getShape().drop_back())) ||
      failed(check.stats(a.getWeight(), "weight", a.getO(), "o")) || // C3
      failed(check.stats(a.getRstd(), "rstd", a.getO(), "o")))
    return failure();
  out.append({o, o, a.getWeight().getType()});
  return success();
}

} // namespace qwen35
