#include "codegen/cpu/Families.h"
#include "codegen/cpu/Kernel.h"

#include <mutex>

namespace qwen35::codegen::cpu {

void registerAllKernels() {
  static std::once_flag once;
  std::call_once(once, [] {
    registerAttentionKernels();
    registerElementwiseKernels();
    registerEmbeddingKernels();
    registerGateKernels();
    registerLossKernels();
    registerMatmulKernels();
    registerConvKernels();
    registerGdnBackwardKernels();
    registerGdnForwardKernels();
    registerMoeKernels();
    registerNormKernels();
    registerNormRopeKernels();
    registerOptimizerKernels();
    registerRouterKernels();
    registerStripeKernels();
  });
}

} // namespace qwen35::codegen::cpu
