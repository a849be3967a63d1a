#ifndef QWEN35_PASSES_KERNELS_PASSES_H
#define QWEN35_PASSES_KERNELS_PASSES_H

#include "dialect/QKern/IR/QKernDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/Pass.h"

#include <memory>

namespace qwen35 {

/// Passes from S4 (scheduled) to S5 (kernel level): create*() per pass, and
/// registerKernelPasses() for command lines. Passes.td says what each does.
#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "passes/Kernels/Passes.h.inc"

} // namespace qwen35

#endif // QWEN35_PASSES_KERNELS_PASSES_H
