#include "dialect/Qwen35/IR/Infer.h"

using namespace mlir;

#define GET_OP_CLASSES
#include "dialect/Qwen35/IR/StripeOps.cpp.inc"

namespace qwen35 {

using Types = SmallVectorImpl<Type>;
using Where = std::optional<Location>;

LogicalResult CpRopeTableOp::inferReturnTypes(MLIRContext *context, Where loc,
                                              Adaptor a, Types &out) {
  Check<CpRopeTableOp> check{loc};
  int64_t dims = a.getRotaryDim();
  if (dims <= 0 || dims % 2 != 0) // C1
    return check.fail("rotary_dim must be even and positive, got ", dims);
  double theta = a.getTheta().convertToDouble();
  if (!(theta > 1)) // C2
    return check.fail("theta must be greater than one, got ", theta);
  int64_t tokens = cast<SeqType>(a.getSeq().getType()).getTokens();
  if (failed(check.stripes(tokens, a.getSeq(), a.getStripes()))) // C3
    return failure();
  out.push_back(tensorOf({tokens, dims / 2, 2}, Float32Type::get(context)));
  return success();
}

/// Queries of one rank and gathered keys and values.
template <typename Op, typename Adaptor>
static LogicalResult checkAttention(Check<Op> check, Adaptor a) {
  auto q = tensorOf(a.getQ()), k = tensorOf(a.getK());
  if (failed(check.sameType(a.getV(), "v", a.getK(), "k")) || // C1
      failed(check.sameElement(a.getK(), "k", a.getQ(), "q")))
    return failure();
  if (k.getDimSize(1) == 0 || q.getDimSize(1) % k.getDimSize(1) != 0) // C2
    return check.fail(k.getDimSize(1), " key heads do not divide ",
                      q.getDimSize(1), " query heads");
  FailureOr<int64_t> ranks = // C3
      check.stripes(q.getDimSize(0), a.getSeq(), a.getStripes());
  if (failed(ranks))
    return failure();
  return check.shape(
      a.getK(), "k",
      {q.getDimSize(0) * *ranks, k.getDimSize(1), q.getDimSize(2)});
}

LogicalResult CpAttentionOp::inferReturnTypes(MLIRContext *, Where loc,
                                              Adaptor a, Types &out) {
  if (failed(checkAttention(Check<CpAttentionOp>{loc}, a)))
    return failure();
  auto q = tensorOf(a.getQ());
  out.push_back(q);
  out.push_back(
      tensorOf(q.getShape().drop_back(), statsType(q.getElementType())));
  return success();
}

LogicalResult CpAttentionBwdOp::inferReturnTypes(MLIRContext *, Where loc,
                                                 Adaptor a, Types &out) {
  Check<CpAttentionBwdOp> check{loc};
  auto q = tensorOf(a.getQ());
  if (failed(checkAttention(check, a)) ||
      failed(check.sameType(a.getDO(), "do", a.getQ(), "q")) ||
      failed(check.sameType(a.getO(), "o", a.getQ(), "q")) ||
      failed(check.stats(a.getLse(), "lse", a.getQ(), "q")) ||
      failed(check.shape(a.getLse(), "lse", q.getShape().drop_back())))
    return failure();
  auto summand = tensorOf(a.getK()).clone(statsType(q.getElementType()));
  out.append({q, summand, summand});
  return success();
}

/// The halo of a convolution with `taps` on a rank of `tokens` tokens.
template <typename Op>
static LogicalResult checkHalo(Check<Op> check, int64_t tokens, int64_t taps) {
  if (tokens % 2 != 0)
    return check.fail("x has ", tokens, " tokens, which are not two stripes");
  if (taps < 2 || taps - 1 > tokens / 2)
    return check.fail("has ", taps, " taps, expected 2 to ", tokens / 2 + 1,
                      " for stripes of ", tokens / 2, " tokens");
  return success();
}

LogicalResult StripeTailsOp::inferReturnTypes(MLIRContext *, Where loc,
                                              Adaptor a, Types &out) {
  auto x = tensorOf(a.getX());
  int64_t taps = a.getTaps();
  if (failed(checkHalo(Check<StripeTailsOp>{loc}, x.getDimSize(0), taps)))
    return failure(); // C1, C2
  out.push_back(tensorOf({2, taps - 1, x.getDimSize(1)}, x.getElementType()));
  return success();
}

template <typename Op, typename Adaptor>
static LogicalResult checkConv(Check<Op> check, Adaptor a) {
  auto x = tensorOf(a.getX()), w = tensorOf(a.getWeight());
  if (w.getDimSize(0) != x.getDimSize(1) || w.getDimSize(1) != 1) // C1
    return check.fail("weight is ", w, ", expected [", x.getDimSize(1),
                      ", 1, taps] for the columns of x");
  FailureOr<int64_t> ranks = // C3
      check.stripes(x.getDimSize(0), a.getSeq(), a.getStripes());
  if (failed(ranks) ||
      failed(check.stats(a.getWeight(), "weight", a.getX(), "x")) || // C1
      failed(checkHalo(check, x.getDimSize(0), w.getDimSize(2))) ||
      failed(check.sameElement(a.getTails(), "tails", a.getX(), "x"))) // C2
    return failure();
  return check.shape(a.getTails(), "tails",
                     {2 * *ranks, w.getDimSize(2) - 1, x.getDimSize(1)});
}

LogicalResult CpCausalConvOp::inferReturnTypes(MLIRContext *, Where loc,
                                               Adaptor a, Types &out) {
  if (failed(checkConv(Check<CpCausalConvOp>{loc}, a)))
    return failure();
  out.push_back(a.getX().getType());
  return success();
}

LogicalResult CpCausalConvBwdOp::inferReturnTypes(MLIRContext *, Where loc,
                                                  Adaptor a, Types &out) {
  Check<CpCausalConvBwdOp> check{loc};
  if (failed(checkConv(check, a)) ||
      failed(check.sameType(a.getDy(), "dy", a.getX(), "x")))
    return failure();
  auto x = tensorOf(a.getX()), w = tensorOf(a.getWeight());
  out.append(
      {x,
       tensorOf({2, w.getDimSize(2) - 1, x.getDimSize(1)}, x.getElementType()),
       w});
  return success();
}

LogicalResult AddToTailsOp::inferReturnTypes(MLIRContext *, Where loc,
                                             Adaptor a, Types &out) {
  Check<AddToTailsOp> check{loc};
  auto x = tensorOf(a.getX()), halo = tensorOf(a.getHalo());
  FailureOr<int64_t> ranks = check.ranks(a.getStripes()); // C2
  if (failed(ranks) ||
      failed(checkHalo(check, x.getDimSize(0), halo.getDimSize(1) + 1)) ||
      failed(check.sameElement(a.getHalo(), "halo", a.getX(), "x")) || // C1
      failed(check.shape(a.getHalo(), "halo",
                         {2 * *ranks, halo.getDimSize(1), x.getDimSize(1)})))
    return failure();
  out.push_back(x);
  return success();
}

/// `[2,Hv,dk,dv]` of a rank.
static SmallVector<int64_t> statesOf(int64_t heads, int64_t keyDim,
                                     int64_t valueDim) {
  return {2, heads, keyDim, valueDim};
}

/// Keys `[T,Hk,dk]`, values (or their gradients) `[T,Hv,dv]`, gates `[T,Hv]`.
template <typename Op>
static LogicalResult checkRule(Check<Op> check, Value keys, Value values,
                               StringRef name, Value g, Value beta, Value seq,
                               Value stripes, const APFloat &eps) {
  auto k = tensorOf(keys), v = tensorOf(values);
  if (failed(check.sameElement(keys, "k", values, name)))
    return failure();
  if (k.getDimSize(1) == 0 || v.getDimSize(1) % k.getDimSize(1) != 0)
    return check.fail(k.getDimSize(1), " key heads do not divide ",
                      v.getDimSize(1), " value heads");
  if (k.getDimSize(0) != v.getDimSize(0))
    return check.fail(name, " has ", v.getDimSize(0), " tokens but k has ",
                      k.getDimSize(0));
  SmallVector<int64_t> gates = {v.getDimSize(0), v.getDimSize(1)};
  if (failed(check.shape(g, "g", gates)) ||
      failed(check.shape(beta, "beta", gates)) ||
      failed(check.stats(g, "g", keys, "k")) ||
      failed(check.stats(beta, "beta", keys, "k")) ||
      failed(check.stripes(k.getDimSize(0), seq, stripes)))
    return failure();
  return check.positive(eps, "eps");
}

LogicalResult GdnAffineOp::inferReturnTypes(MLIRContext *, Where loc, Adaptor a,
                                            Types &out) {
  if (failed(checkRule(Check<GdnAffineOp>{loc}, a.getK(), a.getV(), "v",
                       a.getG(), a.getBeta(), a.getSeq(), a.getStripes(),
                       a.getEps())))
    return failure();
  auto k = tensorOf(a.getK()), v = tensorOf(a.getV());
  int64_t heads = v.getDimSize(1), dim = k.getDimSize(2);
  Type element = statsType(k.getElementType());
  out.append({tensorOf(statesOf(heads, dim, dim), element),
              tensorOf(statesOf(heads, dim, v.getDimSize(2)), element)});
  return success();
}

/// Maps of all stripes and what goes through them.
template <typename Op>
static FailureOr<RankedTensorType> checkScan(Check<Op> check, Value maps,
                                             Value values, StringRef name,
                                             Value stripes) {
  auto m = tensorOf(maps), x = tensorOf(values);
  FailureOr<int64_t> ranks = check.ranks(stripes);
  if (failed(ranks) || failed(check.unrounded(maps, "m")) || // C1
      failed(check.sameElement(values, name, maps, "m")) ||
      failed(check.shape(
          maps, "m",
          {2 * *ranks, m.getDimSize(1), m.getDimSize(2), m.getDimSize(2)})) ||
      failed(check.shape(
          values, name,
          {2 * *ranks, m.getDimSize(1), m.getDimSize(2), x.getDimSize(3)})))
    return failure();
  return tensorOf(statesOf(m.getDimSize(1), m.getDimSize(2), x.getDimSize(3)),
                  m.getElementType());
}

LogicalResult AffineScanOp::inferReturnTypes(MLIRContext *, Where loc,
                                             Adaptor a, Types &out) {
  auto states = checkScan(Check<AffineScanOp>{loc}, a.getM(), a.getB(), "b",
                          a.getStripes());
  if (failed(states))
    return failure();
  out.push_back(*states);
  return success();
}

LogicalResult AffineScanBwdOp::inferReturnTypes(MLIRContext *, Where loc,
                                                Adaptor a, Types &out) {
  auto states = checkScan(Check<AffineScanBwdOp>{loc}, a.getM(), a.getC(), "c",
                          a.getStripes());
  if (failed(states))
    return failure();
  out.push_back(*states);
  return success();
}

/// States of the rank's stripes beside keys and values.
template <typename Op>
static LogicalResult checkStates(Check<Op> check, Value states, StringRef name,
                                 Value keys, Value values) {
  auto k = tensorOf(keys), v = tensorOf(values);
  if (failed(check.shape(
          states, name,
          statesOf(v.getDimSize(1), k.getDimSize(2), v.getDimSize(2)))))
    return failure();
  return check.stats(states, name, keys, "k");
}

LogicalResult CpGatedDeltaRuleOp::inferReturnTypes(MLIRContext *, Where loc,
                                                   Adaptor a, Types &out) {
  Check<CpGatedDeltaRuleOp> check{loc};
  if (failed(check.sameType(a.getK(), "k", a.getQ(), "q")) ||
      failed(checkRule(check, a.getK(), a.getV(), "v", a.getG(), a.getBeta(),
                       a.getSeq(), a.getStripes(), a.getEps())) || // C6
      failed(checkStates(check, a.getStates(), "states", a.getK(), // C5
                         a.getV())))
    return failure();
  out.push_back(a.getV().getType());
  return success();
}

LogicalResult GdnStateGradOp::inferReturnTypes(MLIRContext *, Where loc,
                                               Adaptor a, Types &out) {
  Check<GdnStateGradOp> check{loc};
  if (failed(check.sameType(a.getK(), "k", a.getQ(), "q")) ||
      failed(checkRule(check, a.getK(), a.getDO(), "do", a.getG(), a.getBeta(),
                       a.getSeq(), a.getStripes(), a.getEps())))
    return failure();
  auto k = tensorOf(a.getK()), d = tensorOf(a.getDO());
  out.push_back(
      tensorOf(statesOf(d.getDimSize(1), k.getDimSize(2), d.getDimSize(2)),
               statsType(k.getElementType())));
  return success();
}

LogicalResult CpGatedDeltaRuleBwdOp::inferReturnTypes(MLIRContext *, Where loc,
                                                      Adaptor a, Types &out) {
  Check<CpGatedDeltaRuleBwdOp> check{loc};
  if (failed(check.sameType(a.getDO(), "do", a.getV(), "v")) ||
      failed(check.sameType(a.getK(), "k", a.getQ(), "q")) ||
      failed(checkRule(check, a.getK(), a.getV(), "v", a.getG(), a.getBeta(),
                       a.getSeq(), a.getStripes(), a.getEps())) ||
      failed(checkStates(check, a.getStates(), "states", a.getK(), a.getV())) ||
      failed(checkStates(check, a.getGradients(), "gradients", a.getK(),
                         a.getV())))
    return failure();
  out.append({a.getQ().getType(), a.getK().getType(), a.getV().getType(),
              a.getG().getType(), a.getBeta().getType()});
  return success();
}

} // namespace qwen35
