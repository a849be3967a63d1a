#include "dialect/Qwen35/IR/Infer.h"

using namespace mlir;

#define GET_OP_CLASSES
#include "dialect/Qwen35/IR/MoeOps.cpp.inc"

namespace qwen35 {

using Types = SmallVectorImpl<Type>;
using Where = std::optional<Location>;

LogicalResult RouterOp::inferReturnTypes(MLIRContext *context, Where loc,
                                         Adaptor a, Types &out) {
  Check<RouterOp> check{loc};
  auto logits = tensorOf(a.getLogits());
  int64_t k = a.getTopK();
  if (k < 1 || k > logits.getDimSize(1)) // C1
    return check.fail("top_k must be in [1, ", logits.getDimSize(1), "], got ",
                      k);
  if (failed(check.unrounded(a.getLogits(), "logits"))) // C2
    return failure();
  int64_t tokens = logits.getDimSize(0);
  Type element = statsType(logits.getElementType());
  out.append({tensorOf({tokens, k}, element),
              tensorOf({tokens, k}, IntegerType::get(context, 32)),
              tensorOf(logits.getShape(), element)});
  return success();
}

LogicalResult RouterOp::buildVjp(OpBuilder &b, ArrayRef<Value> dy,
                                 SmallVectorImpl<Value> &gradients) {
  Value dlogits;
  if (dy[0])
    dlogits =
        RouterBwdOp::create(b, getLoc(), dy[0], getWeights(), getIdx(),
                            tensorOf(getLogits()).getDimSize(1));
  if (dy[2]) {
    Value more = SoftmaxBwdOp::create(b, getLoc(), dy[2], getProbs());
    dlogits = dlogits ? AddOp::create(b, getLoc(), dlogits, more).getSum()
                      : more;
  }
  gradients.assign({dlogits});
  return success();
}

LogicalResult RouterBwdOp::inferReturnTypes(MLIRContext *, Where loc,
                                            Adaptor a, Types &out) {
  Check<RouterBwdOp> check{loc};
  auto w = tensorOf(a.getWeights());
  if (failed(check.unrounded(a.getWeights(), "weights")) ||
      failed(check.sameType(a.getDweights(), "dweights", a.getWeights(),
                            "weights")) ||
      failed(check.shape(a.getIdx(), "idx", w.getShape())))
    return failure();
  int64_t experts = a.getExperts();
  if (experts < w.getDimSize(1))
    return check.fail("chooses ", w.getDimSize(1), " of ", experts,
                      " experts");
  out.push_back(tensorOf({w.getDimSize(0), experts}, w.getElementType()));
  return success();
}

LogicalResult SoftmaxBwdOp::inferReturnTypes(MLIRContext *, Where loc,
                                             Adaptor a, Types &out) {
  Check<SoftmaxBwdOp> check{loc};
  if (failed(check.unrounded(a.getProbs(), "probs")) ||
      failed(check.sameType(a.getDprobs(), "dprobs", a.getProbs(), "probs")))
    return failure();
  out.push_back(a.getProbs().getType());
  return success();
}

template <typename Op>
static LogicalResult checkAux(Check<Op> check, ValueRange probs, ValueRange idx,
                              Value seq, StringRef scope) {
  if (scope != "pooled" && scope != "per_layer") // C1
    return check.fail("scope must be \"pooled\" or \"per_layer\", got \"",
                      scope, "\"");
  if (probs.empty() || probs.size() != idx.size()) // C2
    return check.fail("has ", probs.size(), " probs and ", idx.size(),
                      " idx, expected as many of both and at least one");
  if (failed(check.unrounded(probs.front(), "probs")))
    return failure();
  for (Value p : probs)
    if (failed(check.sameType(p, "probs", probs.front(), "the first probs")))
      return failure();
  for (Value i : idx)
    if (failed(check.sameType(i, "idx", idx.front(), "the first idx")))
      return failure();
  return check.tokens(tensorOf(probs.front()).getDimSize(0), seq);
}

LogicalResult RouterAuxOp::inferReturnTypes(MLIRContext *, Where loc,
                                            Adaptor a, Types &out) {
  if (failed(checkAux(Check<RouterAuxOp>{loc}, a.getProbs(), a.getIdx(),
                      a.getSeq(), a.getScope())))
    return failure();
  out.push_back(tensorOf({}, tensorOf(a.getProbs().front()).getElementType()));
  return success();
}

LogicalResult RouterAuxOp::buildVjp(OpBuilder &b, ArrayRef<Value> dy,
                                    SmallVectorImpl<Value> &gradients) {
  auto bwd = RouterAuxBwdOp::create(b, getLoc(), dy[0], getProbs(), getIdx(),
                                    getSeq(), getScope());
  gradients.assign(bwd->result_begin(), bwd->result_end());
  gradients.append(getIdx().size() + 1, Value());
  return success();
}

LogicalResult RouterAuxBwdOp::inferReturnTypes(MLIRContext *, Where loc,
                                               Adaptor a, Types &out) {
  if (failed(checkAux(Check<RouterAuxBwdOp>{loc}, a.getProbs(), a.getIdx(),
                      a.getSeq(), a.getScope())))
    return failure();
  llvm::append_range(out, a.getProbs().getTypes());
  return success();
}

LogicalResult RouterStatsOp::inferReturnTypes(MLIRContext *, Where loc,
                                              Adaptor a, Types &out) {
  if (failed(checkAux(Check<RouterStatsOp>{loc}, a.getProbs(), a.getIdx(),
                      a.getSeq(), a.getScope())))
    return failure();
  auto probs = tensorOf(a.getProbs().front());
  int64_t rows = a.getScope() == "pooled" ? 1 : a.getProbs().size();
  Type sums = tensorOf({rows, probs.getDimSize(1)}, probs.getElementType());
  out.append({sums, sums, tensorOf({}, probs.getElementType())});
  return success();
}

template <typename Op>
static LogicalResult checkStats(Check<Op> check, Value counts, StringRef scope,
                                int64_t layers, int64_t slots) {
  if (scope != "pooled" && scope != "per_layer") // C1
    return check.fail("scope must be \"pooled\" or \"per_layer\", got \"",
                      scope, "\"");
  if (layers <= 0 || slots <= 0) // C3
    return check.fail("has layers ", layers, " and slots ", slots,
                      ", expected more than 0");
  auto type = tensorOf(counts);
  return check.shape(counts, "counts", // C2
                     {scope == "pooled" ? 1 : layers, type.getDimSize(1)});
}

LogicalResult RouterStatsAuxOp::inferReturnTypes(MLIRContext *, Where loc,
                                                 Adaptor a, Types &out) {
  Check<RouterStatsAuxOp> check{loc};
  if (failed(checkStats(check, a.getCounts(), a.getScope(), a.getLayers(),
                        a.getSlots())) ||
      failed(check.sameType(a.getSums(), "sums", a.getCounts(), "counts")))
    return failure();
  out.push_back(tensorOf({}, tensorOf(a.getCounts()).getElementType()));
  return success();
}

LogicalResult RouterStatsGradOp::inferReturnTypes(MLIRContext *, Where loc,
                                                  Adaptor a, Types &out) {
  if (failed(checkStats(Check<RouterStatsGradOp>{loc}, a.getCounts(),
                        a.getScope(), a.getLayers(), a.getSlots())))
    return failure();
  auto counts = tensorOf(a.getCounts());
  Type dprobs = tensorOf({cast<SeqType>(a.getSeq().getType()).getTokens(),
                          counts.getDimSize(1)},
                         counts.getElementType());
  out.append(a.getLayers(), dprobs);
  return success();
}

template <typename Op>
static LogicalResult checkExperts(Check<Op> check, Value x, Value weights,
                                  Value idx, Value gateUp, Value down) {
  auto rows = tensorOf(x), w = tensorOf(weights), gu = tensorOf(gateUp);
  if (w.getDimSize(0) != rows.getDimSize(0))
    return check.fail("weights is ", w, " but x is ", rows);
  if (failed(check.shape(idx, "idx", w.getShape()))) // C1
    return failure();
  if (gu.getDimSize(1) % 2 != 0 || gu.getDimSize(2) != rows.getDimSize(1))
    return check.fail("w_gate_up is ", gu, ", expected [experts, 2 * width, ",
                      rows.getDimSize(1), "]");
  if (failed(check.sameElement(gateUp, "w_gate_up", x, "x")) || // C2
      failed(check.sameElement(down, "w_down", x, "x")) ||
      failed(check.stats(weights, "weights", x, "x"))) // C3
    return failure();
  return check.shape(down, "w_down", // C2
                     {gu.getDimSize(0), rows.getDimSize(1),
                      gu.getDimSize(1) / 2});
}

LogicalResult MoeExpertsOp::inferReturnTypes(MLIRContext *, Where loc,
                                             Adaptor a, Types &out) {
  if (failed(checkExperts(Check<MoeExpertsOp>{loc}, a.getX(), a.getWeights(),
                          a.getIdx(), a.getWGateUp(), a.getWDown())))
    return failure();
  out.push_back(a.getX().getType());
  return success();
}

LogicalResult MoeExpertsOp::buildVjp(OpBuilder &b, ArrayRef<Value> dy,
                                     SmallVectorImpl<Value> &gradients) {
  auto bwd =
      MoeExpertsBwdOp::create(b, getLoc(), dy[0], getX(), getWeights(),
                              getIdx(), getWGateUp(), getWDown());
  gradients.assign({bwd.getDx(), bwd.getDweights(), Value(),
                    bwd.getDwGateUp(), bwd.getDwDown()});
  return success();
}

LogicalResult MoeExpertsBwdOp::inferReturnTypes(MLIRContext *, Where loc,
                                                Adaptor a, Types &out) {
  Check<MoeExpertsBwdOp> check{loc};
  if (failed(check.sameType(a.getDy(), "dy", a.getX(), "x")) ||
      failed(checkExperts(check, a.getX(), a.getWeights(), a.getIdx(),
                          a.getWGateUp(), a.getWDown())))
    return failure();
  auto gradientOf = [](Value weight) {
    auto type = tensorOf(weight);
    return type.clone(statsType(type.getElementType()));
  };
  out.append({a.getX().getType(), a.getWeights().getType(),
              gradientOf(a.getWGateUp()), gradientOf(a.getWDown())});
  return success();
}

} // namespace qwen35
