#include "dialect/Interpreter/Evaluators.h"
#include "dialect/Qwen35/Reference/Moe.h"

using namespace mlir;

namespace qwen35::interpreter {

template <typename Real>
static absl::Status evaluate(RouterOp op, Frame<Real> &f) {
  return reference::router<Real>(
      f.read(op.getLogits()), dimOf(op.getLogits(), 0),
      dimOf(op.getLogits(), 1), op.getTopK(), f.write(op.getWeights()),
      f.writeInts(op.getIdx()), f.write(op.getProbs()));
}

template <typename Real>
static absl::Status evaluate(RouterBwdOp op, Frame<Real> &f) {
  return reference::routerBwd<Real>(
      f.read(op.getDweights()), f.read(op.getWeights()),
      f.readInts(op.getIdx()), dimOf(op.getIdx(), 0), op.getExperts(),
      dimOf(op.getIdx(), 1), f.write(op.getDlogits()));
}

template <typename Real>
static absl::Status evaluate(SoftmaxBwdOp op, Frame<Real> &f) {
  return reference::softmaxBwd<Real>(
      f.read(op.getDprobs()), f.read(op.getProbs()), dimOf(op.getProbs(), 0),
      dimOf(op.getProbs(), 1), f.write(op.getDlogits()));
}

static reference::RouterAuxScope scopeOf(StringRef scope) {
  return scope == "pooled" ? reference::RouterAuxScope::kPooled
                           : reference::RouterAuxScope::kPerLayer;
}

template <typename Real>
static absl::Status evaluate(RouterAuxOp op, Frame<Real> &f) {
  SmallVector<absl::Span<const Real>> probs;
  SmallVector<absl::Span<const int32_t>> idx;
  for (Value layer : op.getProbs())
    probs.push_back(f.read(layer));
  for (Value layer : op.getIdx())
    idx.push_back(f.readInts(layer));
  return reference::routerAux<Real>(
      absl::MakeConstSpan(probs.data(), probs.size()),
      absl::MakeConstSpan(idx.data(), idx.size()), tableOf(op.getSeq()),
      f.readInts(op.getSeq()), dimOf(op.getProbs().front(), 1),
      dimOf(op.getIdx().front(), 1), scopeOf(op.getScope()),
      f.write(op.getAux()));
}

template <typename Real>
static absl::Status evaluate(RouterAuxBwdOp op, Frame<Real> &f) {
  SmallVector<absl::Span<const int32_t>> idx;
  SmallVector<absl::Span<Real>> dprobs;
  for (Value layer : op.getIdx())
    idx.push_back(f.readInts(layer));
  for (Value layer : op.getDprobs())
    dprobs.push_back(f.write(layer));
  return reference::routerAuxBwd<Real>(
      f.read(op.getDaux()), absl::MakeConstSpan(idx.data(), idx.size()),
      tableOf(op.getSeq()), f.readInts(op.getSeq()),
      dimOf(op.getProbs().front(), 1), dimOf(op.getIdx().front(), 1),
      scopeOf(op.getScope()),
      absl::MakeConstSpan(dprobs.data(), dprobs.size()));
}

template <typename Real>
static absl::Status evaluate(RouterStatsOp op, Frame<Real> &f) {
  SmallVector<absl::Span<const Real>> probs;
  SmallVector<absl::Span<const int32_t>> idx;
  for (Value layer : op.getProbs())
    probs.push_back(f.read(layer));
  for (Value layer : op.getIdx())
    idx.push_back(f.readInts(layer));
  return reference::routerStats<Real>(
      absl::MakeConstSpan(probs.data(), probs.size()),
      absl::MakeConstSpan(idx.data(), idx.size()), tableOf(op.getSeq()),
      f.readInts(op.getSeq()), dimOf(op.getProbs().front(), 1),
      dimOf(op.getIdx().front(), 1), scopeOf(op.getScope()),
      f.write(op.getCounts()), f.write(op.getSums()), f.write(op.getTokens()));
}

template <typename Real>
static absl::Status evaluate(RouterStatsAuxOp op, Frame<Real> &f) {
  return reference::routerStatsAux<Real>(
      f.read(op.getCounts()), f.read(op.getSums()), f.read(op.getTokens()),
      op.getLayers(), dimOf(op.getCounts(), 1), op.getSlots(),
      scopeOf(op.getScope()), f.write(op.getAux()));
}

template <typename Real>
static absl::Status evaluate(RouterStatsGradOp op, Frame<Real> &f) {
  SmallVector<absl::Span<Real>> dprobs;
  for (Value layer : op.getDprobs())
    dprobs.push_back(f.write(layer));
  return reference::routerStatsGrad<Real>(
      f.read(op.getDaux()), f.read(op.getCounts()), f.read(op.getTokens()),
      tableOf(op.getSeq()), f.readInts(op.getSeq()), dimOf(op.getCounts(), 1),
      op.getSlots(), scopeOf(op.getScope()),
      absl::MakeConstSpan(dprobs.data(), dprobs.size()));
}

static reference::MoeDims dimsOf(Value x, Value idx, Value down) {
  return {dimOf(x, 0), dimOf(x, 1), dimOf(down, 0), dimOf(idx, 1),
          dimOf(down, 2)};
}

template <typename Real>
static absl::Status evaluate(MoeExpertsOp op, Frame<Real> &f) {
  return reference::moeExperts<Real>(
      f.read(op.getX()), f.read(op.getWeights()), f.readInts(op.getIdx()),
      f.read(op.getWGateUp()), f.read(op.getWDown()),
      dimsOf(op.getX(), op.getIdx(), op.getWDown()), f.write(op.getY()),
      op.getShard());
}

template <typename Real>
static absl::Status evaluate(MoeExpertsBwdOp op, Frame<Real> &f) {
  return reference::moeExpertsBwd<Real>(
      f.read(op.getDy()), f.read(op.getX()), f.read(op.getWeights()),
      f.readInts(op.getIdx()), f.read(op.getWGateUp()), f.read(op.getWDown()),
      dimsOf(op.getX(), op.getIdx(), op.getWDown()), f.write(op.getDx()),
      f.write(op.getDweights()), f.write(op.getDwGateUp()),
      f.write(op.getDwDown()), op.getShard());
}

void addMoeOps(EvaluatorTable &table) {
  table.add<RouterOp, RouterBwdOp, SoftmaxBwdOp, RouterAuxOp, RouterAuxBwdOp,
            RouterStatsOp, RouterStatsAuxOp, RouterStatsGradOp, MoeExpertsOp, MoeExpertsBwdOp>();
}

} // namespace qwen35::interpreter
