#include "dialect/Interpreter/Evaluators.h"
#include "dialect/Qwen35/Reference/Embedding.h"
#include "dialect/Qwen35/Reference/Loss.h"

namespace qwen35::interpreter {

template <typename Real>
static absl::Status evaluate(LmLossOp op, Frame<Real> &f) {
  return reference::lmLoss<Real>(
      f.read(op.getH()), f.read(op.getWeight()), f.readInts(op.getLabels()),
      f.read(op.getInvCount()), dimOf(op.getH(), 0), dimOf(op.getWeight(), 0),
      dimOf(op.getH(), 1), f.write(op.getLoss()));
}

template <typename Real>
static absl::Status evaluate(LmLossGradOp op, Frame<Real> &f) {
  return reference::lmLossGrad<Real>(
      f.read(op.getH()), f.read(op.getWeight()), f.readInts(op.getLabels()),
      f.read(op.getInvCount()), dimOf(op.getH(), 0), dimOf(op.getWeight(), 0),
      dimOf(op.getH(), 1), f.write(op.getLoss()), f.write(op.getDh()),
      f.write(op.getDweight()));
}

template <typename Real>
static absl::Status evaluate(EmbedOp op, Frame<Real> &f) {
  return reference::embed<Real>(
      f.readInts(op.getIds()), f.read(op.getTable()), dimOf(op.getIds(), 0),
      dimOf(op.getTable(), 0), dimOf(op.getTable(), 1), f.write(op.getY()),
      op.getShard());
}

template <typename Real>
static absl::Status evaluate(EmbedBwdOp op, Frame<Real> &f) {
  return reference::embedBwd<Real>(
      f.read(op.getDy()), f.readInts(op.getIds()), dimOf(op.getDy(), 0),
      op.getVocab(), dimOf(op.getDy(), 1), f.write(op.getDtable()),
      op.getShard());
}

template <typename Real>
static absl::Status evaluate(LmStatsOp op, Frame<Real> &f) {
  return reference::lmStats<Real>(
      f.read(op.getH()), f.read(op.getWeight()), f.readInts(op.getLabels()),
      dimOf(op.getH(), 0), dimOf(op.getWeight(), 0), dimOf(op.getH(), 1),
      f.write(op.getHighest()), f.write(op.getSum()), f.write(op.getTarget()));
}

template <typename Real>
static absl::Status evaluate(RescaleSumOp op, Frame<Real> &f) {
  return reference::rescaleSum<Real>(f.read(op.getSum()), f.read(op.getFrom()),
                                     f.read(op.getTo()),
                                     f.write(op.getResult()));
}

template <typename Real>
static absl::Status evaluate(LmStatsLossOp op, Frame<Real> &f) {
  return reference::lmStatsLoss<Real>(
      f.readInts(op.getLabels()), f.read(op.getInvCount()),
      f.read(op.getHighest()), f.read(op.getSum()), f.read(op.getTarget()),
      dimOf(op.getSum(), 0), f.write(op.getLoss()));
}

template <typename Real>
static absl::Status evaluate(LmStatsGradOp op, Frame<Real> &f) {
  return reference::lmStatsGrad<Real>(
      f.read(op.getH()), f.read(op.getWeight()), f.readInts(op.getLabels()),
      f.read(op.getInvCount()), f.read(op.getHighest()), f.read(op.getSum()),
      dimOf(op.getH(), 0), dimOf(op.getWeight(), 0), dimOf(op.getH(), 1),
      f.write(op.getDh()), f.write(op.getDweight()));
}

void addLossOps(EvaluatorTable &table) {
  table.add<LmLossOp, LmLossGradOp, LmStatsOp, RescaleSumOp, LmStatsLossOp,
            LmStatsGradOp, EmbedOp, EmbedBwdOp>();
}

} // namespace qwen35::interpreter
