#include "dialect/QKern/IR/QKernDialect.h"

#include "dialect/Qwen35/IR/Infer.h"
#include "runtime/schema/seq_table.h"

using namespace mlir;

#define GET_OP_CLASSES
#include "dialect/QKern/IR/GdnOps.cpp.inc"

namespace qwen35::qkern {

using Types = SmallVectorImpl<Type>;
using Where = std::optional<Location>;

namespace {

/// The sizes that every op of the chunked delta rule has in common.
struct Sizes {
  int64_t tokens, keyHeads, keyDim, valueHeads, chunks;

  SmallVector<int64_t> gates() const { return {tokens, valueHeads}; }
  SmallVector<int64_t> stats() const { return {tokens, keyHeads}; }
  SmallVector<int64_t> gamma() const {
    return {chunks, valueHeads, SeqTable::kChunk};
  }
  /// A tile of 64 rows per chunk and value head.
  SmallVector<int64_t> tile(int64_t columns) const {
    return {chunks, valueHeads, SeqTable::kChunk, columns};
  }
  SmallVector<int64_t> states(int64_t valueDim) const {
    return {chunks, valueHeads, keyDim, valueDim};
  }
};

} // namespace

/// Sizes of keys `[T,Hk,dk]` with `valueHeads` value heads, once checked.
template <typename Op>
static FailureOr<Sizes> sizesOf(Check<Op> check, Value keys, int64_t valueHeads,
                                Value seq) {
  auto type = tensorOf(keys);
  int64_t tokens = type.getDimSize(0), keyHeads = type.getDimSize(1);
  if (keyHeads == 0 || valueHeads % keyHeads != 0)
    return check.fail(keyHeads, " key heads do not divide ", valueHeads,
                      " value heads");
  if (failed(check.tokens(tokens, seq)))
    return failure();
  auto table = cast<SeqType>(seq.getType());
  SeqTable shape{table.getTokens(), table.getMaxDocs()};
  return Sizes{tokens, keyHeads, type.getDimSize(2), valueHeads,
               shape.chunks()};
}

/// As above for values (or their gradients) `[T,Hv,dv]`.
template <typename Op>
static FailureOr<Sizes> sizesOf(Check<Op> check, Value keys, Value values,
                                StringRef name, Value seq) {
  int64_t tokens = tensorOf(keys).getDimSize(0);
  int64_t valueTokens = tensorOf(values).getDimSize(0);
  if (valueTokens != tokens)
    return check.fail(name, " has ", valueTokens, " tokens but kn has ",
                      tokens);
  return sizesOf(check, keys, tensorOf(values).getDimSize(1), seq);
}

/// The operands of T beside `of`, and the statistics, have the types of theirs.
template <typename Op>
static LogicalResult
checkElements(Check<Op> check, Value of, StringRef nameOf,
              ArrayRef<std::pair<Value, StringRef>> values,
              ArrayRef<std::pair<Value, StringRef>> statistics) {
  for (auto [value, name] : values)
    if (failed(check.sameElement(value, name, of, nameOf)))
      return failure();
  for (auto [value, name] : statistics)
    if (failed(check.stats(value, name, of, nameOf)))
      return failure();
  return success();
}

LogicalResult GdnPrepOp::inferReturnTypes(MLIRContext *, Where loc, Adaptor a,
                                          Types &out) {
  Check<GdnPrepOp> check{loc};
  auto q = tensorOf(a.getQ()), g = tensorOf(a.getG());
  if (failed(check.sameType(a.getK(), "k", a.getQ(), "q"))) // C1
    return failure();
  auto sizes = sizesOf(check, a.getK(), g.getDimSize(1), a.getSeq()); // C2, C4
  if (failed(sizes) ||
      failed(check.shape(a.getG(), "g", sizes->gates())) || // C3
      failed(check.shape(a.getBeta(), "beta", sizes->gates())) ||
      failed(checkElements(check, a.getQ(), "q", {},
                           {{a.getG(), "g"}, {a.getBeta(), "beta"}})) ||
      failed(check.positive(a.getEps(), "eps"))) // C5
    return failure();
  Type stats = statsType(q.getElementType());
  out.append({q, q, tensorOf(sizes->stats(), stats),
              tensorOf(sizes->stats(), stats),
              tensorOf(sizes->gamma(), g.getElementType()),
              tensorOf(sizes->tile(SeqTable::kChunk), q.getElementType())});
  return success();
}

/// The operands of gdn_scan, in whichever op.
template <typename Op, typename Adaptor>
static FailureOr<Sizes> checkScan(Check<Op> check, Adaptor a) {
  auto sizes = sizesOf(check, a.getKn(), a.getV(), "v", a.getSeq()); // C1, C4
  if (failed(sizes) ||
      failed(check.shape(a.getBeta(), "beta", sizes->gates())) || // C2
      failed(check.shape(a.getGamma(), "gamma", sizes->gamma())) || // C3
      failed(check.shape(a.getTinv(), "tinv", sizes->tile(SeqTable::kChunk))) ||
      failed(checkElements( // C5
          check, a.getV(), "v", {{a.getKn(), "kn"}, {a.getTinv(), "tinv"}},
          {{a.getBeta(), "beta"}, {a.getGamma(), "gamma"}})))
    return failure();
  return sizes;
}

/// States (or their gradients) and tiles of the columns of `values`.
static void appendScan(const Sizes &sizes, Value values, Types &out) {
  int64_t valueDim = tensorOf(values).getDimSize(2);
  Type element = tensorOf(values).getElementType();
  out.append({tensorOf(sizes.states(valueDim), element),
              tensorOf(sizes.tile(valueDim), element)});
}

LogicalResult GdnScanOp::inferReturnTypes(MLIRContext *, Where loc, Adaptor a,
                                          Types &out) {
  auto sizes = checkScan(Check<GdnScanOp>{loc}, a);
  if (failed(sizes))
    return failure();
  appendScan(*sizes, a.getV(), out);
  return success();
}

LogicalResult GdnOutOp::inferReturnTypes(MLIRContext *, Where loc, Adaptor a,
                                         Types &out) {
  Check<GdnOutOp> check{loc};
  auto q = tensorOf(a.getQn()), vnew = tensorOf(a.getVnew());
  if (failed(check.sameType(a.getKn(), "kn", a.getQn(), "qn"))) // C1
    return failure();
  auto sizes = sizesOf(check, a.getKn(), vnew.getDimSize(1), a.getSeq());
  int64_t valueDim = vnew.getDimSize(3);
  if (failed(sizes) || // C2, C4
      failed(check.shape(a.getGamma(), "gamma", sizes->gamma())) || // C3
      failed(check.shape(a.getStates(), "states", sizes->states(valueDim))) ||
      failed(check.shape(a.getVnew(), "vnew", sizes->tile(valueDim))) ||
      failed(checkElements( // C5
          check, a.getQn(), "qn",
          {{a.getStates(), "states"}, {a.getVnew(), "vnew"}},
          {{a.getGamma(), "gamma"}})))
    return failure();
  out.push_back(tensorOf({sizes->tokens, sizes->valueHeads, valueDim},
                         q.getElementType()));
  return success();
}

/// The operands of gdn_scan_bwd, in whichever op.
template <typename Op, typename Adaptor>
static FailureOr<Sizes> checkScanBwd(Check<Op> check, Adaptor a) {
  if (failed(check.sameType(a.getKn(), "kn", a.getQn(), "qn"))) // C1
    return failure();
  auto sizes = sizesOf(check, a.getKn(), a.getDO(), "do", a.getSeq());
  if (failed(sizes) || // C2, C3, C5
      failed(check.shape(a.getBeta(), "beta", sizes->gates())) ||
      failed(check.shape(a.getGamma(), "gamma", sizes->gamma())) || // C4
      failed(check.shape(a.getTinv(), "tinv", sizes->tile(SeqTable::kChunk))) ||
      failed(checkElements( // C6
          check, a.getDO(), "do", {{a.getKn(), "kn"}, {a.getTinv(), "tinv"}},
          {{a.getBeta(), "beta"}, {a.getGamma(), "gamma"}})))
    return failure();
  return sizes;
}

LogicalResult GdnScanBwdOp::inferReturnTypes(MLIRContext *, Where loc,
                                             Adaptor a, Types &out) {
  auto sizes = checkScanBwd(Check<GdnScanBwdOp>{loc}, a);
  if (failed(sizes))
    return failure();
  appendScan(*sizes, a.getDO(), out);
  return success();
}

LogicalResult GdnLocalBwdOp::inferReturnTypes(MLIRContext *, Where loc,
                                              Adaptor a, Types &out) {
  Check<GdnLocalBwdOp> check{loc};
  auto v = tensorOf(a.getV()), gamma = tensorOf(a.getGamma());
  if (failed(check.sameType(a.getKn(), "kn", a.getQn(), "qn")) || // C1
      failed(check.sameType(a.getDO(), "do", a.getV(), "v")))     // C3
    return failure();
  auto sizes = sizesOf(check, a.getKn(), a.getV(), "v", a.getSeq());
  int64_t valueDim = v.getDimSize(2);
  if (failed(sizes) || // C2, C5
      failed(check.shape(a.getQr(), "qr", sizes->stats())) ||
      failed(check.shape(a.getKr(), "kr", sizes->stats())) ||
      failed(check.shape(a.getBeta(), "beta", sizes->gates())) ||
      failed(check.shape(a.getGamma(), "gamma", sizes->gamma())) || // C4
      failed(check.shape(a.getStates(), "states", sizes->states(valueDim))) ||
      failed(check.shape(a.getDstates(), "dstates", sizes->states(valueDim))) ||
      failed(check.shape(a.getVnew(), "vnew", sizes->tile(valueDim))) ||
      failed(check.shape(a.getZ(), "z", sizes->tile(valueDim))) ||
      failed(checkElements( // C6
          check, a.getV(), "v",
          {{a.getKn(), "kn"},
           {a.getStates(), "states"},
           {a.getDstates(), "dstates"},
           {a.getVnew(), "vnew"},
           {a.getZ(), "z"}},
          {{a.getQr(), "qr"},
           {a.getKr(), "kr"},
           {a.getBeta(), "beta"},
           {a.getGamma(), "gamma"}})))
    return failure();
  out.append({a.getQn().getType(), a.getKn().getType(), v,
              tensorOf(sizes->gates(), gamma.getElementType()),
              a.getBeta().getType()});
  return success();
}

/// `[2,Hv,dk,columns]` of a rank.
static SmallVector<int64_t> stripeStates(const Sizes &sizes, int64_t columns) {
  return {StripeTable::kLocal, sizes.valueHeads, sizes.keyDim, columns};
}

LogicalResult CpGdnAffineOp::inferReturnTypes(MLIRContext *, Where loc,
                                              Adaptor a, Types &out) {
  Check<CpGdnAffineOp> check{loc};
  auto sizes = checkScan(check, a);
  if (failed(sizes) ||
      failed(check.stripes(sizes->tokens, a.getSeq(), a.getStripes())))
    return failure();
  Type element = tensorOf(a.getGamma()).getElementType();
  int64_t valueDim = tensorOf(a.getV()).getDimSize(2);
  out.append({tensorOf(stripeStates(*sizes, sizes->keyDim), element),
              tensorOf(stripeStates(*sizes, valueDim), element)});
  return success();
}

LogicalResult CpGdnScanOp::inferReturnTypes(MLIRContext *, Where loc, Adaptor a,
                                            Types &out) {
  Check<CpGdnScanOp> check{loc};
  auto sizes = checkScan(check, a);
  int64_t valueDim = tensorOf(a.getV()).getDimSize(2);
  if (failed(sizes) ||
      failed(check.shape(a.getBefore(), "before",
                         stripeStates(*sizes, valueDim))) ||
      failed(check.stats(a.getBefore(), "before", a.getV(), "v")) ||
      failed(check.stripes(sizes->tokens, a.getSeq(), a.getStripes())))
    return failure();
  appendScan(*sizes, a.getV(), out);
  return success();
}

LogicalResult CpGdnScanBwdOp::inferReturnTypes(MLIRContext *, Where loc,
                                               Adaptor a, Types &out) {
  Check<CpGdnScanBwdOp> check{loc};
  auto sizes = checkScanBwd(check, a);
  int64_t valueDim = tensorOf(a.getDO()).getDimSize(2);
  if (failed(sizes) ||
      failed(check.shape(a.getAfter(), "after",
                         stripeStates(*sizes, valueDim))) ||
      failed(check.stats(a.getAfter(), "after", a.getDO(), "do")) ||
      failed(check.stripes(sizes->tokens, a.getSeq(), a.getStripes())))
    return failure();
  appendScan(*sizes, a.getDO(), out);
  return success();
}

LogicalResult CpGdnStateGradOp::inferReturnTypes(MLIRContext *, Where loc,
                                                 Adaptor a, Types &out) {
  Check<CpGdnStateGradOp> check{loc};
  auto sizes = checkScanBwd(check, a);
  if (failed(sizes) ||
      failed(check.stripes(sizes->tokens, a.getSeq(), a.getStripes())))
    return failure();
  out.push_back(tensorOf(
      stripeStates(*sizes, tensorOf(a.getDO()).getDimSize(2)),
      tensorOf(a.getGamma()).getElementType()));
  return success();
}

} // namespace qwen35::qkern
