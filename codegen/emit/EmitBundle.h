#ifndef QWEN35_CODEGEN_EMIT_EMITBUNDLE_H
#define QWEN35_CODEGEN_EMIT_EMITBUNDLE_H

#include "runtime/schema/bundle.pb.h"

#include "dialect/QPlan/IR/QPlanDialect.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/Support/LogicalResult.h"

namespace qwen35::codegen {

/// Says what the bundle holds of one stage of a kernel; op and args are filled.
using DescribeKernel =
    llvm::function_ref<void(qplan::KernelOp, unsigned stage, bundle::Kernel &)>;

/// Fills the parts of a bundle that stage S6 determines: kernels, arenas,
/// buffers, parameters, inputs and outputs, programs and the planned peak.
///
/// Errors  An op that is not `qplan`, or a symbol that is not there, is reported
///         at its location.
llvm::LogicalResult emitPlan(mlir::ModuleOp module, int64_t tokens,
                             int64_t maxDocs, DescribeKernel describe,
                             bundle::Bundle &out);

} // namespace qwen35::codegen

#endif // QWEN35_CODEGEN_EMIT_EMITBUNDLE_H
