#include "dialect/Interpreter/Evaluators.h"
#include "dialect/Qwen35/Reference/Attention.h"

using namespace mlir;

namespace qwen35::interpreter {

template <typename Real>
static absl::Status evaluate(RopeTableOp op, Frame<Real> &f) {
  return reference::ropeTable<Real>(
      tableOf(op.getSeq()), f.readInts(op.getSeq()),
      op.getTheta().convertToDouble(), op.getRotaryDim(),
      f.write(op.getTable()));
}

template <typename Real>
static absl::Status evaluate(RopeOp op, Frame<Real> &f) {
  Value x = op.getX();
  return reference::rope<Real>(f.read(x), f.read(op.getTable()), dimOf(x, 0),
                               dimOf(x, 1), dimOf(x, 2),
                               2 * dimOf(op.getTable(), 1), op.getInverse(),
                               f.write(op.getY()));
}

static reference::AttentionDims dimsOf(Value q, Value k) {
  return {dimOf(q, 1), dimOf(k, 1), dimOf(q, 2)};
}

template <typename Real>
static absl::Status evaluate(AttentionOp op, Frame<Real> &f) {
  return reference::attention<Real>(
      f.read(op.getQ()), f.read(op.getK()), f.read(op.getV()),
      tableOf(op.getSeq()), f.readInts(op.getSeq()),
      dimsOf(op.getQ(), op.getK()), op.getScale().convertToDouble(),
      f.write(op.getO()), f.write(op.getLse()));
}

template <typename Real>
static absl::Status evaluate(AttentionBwdOp op, Frame<Real> &f) {
  return reference::attentionBwd<Real>(
      f.read(op.getDO()), f.read(op.getQ()), f.read(op.getK()),
      f.read(op.getV()), f.read(op.getO()), f.read(op.getLse()),
      tableOf(op.getSeq()), f.readInts(op.getSeq()),
      dimsOf(op.getQ(), op.getK()), op.getScale().convertToDouble(),
      f.write(op.getDq()), f.write(op.getDk()), f.write(op.getDv()));
}

/// Rows, columns and columns of the gate: one row if the gate has x's shape.
struct GateDims {
  int64_t rows, columns, gateColumns;
};

static GateDims gateDimsOf(Value x, Value gate) {
  if (x.getType() == gate.getType())
    return {1, sizeOf(x), sizeOf(x)};
  return {dimOf(x, 0), dimOf(x, 1), 1};
}

template <typename Real>
static absl::Status evaluate(MulSigmoidOp op, Frame<Real> &f) {
  GateDims dims = gateDimsOf(op.getX(), op.getGate());
  return reference::mulSigmoid<Real>(f.read(op.getX()), f.read(op.getGate()),
                                     dims.rows, dims.columns, dims.gateColumns,
                                     f.write(op.getY()));
}

template <typename Real>
static absl::Status evaluate(MulSigmoidBwdOp op, Frame<Real> &f) {
  GateDims dims = gateDimsOf(op.getX(), op.getGate());
  return reference::mulSigmoidBwd<Real>(
      f.read(op.getDy()), f.read(op.getX()), f.read(op.getGate()), dims.rows,
      dims.columns, dims.gateColumns, f.write(op.getDx()),
      f.write(op.getDgate()));
}

void addAttentionOps(EvaluatorTable &table) {
  table.add<RopeTableOp, RopeOp, AttentionOp, AttentionBwdOp, MulSigmoidOp,
            MulSigmoidBwdOp>();
}

} // namespace qwen35::interpreter
