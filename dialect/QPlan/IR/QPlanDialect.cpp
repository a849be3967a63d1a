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

} // namespace qwen35::qplan
