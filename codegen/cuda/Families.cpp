#include "codegen/cuda/Families.h"

#include "codegen/cuda/Kernel.h"

namespace qwen35::codegen::cuda {

void registerAllKernels() {
  static const bool once = [] {
    registerAttentionKernels();
    registerConvKernels();
    registerElementwiseKernels();
    registerEmbeddingKernels();
    registerGateKernels();
    registerGdnKernels();
    registerLossKernels();
    registerMatmulKernels();
    registerMoeKernels();
    registerNormKernels();
    registerOptimizerKernels();
    registerRopeKernels();
    registerRouterKernels();
    registerStripeKernels();
    return true;
  }();
  (void)once;
}

} // namespace qwen35::codegen::cuda
