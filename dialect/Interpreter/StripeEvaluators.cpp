#include "dialect/Interpreter/Evaluators.h"
#include "dialect/QKern/IR/QKernDialect.h"
#include "dialect/Qwen35/Reference/Stripes.h"

using namespace mlir;
using namespace qwen35::qkern;

namespace qwen35::interpreter {

template <typename Real>
static reference::StripeView stripesOf(Value stripes, Frame<Real> &f) {
  return {StripeTable::ranksOf(sizeOf(stripes)), f.readInts(stripes)};
}

template <typename Real>
static absl::Status evaluate(CpRopeTableOp op, Frame<Real> &f) {
  return reference::cpRopeTable<Real>(
      tableOf(op.getSeq()), f.readInts(op.getSeq()),
      stripesOf(op.getStripes(), f), op.getTheta().convertToDouble(),
      op.getRotaryDim(), f.write(op.getTable()));
}

static reference::AttentionDims attentionOf(Value q, Value k) {
  return {dimOf(q, 1), dimOf(k, 1), dimOf(q, 2)};
}

template <typename Real>
static absl::Status evaluate(CpAttentionOp op, Frame<Real> &f) {
  return reference::cpAttention<Real>(
      f.read(op.getQ()), f.read(op.getK()), f.read(op.getV()),
      tableOf(op.getSeq()), f.readInts(op.getSeq()),
      stripesOf(op.getStripes(), f), attentionOf(op.getQ(), op.getK()),
      op.getScale().convertToDouble(), f.write(op.getO()),
      f.write(op.getLse()));
}

template <typename Real>
static absl::Status evaluate(CpAttentionBwdOp op, Frame<Real> &f) {
  return reference::cpAttentionBwd<Real>(
      f.read(op.getDO()), f.read(op.getQ()), f.read(op.getK()),
      f.read(op.getV()), f.read(op.getO()), f.read(op.getLse()),
      tableOf(op.getSeq()), f.readInts(op.getSeq()),
      stripesOf(op.getStripes(), f), attentionOf(op.getQ(), op.getK()),
      op.getScale().convertToDouble(), f.write(op.getDq()), f.write(op.getDk()),
      f.write(op.getDv()));
}

template <typename Real>
static absl::Status evaluate(StripeTailsOp op, Frame<Real> &f) {
  return reference::stripeTails<Real>(f.read(op.getX()), dimOf(op.getX(), 0),
                                      dimOf(op.getX(), 1), op.getTaps(),
                                      f.write(op.getTails()));
}

template <typename Real>
static absl::Status evaluate(CpCausalConvOp op, Frame<Real> &f) {
  return reference::cpCausalConv<Real>(
      f.read(op.getX()), f.read(op.getTails()), f.read(op.getWeight()),
      tableOf(op.getSeq()), f.readInts(op.getSeq()),
      stripesOf(op.getStripes(), f), dimOf(op.getWeight(), 0),
      dimOf(op.getWeight(), 2), f.write(op.getY()));
}

template <typename Real>
static absl::Status evaluate(CpCausalConvBwdOp op, Frame<Real> &f) {
  return reference::cpCausalConvBwd<Real>(
      f.read(op.getDy()), f.read(op.getX()), f.read(op.getTails()),
      f.read(op.getWeight()), tableOf(op.getSeq()), f.readInts(op.getSeq()),
      stripesOf(op.getStripes(), f), dimOf(op.getWeight(), 0),
      dimOf(op.getWeight(), 2), f.write(op.getDx()), f.write(op.getDhalo()),
      f.write(op.getDweight()));
}

template <typename Real>
static absl::Status evaluate(AddToTailsOp op, Frame<Real> &f) {
  return reference::addToTails<Real>(
      f.read(op.getX()), f.read(op.getHalo()), stripesOf(op.getStripes(), f),
      dimOf(op.getX(), 1), dimOf(op.getHalo(), 1) + 1, f.write(op.getY()));
}

/// From keys `[T,Hk,dk]` and values `[T,Hv,dv]`.
static reference::DeltaDims dimsOf(Value keys, Value values) {
  return {dimOf(keys, 1), dimOf(values, 1), dimOf(keys, 2), dimOf(values, 2)};
}

template <typename Real>
static absl::Status evaluate(GdnAffineOp op, Frame<Real> &f) {
  return reference::gdnAffine<Real>(
      f.read(op.getK()), f.read(op.getV()), f.read(op.getG()),
      f.read(op.getBeta()), tableOf(op.getSeq()), f.readInts(op.getSeq()),
      stripesOf(op.getStripes(), f), dimsOf(op.getK(), op.getV()),
      op.getEps().convertToDouble(), f.write(op.getM()), f.write(op.getB()));
}

template <typename Real>
static absl::Status evaluate(AffineScanOp op, Frame<Real> &f) {
  return reference::affineScan<Real>(
      f.read(op.getM()), f.read(op.getB()), stripesOf(op.getStripes(), f),
      dimOf(op.getB(), 1), dimOf(op.getB(), 2), dimOf(op.getB(), 3),
      f.write(op.getStates()));
}

template <typename Real>
static absl::Status evaluate(AffineScanBwdOp op, Frame<Real> &f) {
  return reference::affineScanBwd<Real>(
      f.read(op.getM()), f.read(op.getC()), stripesOf(op.getStripes(), f),
      dimOf(op.getC(), 1), dimOf(op.getC(), 2), dimOf(op.getC(), 3),
      f.write(op.getGradients()));
}

template <typename Real>
static absl::Status evaluate(CpGatedDeltaRuleOp op, Frame<Real> &f) {
  return reference::cpGatedDeltaRule<Real>(
      f.read(op.getQ()), f.read(op.getK()), f.read(op.getV()),
      f.read(op.getG()), f.read(op.getBeta()), f.read(op.getStates()),
      tableOf(op.getSeq()), f.readInts(op.getSeq()),
      stripesOf(op.getStripes(), f), dimsOf(op.getK(), op.getV()),
      op.getScale().convertToDouble(), op.getEps().convertToDouble(),
      f.write(op.getO()));
}

template <typename Real>
static absl::Status evaluate(GdnStateGradOp op, Frame<Real> &f) {
  return reference::gdnStateGrad<Real>(
      f.read(op.getDO()), f.read(op.getQ()), f.read(op.getK()),
      f.read(op.getG()), f.read(op.getBeta()), tableOf(op.getSeq()),
      f.readInts(op.getSeq()), stripesOf(op.getStripes(), f),
      dimsOf(op.getK(), op.getDO()), op.getScale().convertToDouble(),
      op.getEps().convertToDouble(), f.write(op.getC()));
}

template <typename Real>
static absl::Status evaluate(CpGatedDeltaRuleBwdOp op, Frame<Real> &f) {
  return reference::cpGatedDeltaRuleBwd<Real>(
      f.read(op.getDO()), f.read(op.getQ()), f.read(op.getK()),
      f.read(op.getV()), f.read(op.getG()), f.read(op.getBeta()),
      f.read(op.getStates()), f.read(op.getGradients()), tableOf(op.getSeq()),
      f.readInts(op.getSeq()), stripesOf(op.getStripes(), f),
      dimsOf(op.getK(), op.getV()), op.getScale().convertToDouble(),
      op.getEps().convertToDouble(), f.write(op.getDq()), f.write(op.getDk()),
      f.write(op.getDv()), f.write(op.getDg()), f.write(op.getDbeta()));
}

template <typename Real>
static absl::Status evaluate(CpGdnAffineOp op, Frame<Real> &f) {
  return reference::cpGdnAffine<Real>(
      f.read(op.getKn()), f.read(op.getV()), f.read(op.getBeta()),
      f.read(op.getGamma()), f.read(op.getTinv()), tableOf(op.getSeq()),
      f.readInts(op.getSeq()), stripesOf(op.getStripes(), f),
      dimsOf(op.getKn(), op.getV()), f.write(op.getM()), f.write(op.getB()));
}

template <typename Real>
static absl::Status evaluate(CpGdnScanOp op, Frame<Real> &f) {
  return reference::cpGdnScan<Real>(
      f.read(op.getKn()), f.read(op.getV()), f.read(op.getBeta()),
      f.read(op.getGamma()), f.read(op.getTinv()), f.read(op.getBefore()),
      tableOf(op.getSeq()), f.readInts(op.getSeq()),
      stripesOf(op.getStripes(), f), dimsOf(op.getKn(), op.getV()),
      f.write(op.getStates()), f.write(op.getVnew()));
}

template <typename Real>
static absl::Status evaluate(CpGdnScanBwdOp op, Frame<Real> &f) {
  return reference::cpGdnScanBwd<Real>(
      f.read(op.getQn()), f.read(op.getKn()), f.read(op.getDO()),
      f.read(op.getBeta()), f.read(op.getGamma()), f.read(op.getTinv()),
      f.read(op.getAfter()), tableOf(op.getSeq()), f.readInts(op.getSeq()),
      stripesOf(op.getStripes(), f), dimsOf(op.getKn(), op.getDO()),
      op.getScale().convertToDouble(), f.write(op.getDstates()),
      f.write(op.getZ()));
}

template <typename Real>
static absl::Status evaluate(CpGdnStateGradOp op, Frame<Real> &f) {
  return reference::cpGdnStateGrad<Real>(
      f.read(op.getQn()), f.read(op.getKn()), f.read(op.getDO()),
      f.read(op.getBeta()), f.read(op.getGamma()), f.read(op.getTinv()),
      tableOf(op.getSeq()), f.readInts(op.getSeq()),
      stripesOf(op.getStripes(), f), dimsOf(op.getKn(), op.getDO()),
      op.getScale().convertToDouble(), f.write(op.getC()));
}

void addStripeOps(EvaluatorTable &table) {
  table.add<CpRopeTableOp, CpAttentionOp, CpAttentionBwdOp, StripeTailsOp,
            CpCausalConvOp, CpCausalConvBwdOp, AddToTailsOp, GdnAffineOp,
            AffineScanOp, AffineScanBwdOp, CpGatedDeltaRuleOp, GdnStateGradOp,
            CpGatedDeltaRuleBwdOp, CpGdnAffineOp, CpGdnScanOp, CpGdnScanBwdOp,
            CpGdnStateGradOp>();
}

} // namespace qwen35::interpreter
