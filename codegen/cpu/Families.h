#ifndef QWEN35_CODEGEN_CPU_FAMILIES_H
#define QWEN35_CODEGEN_CPU_FAMILIES_H

namespace qwen35::codegen::cpu {

/// One function per file of kernel families; called by registerAllKernels.
void registerAttentionKernels();
void registerElementwiseKernels();
void registerEmbeddingKernels();
void registerGateKernels();
void registerLossKernels();
void registerMatmulKernels();
void registerConvKernels();
void registerGdnBackwardKernels();
void registerGdnForwardKernels();
void registerMoeKernels();
void registerNormKernels();
void registerNormRopeKernels();
void registerOptimizerKernels();
void registerRouterKernels();
void registerStripeKernels();

} // namespace qwen35::codegen::cpu

#endif // QWEN35_CODEGEN_CPU_FAMILIES_H
