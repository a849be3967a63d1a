#ifndef QWEN35_FRONTEND_MODEL_ATTENTION_H
#define QWEN35_FRONTEND_MODEL_ATTENTION_H

#include "frontend/dsl/Modules.h"

namespace qwen35 {

/// The full-attention mixer: query with an output gate per head, QK norm,
/// partial rotary embedding, grouped-query causal attention inside documents.
///
/// Shapes  x and the result: [T, D]; ropeTable: [T, R/2, 2], of
///         `Builder::ropeTable(config.ropeTheta, config.rotaryDims())`.
/// Source  `Qwen3_5Attention` (transformers); MODEL.md 3.
class Attention : public dsl::Module {
public:
  Attention(dsl::Builder &builder, const llvm::Twine &path,
            const ModelConfig &config);
  dsl::Tensor operator()(dsl::Tensor x, dsl::Tensor ropeTable) const;

private:
  int64_t queryHeads, keyValueHeads, headDim;
  dsl::Linear qProj, kProj, vProj, oProj;
  dsl::RmsNorm qNorm, kNorm;
};

} // namespace qwen35

#endif // QWEN35_FRONTEND_MODEL_ATTENTION_H
