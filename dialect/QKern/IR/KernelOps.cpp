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

LogicalResult JoinOp::verify() {
  size_t count = getParts().size();
  if (getOffsets().size() != count || getStrides().size() != count) // C1
    return emitOpError("has ")
           << count << " parts, " << getOffsets().size() << " offsets and "
           << getStrides().size() << " arrays of strides";
  auto whole = cast<RankedTensorType>(getResult().getType());
  for (auto [i, part] : llvm::enumerate(getParts())) {
    auto type = cast<RankedTensorType>(part.getType());
    ArrayRef<int64_t> strides = stridesOf(i);
    if (static_cast<int64_t>(strides.size()) != type.getRank()) // C1
      return emitOpError("part ") << i << " has " << strides.size()
                                  << " strides for " << type.getRank()
                                  << " dimensions";
    int64_t last = getOffsets()[i];
    for (auto [size, stride] : llvm::zip_equal(type.getShape(), strides))
      last += (size - 1) * stride;
    if (type.getElementType() != whole.getElementType() ||
        getOffsets()[i] < 0 || last >= whole.getNumElements()) // C2
      return emitOpError("part ") << i << " of type " << type
                                  << " does not lie in " << whole;
    auto call = part.getDefiningOp<DispatchOp>();
    if (!call || !part.hasOneUse() || // C3
        call.getAliases()[cast<OpResult>(part).getResultNumber()] != -1)
      return emitOpError("part ")
             << i << " is not a fresh result of a kernel for the join alone";
  }
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
