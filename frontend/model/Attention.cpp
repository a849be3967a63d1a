#include "frontend/model/Attention.h"

#include <cmath>

namespace qwen35 {

using dsl::Builder;
using dsl::Tensor;

Attention::Attention(Builder &builder, const llvm::Twine &path,
                     const ModelConfig &config)
    : Module(builder, path), queryHeads(config.numAttentionHeads),
      keyValueHeads(config.numKeyValueHeads), headDim(config.headDim),
      qProj(builder, child("q_proj"), config.hiddenSize,
            2 * config.attentionDim()),
      kProj(builder, child("k_proj"), config.hiddenSize,
            keyValueHeads * headDim),
      vProj(builder, child("v_proj"), config.hiddenSize,
            keyValueHeads * headDim),
      oProj(builder, child("o_proj"), config.attentionDim(), config.hiddenSize),
      qNorm(builder, child("q_norm"), headDim, config.rmsNormEps),
      kNorm(builder, child("k_norm"), headDim, config.rmsNormEps) {}

Tensor Attention::operator()(Tensor x, Tensor ropeTable) const {
  Builder::Scope scope(builder, path());
  Builder &b = builder;
  int64_t tokens = b.documents().tokens();

  // Interleaved by head: query of head 0, gate of head 0, query of head 1, ...
  Tensor both = b.reshape(qProj(x), {tokens, queryHeads, 2 * headDim});
  Tensor query = b.slice(both, /*axis=*/2, 0, headDim);
  Tensor gate = b.slice(both, /*axis=*/2, headDim, headDim);
  Tensor key = b.reshape(kProj(x), {tokens, keyValueHeads, headDim});
  Tensor value = b.reshape(vProj(x), {tokens, keyValueHeads, headDim});

  Tensor q = b.rope(qNorm(query), ropeTable);
  Tensor k = b.rope(kNorm(key), ropeTable);
  Tensor o = b.attention(q, k, value, 1 / std::sqrt(double(headDim)));
  Tensor gated = b.mulSigmoid(o, gate);
  return oProj(b.reshape(gated, {tokens, queryHeads * headDim}));
}

} // namespace qwen35
