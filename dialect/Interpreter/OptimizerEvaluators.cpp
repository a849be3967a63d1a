#include "dialect/Interpreter/Evaluators.h"
#include "dialect/Qwen35/Reference/Optimizer.h"

#include <algorithm>

namespace qwen35::interpreter {

template <typename Real>
static absl::Status evaluate(NormSqOp op, Frame<Real> &f) {
  return reference::normSq<Real>(f.read(op.getX()), f.readF64(op.getAcc()),
                                 f.writeF64(op.getResult()));
}

template <typename Real>
static absl::Status evaluate(ClipFactorOp op, Frame<Real> &f) {
  return reference::clipFactor<Real>(
      f.readF64(op.getNormSq()), op.getMaxNorm().convertToDouble(),
      f.write(op.getNorm()), f.write(op.getFactor()), f.write(op.getCommit()));
}

template <typename Real>
static absl::Status evaluate(AdamWOp op, Frame<Real> &f) {
  reference::AdamwOptions options{
      op.getBeta1().convertToDouble(), op.getBeta2().convertToDouble(),
      op.getEps().convertToDouble(), op.getWeightDecay().convertToDouble()};
  absl::Status status = reference::adamw<Real>(
      f.read(op.getP()), f.read(op.getM()), f.read(op.getV()),
      f.read(op.getGrad()), f.read(op.getLr()), f.read(op.getFactor()),
      f.read(op.getBc1()), f.read(op.getBc2()), f.read(op.getCommit()),
      options, f.write(op.getPNew()), f.write(op.getMNew()),
      f.write(op.getVNew()));
  if (!op.getWork() || !status.ok())
    return status;
  absl::Span<const Real> updated = f.read(op.getPNew());
  std::copy(updated.begin(), updated.end(), f.write(op.getWork()).begin());
  return status;
}

void addOptimizerOps(EvaluatorTable &table) {
  table.add<NormSqOp, ClipFactorOp, AdamWOp>();
}

} // namespace qwen35::interpreter
