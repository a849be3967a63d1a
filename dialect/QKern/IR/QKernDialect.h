#ifndef QWEN35_DIALECT_QKERN_IR_QKERNDIALECT_H
#define QWEN35_DIALECT_QKERN_IR_QKERNDIALECT_H

#include "dialect/Qwen35/IR/Qwen35Dialect.h"

#include "mlir/IR/TypeUtilities.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"

#include "dialect/QKern/IR/QKernDialect.h.inc"

#define GET_OP_CLASSES
#include "dialect/QKern/IR/KernelOps.h.inc"
#define GET_OP_CLASSES
#include "dialect/QKern/IR/GdnOps.h.inc"

#endif // QWEN35_DIALECT_QKERN_IR_QKERNDIALECT_H
