#ifndef QWEN35_DIALECT_QPLAN_IR_QPLANDIALECT_H
#define QWEN35_DIALECT_QPLAN_IR_QPLANDIALECT_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"

#include "dialect/QPlan/IR/QPlanDialect.h.inc"

#define GET_OP_CLASSES
#include "dialect/QPlan/IR/QPlanOps.h.inc"

namespace qwen35::qplan {

/// Bytes of a tensor or memref of static shape, addressed densely.
int64_t bytesOf(mlir::ShapedType type);

} // namespace qwen35::qplan

#endif // QWEN35_DIALECT_QPLAN_IR_QPLANDIALECT_H
