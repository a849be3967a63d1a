#ifndef QWEN35_CODEGEN_CUDA_STRIPES_H
#define QWEN35_CODEGEN_CUDA_STRIPES_H

#include "codegen/cuda/Kernel.h"
#include "codegen/kernel/Stripes.h"
#include "runtime/schema/stripe_table.h"

namespace qwen35::codegen::cuda {

/// The constants of q35::Stripes.
inline void setStripes(DeviceStage &stage, const StripeTable &table) {
  stage.constant("ranks", table.ranks).constant("stripeRows", table.rows());
}

} // namespace qwen35::codegen::cuda

#endif // QWEN35_CODEGEN_CUDA_STRIPES_H
