#include "dialect/Interpreter/Evaluators.h"
#include "dialect/QKern/IR/QKernDialect.h"
#include "dialect/Qwen35/Reference/DeltaChunk.h"

using namespace mlir;
using namespace qwen35::qkern;

namespace qwen35::interpreter {

/// From keys `[T,Hk,dk]` and a tensor that has the value heads in dimension 1
/// and the value columns last.
static reference::DeltaDims dimsOf(Value keys, Value values) {
  return {dimOf(keys, 1), dimOf(values, 1), dimOf(keys, 2), columnsOf(values)};
}

template <typename Real>
static absl::Status evaluate(GdnPrepOp op, Frame<Real> &f) {
  // No values yet: their columns enter no shape.
  reference::DeltaDims dims{dimOf(op.getK(), 1), dimOf(op.getG(), 1),
                            dimOf(op.getK(), 2), dimOf(op.getK(), 2)};
  return reference::gdnPrep<Real>(
      f.read(op.getQ()), f.read(op.getK()), f.read(op.getG()),
      f.read(op.getBeta()), tableOf(op.getSeq()), f.readInts(op.getSeq()),
      dims, op.getEps().convertToDouble(), f.write(op.getQn()),
      f.write(op.getKn()), f.write(op.getQr()), f.write(op.getKr()),
      f.write(op.getGamma()), f.write(op.getTinv()));
}

template <typename Real>
static absl::Status evaluate(GdnScanOp op, Frame<Real> &f) {
  return reference::gdnScan<Real>(
      f.read(op.getKn()), f.read(op.getV()), f.read(op.getBeta()),
      f.read(op.getGamma()), f.read(op.getTinv()), tableOf(op.getSeq()),
      f.readInts(op.getSeq()), dimsOf(op.getKn(), op.getV()),
      f.write(op.getStates()), f.write(op.getVnew()));
}

template <typename Real>
static absl::Status evaluate(GdnOutOp op, Frame<Real> &f) {
  return reference::gdnOut<Real>(
      f.read(op.getQn()), f.read(op.getKn()), f.read(op.getGamma()),
      f.read(op.getStates()), f.read(op.getVnew()), tableOf(op.getSeq()),
      f.readInts(op.getSeq()), dimsOf(op.getKn(), op.getVnew()),
      op.getScale().convertToDouble(), f.write(op.getO()));
}

template <typename Real>
static absl::Status evaluate(GdnScanBwdOp op, Frame<Real> &f) {
  return reference::gdnScanBwd<Real>(
      f.read(op.getQn()), f.read(op.getKn()), f.read(op.getDO()),
      f.read(op.getBeta()), f.read(op.getGamma()), f.read(op.getTinv()),
      tableOf(op.getSeq()), f.readInts(op.getSeq()),
      dimsOf(op.getKn(), op.getDO()), op.getScale().convertToDouble(),
      f.write(op.getDstates()), f.write(op.getZ()));
}

template <typename Real>
static absl::Status evaluate(GdnLocalBwdOp op, Frame<Real> &f) {
  return reference::gdnLocalBwd<Real>(
      f.read(op.getQn()), f.read(op.getKn()), f.read(op.getQr()),
      f.read(op.getKr()), f.read(op.getV()), f.read(op.getDO()),
      f.read(op.getBeta()), f.read(op.getGamma()), f.read(op.getStates()),
      f.read(op.getDstates()), f.read(op.getVnew()), f.read(op.getZ()),
      tableOf(op.getSeq()), f.readInts(op.getSeq()),
      dimsOf(op.getKn(), op.getV()), op.getScale().convertToDouble(),
      f.write(op.getDq()), f.write(op.getDk()), f.write(op.getDv()),
      f.write(op.getDg()), f.write(op.getDbeta()));
}

void addGdnOps(EvaluatorTable &table) {
  table.add<GdnPrepOp, GdnScanOp, GdnOutOp, GdnScanBwdOp, GdnLocalBwdOp>();
}

} // namespace qwen35::interpreter
