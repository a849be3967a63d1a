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
      dimOf(op.getTable(), 0), dimOf(op.getTable(), 1), f.write(op.getY()));
}

template <typename Real>
static absl::Status evaluate(EmbedBwdOp op, Frame<Real> &f) {
  return reference::embedBwd<Real>(
      f.read(op.getDy()), f.readInts(op.getIds()), dimOf(op.getDy(), 0),
      op.getVocab(), dimOf(op.getDy(), 1), f.write(op.getDtable()));
}

void addLossOps(EvaluatorTable &table) {
  table.add<LmLossOp, LmLossGradOp, EmbedOp, EmbedBwdOp>();
}

} // namespace qwen35::interpreter
