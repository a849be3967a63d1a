#include "dialect/Qwen35/IR/Infer.h"

using namespace mlir;

#define GET_OP_CLASSES
#include "dialect/Qwen35/IR/AttentionOps.cpp.inc"

namespace qwen35 {

using Types = SmallVectorImpl<Type>;
using Where = std::optional<Location>;

LogicalResult RopeTableOp::inferReturnTypes(MLIRContext *context, Where loc,
                                            Adaptor a, Types &out) {
  Check<RopeTableOp> check{loc};
  int64_t dims = a.getRotaryDim();
  if (dims <= 0 || dims % 2 != 0) // C1
    return check.fail("rotary_dim must be even and positive, got ", dims);
  double theta = a.getTheta().convertToDouble();
  if (!(theta > 1)) // C2
    return check.fail("theta must be greater than one, got ", theta);
  int64_t tokens = cast<SeqType>(a.getSeq().getType()).getTokens();
  out.push_back(tensorOf({tokens, dims / 2, 2}, Float32Type::get(context)));
  return success();
}

LogicalResult RopeOp::inferReturnTypes(MLIRContext *, Where loc, Adaptor a,
                                       Types &out) {
  Check<RopeOp> check{loc};
  auto x = tensorOf(a.getX());
  auto table = tensorOf(a.getTable());
  if (table.getDimSize(0) != x.getDimSize(0) || table.getDimSize(2) != 2) // C1
    return check.fail("table is ", table, " but x has ", x.getDimSize(0),
                      " tokens");
  if (failed(check.unrounded(a.getTable(), "table")))
    return failure();
  if (2 * table.getDimSize(1) > x.getDimSize(2)) // C2
    return check.fail("rotates ", 2 * table.getDimSize(1),
                      " dims of heads that have ", x.getDimSize(2));
  out.push_back(x);
  return success();
}

LogicalResult RopeOp::buildVjp(OpBuilder &b, ArrayRef<Value> dy,
                               SmallVectorImpl<Value> &gradients) {
  Value dx = RopeOp::create(b, getLoc(), dy[0], getTable(), !getInverse());
  gradients.assign({dx, Value()});
  return success();
}

LogicalResult AttentionOp::inferReturnTypes(MLIRContext *, Where loc,
                                            Adaptor a, Types &out) {
  Check<AttentionOp> check{loc};
  auto q = tensorOf(a.getQ()), k = tensorOf(a.getK());
  if (failed(check.sameType(a.getV(), "v", a.getK(), "k")) || // C1
      failed(check.sameElement(a.getK(), "k", a.getQ(), "q")))
    return failure();
  if (q.getDimSize(1) % k.getDimSize(1) != 0) // C2
    return check.fail(k.getDimSize(1), " key heads do not divide ",
                      q.getDimSize(1), " query heads");
  if (q.getDimSize(0) != k.getDimSize(0) || q.getDimSize(2) != k.getDimSize(2))
    return check.fail("q is ", q, " but k is ", k);
  if (failed(check.tokens(q.getDimSize(0), a.getSeq()))) // C3
    return failure();
  out.push_back(q);
  out.push_back(tensorOf({q.getDimSize(0), q.getDimSize(1)},
                         statsType(q.getElementType())));
  return success();
}

LogicalResult AttentionOp::buildVjp(OpBuilder &b, ArrayRef<Value> dy,
                                    SmallVectorImpl<Value> &gradients) {
  auto bwd = AttentionBwdOp::create(b, getLoc(), dy[0], getQ(), getK(), getV(),
                                    getO(), getLse(), getSeq(), getScale());
  gradients.assign({bwd.getDq(), bwd.getDk(), bwd.getDv(), Value()});
  return success();
}

LogicalResult AttentionBwdOp::inferReturnTypes(MLIRContext *, Where loc,
                                               Adaptor a, Types &out) {
  Check<AttentionBwdOp> check{loc};
  auto q = tensorOf(a.getQ());
  if (failed(check.sameType(a.getDO(), "do", a.getQ(), "q")) ||
      failed(check.sameType(a.getO(), "o", a.getQ(), "q")) ||
      failed(check.sameType(a.getV(), "v", a.getK(), "k")) ||
      failed(check.sameElement(a.getK(), "k", a.getQ(), "q")) ||
      failed(check.stats(a.getLse(), "lse", a.getQ(), "q")) ||
      failed(check.shape(a.getLse(), "lse", q.getShape().drop_back())) ||
      failed(check.tokens(q.getDimSize(0), a.getSeq())))
    return failure();
  out.append({q, a.getK().getType(), a.getV().getType()});
  return success();
}

/// True if `gate` is one value per row of the matrix `x`.
static bool isRowGate(RankedTensorType x, RankedTensorType gate) {
  return x.getElementType() == gate.getElementType() && x.getRank() == 2 &&
         gate.getRank() == 2 && gate.getDimSize(1) == 1 &&
         gate.getDimSize(0) == x.getDimSize(0);
}

LogicalResult MulSigmoidOp::inferReturnTypes(MLIRContext *, Where loc,
                                             Adaptor a, Types &out) {
  Check<MulSigmoidOp> check{loc};
  auto x = tensorOf(a.getX()), gate = tensorOf(a.getGate());
  if (x != gate && !isRowGate(x, gate)) // C1
    return check.fail("gate is ", gate, ", neither the type of x, ", x,
                      ", nor one value per row");
  out.push_back(x);
  return success();
}

LogicalResult MulSigmoidOp::buildVjp(OpBuilder &b, ArrayRef<Value> dy,
                                     SmallVectorImpl<Value> &gradients) {
  auto bwd = MulSigmoidBwdOp::create(b, getLoc(), dy[0], getX(), getGate());
  gradients.assign({bwd.getDx(), bwd.getDgate()});
  return success();
}

LogicalResult MulSigmoidBwdOp::inferReturnTypes(MLIRContext *, Where loc,
                                                Adaptor a, Types &out) {
  Check<MulSigmoidBwdOp> check{loc};
  auto x = tensorOf(a.getX()), gate = tensorOf(a.getGate());
  if (failed(check.sameType(a.getDy(), "dy", a.getX(), "x")))
    return failure();
  if (x != gate && !isRowGate(x, gate))
    return check.fail("gate is ", gate, ", neither the type of x, ", x,
                      ", nor one value per row");
  out.append({x, gate});
  return success();
}

} // namespace qwen35
