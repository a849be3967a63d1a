#ifndef QWEN35_DIALECT_QWEN35_IR_QWEN35DIALECT_H
#define QWEN35_DIALECT_QWEN35_IR_QWEN35DIALECT_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "dialect/Qwen35/IR/Qwen35Dialect.h.inc"
#define GET_TYPEDEF_CLASSES
#include "dialect/Qwen35/IR/Qwen35Types.h.inc"

#include "dialect/Qwen35/IR/Qwen35Interfaces.h.inc"

#define GET_OP_CLASSES
#include "dialect/Qwen35/IR/NormOps.h.inc"
#define GET_OP_CLASSES
#include "dialect/Qwen35/IR/AttentionOps.h.inc"
#define GET_OP_CLASSES
#include "dialect/Qwen35/IR/DeltaOps.h.inc"
#define GET_OP_CLASSES
#include "dialect/Qwen35/IR/StripeOps.h.inc"
#define GET_OP_CLASSES
#include "dialect/Qwen35/IR/MoeOps.h.inc"
#define GET_OP_CLASSES
#include "dialect/Qwen35/IR/LossOps.h.inc"
#define GET_OP_CLASSES
#include "dialect/Qwen35/IR/OptimizerOps.h.inc"
#define GET_OP_CLASSES
#include "dialect/Qwen35/IR/GlueOps.h.inc"

#endif // QWEN35_DIALECT_QWEN35_IR_QWEN35DIALECT_H
