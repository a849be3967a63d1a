#include "dialect/Qwen35/IR/Infer.h"

using namespace mlir;

#define GET_OP_CLASSES
#include "dialect/Qwen35/IR/OptimizerOps.cpp.inc"

namespace qwen35 {

using Types = SmallVectorImpl<Type>;
using Where = std::optional<Location>;

LogicalResult NormSqOp::inferReturnTypes(MLIRContext *, Where loc, Adaptor a,
                                         Types &out) {
  if (failed(Check<NormSqOp>{loc}.unrounded(a.getX(), "x"))) // C1
    return failure();
  out.push_back(a.getAcc().getType());
  return success();
}

LogicalResult ClipFactorOp::inferReturnTypes(MLIRContext *context, Where loc,
                                             Adaptor a, Types &out) {
  double maxNorm = a.getMaxNorm().convertToDouble();
  if (!(maxNorm >= 0)) // C1
    return Check<ClipFactorOp>{loc}.fail("max_norm must not be negative, got ",
                                         maxNorm);
  out.append(3, tensorOf({}, Float32Type::get(context)));
  return success();
}

LogicalResult AdamWOp::inferReturnTypes(MLIRContext *, Where loc, Adaptor a,
                                        Types &out) {
  Check<AdamWOp> check{loc};
  auto shape = tensorOf(a.getP()).getShape();
  if (failed(check.shape(a.getM(), "m", shape)) || // C1
      failed(check.shape(a.getV(), "v", shape)) ||
      failed(check.shape(a.getGrad(), "grad", shape)))
    return failure();
  for (auto [value, name] :
       {std::pair<Value, StringRef>{a.getP(), "p"}, {a.getM(), "m"},
        {a.getV(), "v"}, {a.getGrad(), "grad"}, // C2
        {a.getLr(), "lr"}, {a.getFactor(), "factor"}, {a.getBc1(), "bc1"},
        {a.getBc2(), "bc2"}, {a.getCommit(), "commit"}}) // C3
    if (failed(check.unrounded(value, name)))
      return failure();
  out.append({a.getP().getType(), a.getM().getType(), a.getV().getType()});
  if (TypeAttr work = a.getWorkTypeAttr()) {
    if (!work.getValue().isBF16()) // C4
      return check.fail("work_type is ", work.getValue(), ", expected 'bf16'");
    out.push_back(tensorOf(shape, work.getValue()));
  }
  return success();
}

} // namespace qwen35
