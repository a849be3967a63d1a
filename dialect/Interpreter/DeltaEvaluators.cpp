#include "dialect/Interpreter/Evaluators.h"
#include "dialect/Qwen35/Reference/Delta.h"

using namespace mlir;

namespace qwen35::interpreter {

template <typename Real>
static absl::Status evaluate(CausalConvOp op, Frame<Real> &f) {
  return reference::causalConv<Real>(
      f.read(op.getX()), f.read(op.getWeight()), tableOf(op.getSeq()),
      f.readInts(op.getSeq()), dimOf(op.getWeight(), 0),
      dimOf(op.getWeight(), 2), f.write(op.getY()));
}

template <typename Real>
static absl::Status evaluate(CausalConvBwdOp op, Frame<Real> &f) {
  return reference::causalConvBwd<Real>(
      f.read(op.getDy()), f.read(op.getX()), f.read(op.getWeight()),
      tableOf(op.getSeq()), f.readInts(op.getSeq()), dimOf(op.getWeight(), 0),
      dimOf(op.getWeight(), 2), f.write(op.getDx()),
      f.write(op.getDweight()));
}

template <typename Real>
static absl::Status evaluate(GdnGatesOp op, Frame<Real> &f) {
  return reference::gdnGates<Real>(
      f.read(op.getA()), f.read(op.getB()), f.read(op.getALog()),
      f.read(op.getDtBias()), dimOf(op.getA(), 0), dimOf(op.getA(), 1),
      f.write(op.getG()), f.write(op.getBeta()));
}

template <typename Real>
static absl::Status evaluate(GdnGatesBwdOp op, Frame<Real> &f) {
  return reference::gdnGatesBwd<Real>(
      f.read(op.getDg()), f.read(op.getDbeta()), f.read(op.getA()),
      f.read(op.getB()), f.read(op.getALog()), f.read(op.getDtBias()),
      dimOf(op.getA(), 0), dimOf(op.getA(), 1), f.write(op.getDa()),
      f.write(op.getDb()), f.write(op.getDaLog()), f.write(op.getDdtBias()));
}

static reference::DeltaDims dimsOf(Value k, Value v) {
  return {dimOf(k, 1), dimOf(v, 1), dimOf(k, 2), dimOf(v, 2)};
}

template <typename Real>
static absl::Status evaluate(GatedDeltaRuleOp op, Frame<Real> &f) {
  return reference::gatedDeltaRule<Real>(
      f.read(op.getQ()), f.read(op.getK()), f.read(op.getV()),
      f.read(op.getG()), f.read(op.getBeta()), tableOf(op.getSeq()),
      f.readInts(op.getSeq()), dimsOf(op.getK(), op.getV()),
      op.getScale().convertToDouble(), op.getEps().convertToDouble(),
      f.write(op.getO()));
}

template <typename Real>
static absl::Status evaluate(GatedDeltaRuleBwdOp op, Frame<Real> &f) {
  return reference::gatedDeltaRuleBwd<Real>(
      f.read(op.getDO()), f.read(op.getQ()), f.read(op.getK()),
      f.read(op.getV()), f.read(op.getG()), f.read(op.getBeta()),
      tableOf(op.getSeq()), f.readInts(op.getSeq()),
      dimsOf(op.getK(), op.getV()), op.getScale().convertToDouble(),
      op.getEps().convertToDouble(), f.write(op.getDq()), f.write(op.getDk()),
      f.write(op.getDv()), f.write(op.getDg()), f.write(op.getDbeta()));
}

void addDeltaOps(EvaluatorTable &table) {
  table.add<CausalConvOp, CausalConvBwdOp, GdnGatesOp, GdnGatesBwdOp,
            GatedDeltaRuleOp, GatedDeltaRuleBwdOp>();
}

} // namespace qwen35::interpreter
