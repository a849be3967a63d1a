#ifndef QWEN35_CODEGEN_EMIT_DESCRIBESTAGE_H
#define QWEN35_CODEGEN_EMIT_DESCRIBESTAGE_H

#include "codegen/cuda/Compile.h"
#include "runtime/schema/bundle.pb.h"

namespace qwen35::codegen {

/// The bundle's dtype of an element type; DTYPE_NONE if it has none.
bundle::DType dtypeOf(mlir::Type type);

/// Everything the bundle says of a GPU stage but op, args and blob.
void describeStage(const cuda::CompiledStage &compiled, bundle::Kernel &out);

} // namespace qwen35::codegen

#endif // QWEN35_CODEGEN_EMIT_DESCRIBESTAGE_H
