#ifndef QWEN35_PASSES_MEMORY_PASSES_H
#define QWEN35_PASSES_MEMORY_PASSES_H

#include "dialect/QKern/IR/QKernDialect.h"
#include "dialect/QPlan/IR/QPlanDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/Pass.h"

namespace qwen35 {

#define GEN_PASS_DECL
#include "passes/Memory/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "passes/Memory/Passes.h.inc"

} // namespace qwen35

#endif // QWEN35_PASSES_MEMORY_PASSES_H
