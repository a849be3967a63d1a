#include "dialect/QPlan/IR/QPlanDialect.h"

using namespace mlir;

#include "dialect/QPlan/IR/QPlanDialect.cpp.inc"

/// `(type, type)`: the argument types of a kernel.
static ParseResult parseTypeList(OpAsmParser &parser, ArrayAttr &types) {
  SmallVector<Attribute> list;
  if (parser.parseCommaSeparatedList(OpAsmParser::Delimiter::Paren, [&] {
        Type type;
        if (parser.parseType(type))
          return failure();
        list.push_back(TypeAttr::get(type));
        return success();
      }))
    return failure();
  types = parser.getBuilder().getArrayAttr(list);
  return success();
}

static void printTypeList(OpAsmPrinter &printer, Operation *,
                          ArrayAttr types) {
  printer << "(";
  llvm::interleaveComma(types.getAsValueRange<TypeAttr>(), printer);
  printer << ")";
}

#define GET_OP_CLASSES
#include "dialect/QPlan/IR/QPlanOps.cpp.inc"

namespace qwen35::qplan {

void QPlanDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "dialect/QPlan/IR/QPlanOps.cpp.inc"
      >();
}

int64_t bytesOf(ShapedType type) {
  return type.getNumElements() * (type.getElementTypeBitWidth() / 8);
}

LogicalResult ArenaOp::verify() {
  int64_t bytes = getBytes(), align = getAlign(); // the getters are unsigned
  if (bytes < 0)
    return emitOpError("bytes must not be negative, got ") << bytes;
  if (align <= 0 || (align & (align - 1)) != 0)
    return emitOpError("align must be a power of two, got ") << align;
  return success();
}

int64_t BufferOp::bytes() { return bytesOf(cast<ShapedType>(getType())); }

LogicalResult LaunchOp::verify() {
  size_t count = getBuffers().size();
  if (getOffsets().size() != count || getBytes().size() != count ||
      getWrites().size() != count) // C1
    return emitOpError("has ")
           << count << " buffers, " << getOffsets().size() << " offsets, "
           << getBytes().size() << " byte counts and " << getWrites().size()
           << " write flags, expected as many of each";
  int64_t grid = getGrid();
  if (grid <= 0) // C2
    return emitOpError("grid must be positive, got ") << grid;
  return success();
}

int64_t CollectiveOp::sendPieces() {
  bool cut = getKind() == "reduce_scatter" || getKind() == "all_to_all" ||
             getKind() == "all_slice";
  return cut ? getRanks() : 1;
}

int64_t CollectiveOp::receivePieces() {
  bool joined = getKind() == "all_gather" || getKind() == "all_to_all";
  return joined ? getRanks() : 1;
}

int64_t CollectiveOp::elementBytes() {
  return getDtype().getIntOrFloatBitWidth() / 8;
}

int64_t CollectiveOp::pieceBytes() {
  int64_t elements = 0;
  for (int64_t count : getCounts())
    elements += count;
  return elements * elementBytes();
}

LogicalResult CollectiveOp::verify() {
  size_t parts = getCounts().size();
  if (getBuffers().size() != 2 * parts || getOffsets().size() != 2 * parts ||
      getSendOuter().size() != parts || getReceiveOuter().size() != parts ||
      parts == 0) // C1
    return emitOpError("has ")
           << getBuffers().size() << " buffers, " << getOffsets().size()
           << " offsets, " << getSendOuter().size() << " and "
           << getReceiveOuter().size() << " outer sizes for " << parts
           << " counts, expected two buffers and offsets for each of one or "
              "more";
  int64_t ranks = getRanks();
  if (ranks < 2) // C2
    return emitOpError("runs over ") << ranks << " ranks, expected 2 or more";
  bool staged = static_cast<int64_t>(getSendStage()) >= 0 ||
                static_cast<int64_t>(getReceiveStage()) >= 0;
  if (staged != getStage().has_value())
    return emitOpError("has ") << (staged ? "no buffer" : "a buffer")
                               << " for what goes through a stage";
  return success();
}

} // namespace qwen35::qplan
