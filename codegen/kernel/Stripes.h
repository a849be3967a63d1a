#ifndef QWEN35_CODEGEN_KERNEL_STRIPES_H
#define QWEN35_CODEGEN_KERNEL_STRIPES_H

#include "codegen/kernel/KernelSpec.h"

#include "llvm/Support/LogicalResult.h"

#include <cstdint>

namespace qwen35::codegen {

/// Checks that an operand is the stripe table of some number of ranks, which it
/// returns, for a rank of `tokens`.
llvm::FailureOr<int64_t> requireStripes(const KernelSpec &spec,
                                        mlir::MemRefType stripes,
                                        int64_t tokens, EmitError emitError);

} // namespace qwen35::codegen

#endif // QWEN35_CODEGEN_KERNEL_STRIPES_H
