#ifndef QWEN35_PASSES_SHARDING_PASSES_H
#define QWEN35_PASSES_SHARDING_PASSES_H

#include "dialect/QDist/IR/QDistDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/Pass.h"

namespace qwen35 {

#define GEN_PASS_DECL
#include "passes/Sharding/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "passes/Sharding/Passes.h.inc"

} // namespace qwen35

#endif // QWEN35_PASSES_SHARDING_PASSES_H
