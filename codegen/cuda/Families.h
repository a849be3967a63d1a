#ifndef QWEN35_CODEGEN_CUDA_FAMILIES_H
#define QWEN35_CODEGEN_CUDA_FAMILIES_H

namespace qwen35::codegen::cuda {

/// One function per file of kernel families; called by registerAllKernels.
void registerAttentionKernels();
void registerConvKernels();
void registerElementwiseKernels();
void registerEmbeddingKernels();
void registerGateKernels();
void registerGdnKernels();
void registerLossKernels();
void registerMatmulKernels();
void registerMoeKernels();
void registerNormKernels();
void registerOptimizerKernels();
void registerRopeKernels();
void registerRouterKernels();
void registerStripeKernels();

} // namespace qwen35::codegen::cuda

#endif // QWEN35_CODEGEN_CUDA_FAMILIES_H
