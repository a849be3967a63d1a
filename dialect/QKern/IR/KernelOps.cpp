#include "dialect/QKern/IR/QKernDialect.h"

using namespace mlir;

#define GET_OP_CLASSES
#include "dialect/QKern/IR/KernelOps.cpp.inc"

namespace qwen35::qkern {

LogicalResult GroupOp::verify() {
  auto yield = dyn_cast<YieldOp>(getBody().front().getTerminator());
  if (!yield)
    return emitOpError("ends with ")
           << getBody().front().getTerminator()->getName()
           << ", expected qkern.yield";
  if (yield.getValues().getTypes() != getResultTypes())
    return emitOpError("yields ") << yield.getValues().getTypes()
                                  << " but its results are "
                                  << getResultTypes();
  return success();
}

LogicalResult ViewOp::verify() {
  auto type = cast<RankedTensorType>(getResult().getType());
  if (static_cast<int64_t>(getStrides().size()) != type.getRank()) // C1
    return emitOpError("has ") << getStrides().size() << " strides for "
                               << type.getRank() << " dimensions";
  if (type.getElementType() !=
      cast<RankedTensorType>(getSource().getType()).getElementType())
    return emitOpError("changes the element type of ")
           << getSource().getType() << " to " << type;
  return success();
}

LogicalResult DispatchOp::verify() {
  if (getAliases().size() != getNumResults()) // C1
    return emitOpError("has ") << getAliases().size() << " aliases for "
                               << getNumResults() << " results";
  for (auto [result, alias] : llvm::zip_equal(getResults(), getAliases())) {
    if (alias == -1)
      continue;
    if (alias < 0 || alias >= static_cast<int64_t>(getInputs().size()))
      return emitOpError("alias must be -1 or one of ")
             << getInputs().size() << " operands, got " << alias;
    if (getInputs()[alias].getType() != result.getType())
      return emitOpError("a result of type ")
             << result.getType() << " cannot overwrite an operand of type "
             << getInputs()[alias].getType();
  }
  for (int64_t grid : getGrids())
    if (grid <= 0) // C2
      return emitOpError("grid must be positive, got ") << grid;
  int64_t workspace = getWorkspace(); // the accessor is unsigned
  if (workspace < 0) // C3
    return emitOpError("workspace must not be negative, got ") << workspace;
  return success();
}

} // namespace qwen35::qkern
