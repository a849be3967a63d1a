#ifndef QWEN35_CODEGEN_EMIT_EMITBUNDLE_H
#define QWEN35_CODEGEN_EMIT_EMITBUNDLE_H

#include "runtime/schema/bundle.pb.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/LogicalResult.h"

namespace qwen35::codegen {

/// Fills the parts of a bundle that stage S6 determines: kernels, arenas,
/// buffers, parameters, inputs and outputs, programs and the planned peak.
/// The kernels of every stage are those of `Target.blob` 0.
///
/// Errors  An op that is not `qplan`, or a symbol that is not there, is reported
///         at its location.
llvm::LogicalResult emitPlan(mlir::ModuleOp module, int64_t tokens,
                             int64_t maxDocs, bundle::Bundle &out);

} // namespace qwen35::codegen

#endif // QWEN35_CODEGEN_EMIT_EMITBUNDLE_H
