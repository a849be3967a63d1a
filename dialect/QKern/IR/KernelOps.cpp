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

namespace {

bool isCut(StringRef kind) {
  return kind == "reduce_scatter" || kind == "all_to_all" ||
         kind == "all_slice";
}

bool isJoined(StringRef kind) {
  return kind == "all_gather" || kind == "all_to_all";
}

} // namespace

int64_t CollectiveOp::sendPieces() { return isCut(getKind()) ? getRanks() : 1; }

int64_t CollectiveOp::receivePieces() {
  return isJoined(getKind()) ? getRanks() : 1;
}

bool CollectiveOp::isSendStaged() {
  return getKind() != "all_slice" &&
         (getInputs().size() > 1 || getSendOuter()[0] > 1);
}

bool CollectiveOp::isReceiveStaged() {
  return getKind() != "all_slice" &&
         (getInputs().size() > 1 || getReceiveOuter()[0] > 1);
}

/// Bytes of one piece of every part.
static int64_t pieceBytes(CollectiveOp op) {
  int64_t elements = 0;
  for (int64_t count : op.getCounts())
    elements += count;
  return elements * (op.getElementType().getIntOrFloatBitWidth() / 8);
}

int64_t CollectiveOp::receiveStage() {
  constexpr int64_t kAlign = 256;
  if (getKind() == "all_reduce" || !isSendStaged())
    return 0;
  return llvm::alignTo(sendPieces() * pieceBytes(*this), kAlign);
}

int64_t CollectiveOp::stageBytes() {
  if (isReceiveStaged())
    return receiveStage() + receivePieces() * pieceBytes(*this);
  return isSendStaged() ? sendPieces() * pieceBytes(*this) : 0;
}

CollectiveOp WaitOp::getStarted() {
  return getInputs().empty() ? CollectiveOp()
                             : getInputs()[0].getDefiningOp<CollectiveOp>();
}

LogicalResult WaitOp::verify() {
  CollectiveOp started = getStarted();
  if (!started || !started.getAsync() ||
      !llvm::equal(started.getResults(), getInputs())) // C1
    return emitOpError("takes ")
           << getInputs().size() << " values, expected all results of one "
           << "collective with 'async', in order";
  if (getInputs().getTypes() != getOutputs().getTypes()) // C2
    return emitOpError("gives ") << getOutputs().getTypes() << " for "
                                 << getInputs().getTypes();
  return success();
}

LogicalResult CollectiveOp::verify() {
  constexpr StringLiteral kinds[] = {"all_gather", "all_reduce",
                                     "reduce_scatter", "all_to_all",
                                     "all_slice", "shift"};
  if (!llvm::is_contained(kinds, getKind())) // C1
    return emitOpError("kind is \"") << getKind()
                                     << "\", expected a collective of qdist";
  int64_t ranks = getRanks(), parts = getInputs().size();
  if (ranks < 2) // C1
    return emitOpError("runs over ") << ranks << " ranks, expected 2 or more";
  if (parts == 0)
    return emitOpError("has no inputs");
  for (auto [name, size] :
       {std::pair("outputs", int64_t(getOutputs().size())),
        std::pair("counts", int64_t(getCounts().size())),
        std::pair("sendOuter", int64_t(getSendOuter().size())),
        std::pair("receiveOuter", int64_t(getReceiveOuter().size())),
        std::pair("aliases", int64_t(getAliases().size()))})
    if (size != parts) // C2
      return emitOpError("has ") << parts << " inputs and " << size << " in "
                                 << name;
  for (auto [i, input, output, count, sendOuter, receiveOuter, alias] :
       llvm::enumerate(getInputs(), getOutputs(), getCounts(), getSendOuter(),
                       getReceiveOuter(), getAliases())) {
    auto from = cast<RankedTensorType>(input.getType());
    auto to = cast<RankedTensorType>(output.getType());
    if (from.getElementType() != getElementType() ||
        to.getElementType() != getElementType()) // C2
      return emitOpError("part ") << i << " goes from " << from << " to " << to
                                  << ", expected elements of "
                                  << getElementType();
    if (from.getNumElements() != count * sendPieces() ||
        to.getNumElements() != count * receivePieces()) // C3
      return emitOpError("part ")
             << i << " goes from " << from << " to " << to << " with "
             << count << " elements per piece over " << ranks << " ranks";
    bool cuts = sendOuter >= 1 && (sendOuter == 1 || sendPieces() > 1) &&
                count % sendOuter == 0;
    bool joins = receiveOuter >= 1 &&
                 (receiveOuter == 1 || receivePieces() > 1) &&
                 count % receiveOuter == 0;
    if (!cuts || !joins) // C3
      return emitOpError("part ")
             << i << " has pieces of " << count << " elements in " << sendOuter
             << " and " << receiveOuter << " rows, which " << getKind()
             << " has not";
    if (alias != -1 && (getKind() != "all_reduce" ||
                        alias != static_cast<int64_t>(i))) // C4
      return emitOpError("result ")
             << i << " overwrites operand " << alias
             << ", expected -1, or its own in an all_reduce";
  }
  if (static_cast<int64_t>(getWorkspace()) != stageBytes())
    return emitOpError("has a workspace of ")
           << getWorkspace() << " bytes, expected " << stageBytes();
  return success();
}

} // namespace qwen35::qkern
