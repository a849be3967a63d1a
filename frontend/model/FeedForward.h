#ifndef QWEN35_FRONTEND_MODEL_FEEDFORWARD_H
#define QWEN35_FRONTEND_MODEL_FEEDFORWARD_H

#include "frontend/dsl/Modules.h"

namespace qwen35 {

/// down(silu(gate x) * up x), width F.
///
/// Shapes  x and the result: [T, D].
/// Source  `Qwen3_5MLP` (transformers); MODEL.md 5.1.
class DenseMlp : public dsl::Module {
public:
  DenseMlp(dsl::Builder &builder, const llvm::Twine &path, int64_t hiddenSize,
           int64_t width);
  dsl::Tensor operator()(dsl::Tensor x) const;

private:
  dsl::Linear gateProj, upProj, downProj;
};

/// Routed experts plus one shared expert behind a sigmoid gate.
///
/// Shapes  x and the result: [T, D].
/// Source  `Qwen3_5MoeSparseMoeBlock` (transformers); MODEL.md 5.2 to 5.4.
class MoeBlock : public dsl::Module {
public:
  MoeBlock(dsl::Builder &builder, const llvm::Twine &path,
           const ModelConfig &config);
  /// Also appends what its router decided, for the auxiliary loss.
  dsl::Tensor
  operator()(dsl::Tensor x,
             llvm::SmallVectorImpl<dsl::Builder::Routing> &routing) const;

private:
  int64_t topK;
  dsl::Linear gate;
  dsl::Tensor gateUp, down;
  DenseMlp sharedExpert;
  dsl::Linear sharedExpertGate;
};

} // namespace qwen35

#endif // QWEN35_FRONTEND_MODEL_FEEDFORWARD_H
