#ifndef QWEN35_PASSES_AUTODIFF_PASSES_H
#define QWEN35_PASSES_AUTODIFF_PASSES_H

#include "dialect/Qwen35/IR/Qwen35Dialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/Pass.h"

namespace qwen35 {

#define GEN_PASS_DECL
#include "passes/Autodiff/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "passes/Autodiff/Passes.h.inc"

} // namespace qwen35

#endif // QWEN35_PASSES_AUTODIFF_PASSES_H
