#ifndef QWEN35_PASSES_VERIFY_PASSES_H
#define QWEN35_PASSES_VERIFY_PASSES_H

#include "dialect/QDist/IR/QDistDialect.h"
#include "dialect/QKern/IR/QKernDialect.h"
#include "dialect/QPlan/IR/QPlanDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/Pass.h"

#include <memory>

namespace qwen35 {

#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "passes/Verify/Passes.h.inc"

} // namespace qwen35

#endif // QWEN35_PASSES_VERIFY_PASSES_H
