#include "dialect/Interpreter/Evaluators.h"
#include "dialect/Qwen35/Reference/Norm.h"

namespace qwen35::interpreter {

template <typename Real>
static absl::Status evaluate(RmsNormOp op, Frame<Real> &f) {
  return reference::rmsNorm<Real>(
      f.read(op.getX()), f.read(op.getWeight()), rowsOf(op.getX()),
      columnsOf(op.getX()), op.getEps().convertToDouble(),
      op.getOffset().convertToDouble(), f.write(op.getY()),
      f.write(op.getRstd()));
}

template <typename Real>
static absl::Status evaluate(RmsNormBwdOp op, Frame<Real> &f) {
  return reference::rmsNormBwd<Real>(
      f.read(op.getDy()), f.read(op.getX()), f.read(op.getWeight()),
      f.read(op.getRstd()), rowsOf(op.getX()), columnsOf(op.getX()),
      op.getOffset().convertToDouble(), f.write(op.getDx()),
      f.write(op.getDweight()));
}

template <typename Real>
static absl::Status evaluate(GatedRmsNormOp op, Frame<Real> &f) {
  return reference::gatedRmsNorm<Real>(
      f.read(op.getO()), f.read(op.getZ()), f.read(op.getWeight()),
      rowsOf(op.getO()), columnsOf(op.getO()), op.getEps().convertToDouble(),
      f.write(op.getY()), f.write(op.getRstd()));
}

template <typename Real>
static absl::Status evaluate(GatedRmsNormBwdOp op, Frame<Real> &f) {
  return reference::gatedRmsNormBwd<Real>(
      f.read(op.getDy()), f.read(op.getO()), f.read(op.getZ()),
      f.read(op.getWeight()), f.read(op.getRstd()), rowsOf(op.getO()),
      columnsOf(op.getO()), f.write(op.getDO()), f.write(op.getDz()),
      f.write(op.getDweight()));
}

void addNormOps(EvaluatorTable &table) {
  table.add<RmsNormOp, RmsNormBwdOp, GatedRmsNormOp, GatedRmsNormBwdOp>();
}

} // namespace qwen35::interpreter
