#include "dialect/Qwen35/IR/Infer.h"

using namespace mlir;

#define GET_OP_CLASSES
#include "dialect/Qwen35/IR/DeltaOps.cpp.inc"

namespace qwen35 {

using Types = SmallVectorImpl<Type>;
using Where = std::optional<Location>;

LogicalResult CausalConvOp::inferReturnTypes(MLIRContext *, Where loc,
                                             Adaptor a, Types &out) {
  Check<CausalConvOp> check{loc};
  auto x = tensorOf(a.getX()), w = tensorOf(a.getWeight());
  if (w.getDimSize(0) != x.getDimSize(1) || w.getDimSize(1) != 1) // C1
    return check.fail("weight is ", w, ", expected [", x.getDimSize(1),
                      ", 1, taps] for the columns of x");
  if (failed(check.stats(a.getWeight(), "weight", a.getX(), "x")) || // C1
      failed(check.tokens(x.getDimSize(0), a.getSeq())))             // C2
    return failure();
  out.push_back(x);
  return success();
}

LogicalResult CausalConvOp::buildVjp(OpBuilder &b, ArrayRef<Value> dy,
                                     SmallVectorImpl<Value> &gradients) {
  auto bwd = CausalConvBwdOp::create(b, getLoc(), dy[0], getX(), getWeight(),
                                     getSeq());
  gradients.assign({bwd.getDx(), bwd.getDweight(), Value()});
  return success();
}

LogicalResult CausalConvBwdOp::inferReturnTypes(MLIRContext *, Where loc,
                                                Adaptor a, Types &out) {
  Check<CausalConvBwdOp> check{loc};
  auto x = tensorOf(a.getX());
  if (failed(check.sameType(a.getDy(), "dy", a.getX(), "x")) ||
      failed(check.stats(a.getWeight(), "weight", a.getX(), "x")) ||
      failed(check.tokens(x.getDimSize(0), a.getSeq())))
    return failure();
  if (tensorOf(a.getWeight()).getDimSize(0) != x.getDimSize(1))
    return check.fail("weight is ", a.getWeight().getType(), " but x is ", x);
  out.append({x, a.getWeight().getType()});
  return success();
}

LogicalResult GdnGatesOp::inferReturnTypes(MLIRContext *, Where loc, Adaptor a,
                                           Types &out) {
  Check<GdnGatesOp> check{loc};
  auto x = tensorOf(a.getA());
  if (failed(check.sameType(a.getB(), "b", a.getA(), "a")) || // C1
      failed(check.shape(a.getALog(), "a_log", {x.getDimSize(1)})) || // C2
      failed(check.shape(a.getDtBias(), "dt_bias", {x.getDimSize(1)})) ||
      failed(check.stats(a.getALog(), "a_log", a.getA(), "a")) ||
      failed(check.stats(a.getDtBias(), "dt_bias", a.getA(), "a")))
    return failure();
  out.append(2, x.clone(statsType(x.getElementType())));
  return success();
}

LogicalResult GdnGatesOp::buildVjp(OpBuilder &b, ArrayRef<Value> dy,
                                   SmallVectorImpl<Value> &gradients) {
  if (!dy[0] || !dy[1])
    return emitOpError("needs the gradients of both g and beta: the delta "
                       "rule reads them together");
  auto bwd = GdnGatesBwdOp::create(b, getLoc(), dy[0], dy[1], getA(), getB(),
                                   getALog(), getDtBias());
  gradients.assign(bwd->result_begin(), bwd->result_end());
  return success();
}

LogicalResult GdnGatesBwdOp::inferReturnTypes(MLIRContext *, Where loc,
                                              Adaptor a, Types &out) {
  Check<GdnGatesBwdOp> check{loc};
  auto x = tensorOf(a.getA());
  if (failed(check.sameType(a.getB(), "b", a.getA(), "a")) ||
      failed(check.shape(a.getDg(), "dg", x.getShape())) ||
      failed(check.shape(a.getDbeta(), "dbeta", x.getShape())) ||
      failed(check.shape(a.getALog(), "a_log", {x.getDimSize(1)})) ||
      failed(check.shape(a.getDtBias(), "dt_bias", {x.getDimSize(1)})) ||
      failed(check.stats(a.getDg(), "dg", a.getA(), "a")) ||
      failed(check.stats(a.getDbeta(), "dbeta", a.getA(), "a")) ||
      failed(check.stats(a.getALog(), "a_log", a.getA(), "a")) ||
      failed(check.stats(a.getDtBias(), "dt_bias", a.getA(), "a")))
    return failure();
  out.append({x, x, a.getALog().getType(), a.getDtBias().getType()});
  return success();
}

LogicalResult GatedDeltaRuleOp::inferReturnTypes(MLIRContext *, Where loc,
                                                 Adaptor a, Types &out) {
  Check<GatedDeltaRuleOp> check{loc};
  auto q = tensorOf(a.getQ()), v = tensorOf(a.getV());
  if (failed(check.sameType(a.getK(), "k", a.getQ(), "q")) || // C1
      failed(check.sameElement(a.getV(), "v", a.getQ(), "q")))
    return failure();
  if (v.getDimSize(1) % q.getDimSize(1) != 0) // C2
    return check.fail(q.getDimSize(1), " key heads do not divide ",
                      v.getDimSize(1), " value heads");
  if (v.getDimSize(0) != q.getDimSize(0))
    return check.fail("v has ", v.getDimSize(0), " tokens but q has ",
                      q.getDimSize(0));
  SmallVector<int64_t> gates = {v.getDimSize(0), v.getDimSize(1)};
  if (failed(check.shape(a.getG(), "g", gates)) || // C3
      failed(check.shape(a.getBeta(), "beta", gates)) ||
      failed(check.stats(a.getG(), "g", a.getQ(), "q")) ||
      failed(check.stats(a.getBeta(), "beta", a.getQ(), "q")) ||
      failed(check.tokens(q.getDimSize(0), a.getSeq())) || // C4
      failed(check.positive(a.getEps(), "eps")))
    return failure();
  out.push_back(v);
  return success();
}

LogicalResult GatedDeltaRuleOp::buildVjp(OpBuilder &b, ArrayRef<Value> dy,
                                         SmallVectorImpl<Value> &gradients) {
  auto bwd = GatedDeltaRuleBwdOp::create(b, getLoc(), dy[0], getQ(), getK(),
                                         getV(), getG(), getBeta(), getSeq(),
                                         getScale(), getEps());
  gradients.assign(bwd->result_begin(), bwd->result_end());
  gradients.push_back(Value());
  return success();
}

LogicalResult GatedDeltaRuleBwdOp::inferReturnTypes(MLIRContext *, Where loc,
                                                    Adaptor a, Types &out) {
  Check<GatedDeltaRuleBwdOp> check{loc};
  auto v = tensorOf(a.getV());
  SmallVector<int64_t> gates = {v.getDimSize(0), v.getDimSize(1)};
  if (failed(check.sameType(a.getDO(), "do", a.getV(), "v")) ||
      failed(check.sameType(a.getK(), "k", a.getQ(), "q")) ||
      failed(check.sameElement(a.getV(), "v", a.getQ(), "q")) ||
      failed(check.shape(a.getG(), "g", gates)) ||
      failed(check.shape(a.getBeta(), "beta", gates)) ||
      failed(check.stats(a.getG(), "g", a.getQ(), "q")) ||
      failed(check.stats(a.getBeta(), "beta", a.getQ(), "q")) ||
      failed(check.tokens(v.getDimSize(0), a.getSeq())))
    return failure();
  out.append({a.getQ().getType(), a.getK().getType(), v, a.getG().getType(),
              a.getBeta().getType()});
  return success();
}

} // namespace qwen35
