#include "dialect/Qwen35/IR/Infer.h"

using namespace mlir;

#define GET_OP_CLASSES
#include "dialect/Qwen35/IR/LossOps.cpp.inc"

namespace qwen35 {

using Types = SmallVectorImpl<Type>;
using Where = std::optional<Location>;

template <typename Op>
static LogicalResult checkLoss(Check<Op> check, Value h, Value weight,
                               Value labels, Value invCount) {
  auto rows = tensorOf(h), w = tensorOf(weight);
  if (w.getDimSize(1) != rows.getDimSize(1)) // C1
    return check.fail("weight is ", w, " but the rows of h have ",
                      rows.getDimSize(1), " columns");
  if (failed(check.sameElement(weight, "weight", h, "h")) ||
      failed(check.stats(invCount, "inv_count", h, "h"))) // C3
    return failure();
  return check.shape(labels, "labels", {rows.getDimSize(0)}); // C2
}

LogicalResult LmLossOp::inferReturnTypes(MLIRContext *, Where loc, Adaptor a,
                                         Types &out) {
  if (failed(checkLoss(Check<LmLossOp>{loc}, a.getH(), a.getWeight(),
                       a.getLabels(), a.getInvCount())))
    return failure();
  out.push_back(a.getInvCount().getType());
  return success();
}

LogicalResult LmLossOp::buildVjp(OpBuilder &b, ArrayRef<Value> dy,
                                 SmallVectorImpl<Value> &gradients) {
  // d(loss) scales every gradient, exactly as inv_count does.
  Value invCount = getInvCount();
  if (!dy[0].getDefiningOp<OnesOp>())
    invCount = MulScalarOp::create(b, getLoc(), invCount, dy[0]);
  auto grad = LmLossGradOp::create(b, getLoc(), getH(), getWeight(),
                                   getLabels(), invCount);
  gradients.assign({grad.getDh(), grad.getDweight(), Value(), Value()});
  return success();
}

LogicalResult LmLossGradOp::inferReturnTypes(MLIRContext *, Where loc,
                                             Adaptor a, Types &out) {
  if (failed(checkLoss(Check<LmLossGradOp>{loc}, a.getH(), a.getWeight(),
                       a.getLabels(), a.getInvCount())))
    return failure();
  auto weight = tensorOf(a.getWeight());
  out.append({a.getInvCount().getType(), a.getH().getType(),
              weight.clone(statsType(weight.getElementType()))});
  return success();
}

template <typename Op>
static LogicalResult checkHead(Check<Op> check, Value h, Value weight,
                               Value labels) {
  auto rows = tensorOf(h), w = tensorOf(weight);
  if (w.getDimSize(1) != rows.getDimSize(1)) // C1
    return check.fail("weight is ", w, " but the rows of h have ",
                      rows.getDimSize(1), " columns");
  if (failed(check.sameElement(weight, "weight", h, "h")))
    return failure();
  return check.shape(labels, "labels", {rows.getDimSize(0)}); // C2
}

LogicalResult LmStatsOp::inferReturnTypes(MLIRContext *, Where loc, Adaptor a,
                                          Types &out) {
  if (failed(checkHead(Check<LmStatsOp>{loc}, a.getH(), a.getWeight(),
                       a.getLabels())))
    return failure();
  auto h = tensorOf(a.getH());
  out.append(3, tensorOf({h.getDimSize(0)}, statsType(h.getElementType())));
  return success();
}

LogicalResult RescaleSumOp::inferReturnTypes(MLIRContext *, Where loc,
                                             Adaptor a, Types &out) {
  Check<RescaleSumOp> check{loc};
  if (failed(check.sameType(a.getFrom(), "from", a.getSum(), "sum")) ||
      failed(check.sameType(a.getTo(), "to", a.getSum(), "sum"))) // C1
    return failure();
  out.push_back(a.getSum().getType());
  return success();
}

LogicalResult LmStatsLossOp::inferReturnTypes(MLIRContext *, Where loc,
                                              Adaptor a, Types &out) {
  Check<LmStatsLossOp> check{loc};
  auto sum = tensorOf(a.getSum());
  if (failed(check.sameType(a.getHighest(), "highest", a.getSum(), "sum")) ||
      failed(check.sameType(a.getTarget(), "target", a.getSum(), "sum")) ||
      failed(check.sameElement(a.getInvCount(), "inv_count", a.getSum(),
                               "sum")) || // C2
      failed(check.shape(a.getLabels(), "labels", {sum.getDimSize(0)}))) // C1
    return failure();
  out.push_back(a.getInvCount().getType());
  return success();
}

LogicalResult LmStatsGradOp::inferReturnTypes(MLIRContext *, Where loc,
                                              Adaptor a, Types &out) {
  Check<LmStatsGradOp> check{loc};
  if (failed(checkHead(check, a.getH(), a.getWeight(), a.getLabels())))
    return failure();
  int64_t tokens = tensorOf(a.getH()).getDimSize(0);
  if (failed(check.stats(a.getHighest(), "highest", a.getH(), "h")) ||
      failed(check.shape(a.getHighest(), "highest", {tokens})) ||
      failed(check.sameType(a.getSum(), "sum", a.getHighest(), "highest")) ||
      failed(check.stats(a.getInvCount(), "inv_count", a.getH(), "h"))) // C3
    return failure();
  auto weight = tensorOf(a.getWeight());
  out.append({a.getH().getType(),
              weight.clone(statsType(weight.getElementType()))});
  return success();
}

LogicalResult EmbedOp::inferReturnTypes(MLIRContext *, Where loc, Adaptor a,
                                        Types &out) {
  auto ids = tensorOf(a.getIds()), table = tensorOf(a.getTable());
  if (ids.getRank() != 1)
    return Check<EmbedOp>{loc}.fail("ids must be a vector, got ", ids);
  out.push_back(tensorOf({ids.getDimSize(0), table.getDimSize(1)},
                         table.getElementType()));
  return success();
}

LogicalResult EmbedOp::buildVjp(OpBuilder &b, ArrayRef<Value> dy,
                                SmallVectorImpl<Value> &gradients) {
  Value dtable = EmbedBwdOp::create(b, getLoc(), dy[0], getIds(),
                                    tensorOf(getTable()).getDimSize(0));
  gradients.assign({Value(), dtable});
  return success();
}

LogicalResult EmbedBwdOp::inferReturnTypes(MLIRContext *, Where loc, Adaptor a,
                                           Types &out) {
  Check<EmbedBwdOp> check{loc};
  auto dy = tensorOf(a.getDy());
  if (failed(check.shape(a.getIds(), "ids", {dy.getDimSize(0)})))
    return failure();
  int64_t vocab = a.getVocab();
  if (vocab <= 0)
    return check.fail("vocab must be positive, got ", vocab);
  out.push_back(tensorOf({vocab, dy.getDimSize(1)},
                         statsType(dy.getElementType())));
  return success();
}

} // namespace qwen35
