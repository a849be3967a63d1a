#ifndef QWEN35_FRONTEND_MODEL_GATEDDELTANET_H
#define QWEN35_FRONTEND_MODEL_GATEDDELTANET_H

#include "frontend/dsl/Modules.h"

namespace qwen35 {

/// The linear mixer: projections, causal convolution, gated delta rule, gated
/// norm, output projection.
///
/// Shapes  x and the result: [T, D].
/// Source  `Qwen3_5GatedDeltaNet` (transformers); MODEL.md 4.
class GatedDeltaNet : public dsl::Module {
public:
  GatedDeltaNet(dsl::Builder &builder, const llvm::Twine &path,
                const ModelConfig &config);
  dsl::Tensor operator()(dsl::Tensor x) const;

private:
  int64_t keyHeads, keyHeadDim, valueHeads, valueHeadDim;
  double eps;
  // In the order of the reference, whose parameters come before its modules.
  dsl::Tensor dtBias, aLog, convWeight, normWeight;
  dsl::Linear outProj, inProjQkv, inProjZ, inProjB, inProjA;
};

} // namespace qwen35

#endif // QWEN35_FRONTEND_MODEL_GATEDDELTANET_H
