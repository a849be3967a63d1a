#ifndef QWEN35_FRONTEND_MODEL_DECODER_H
#define QWEN35_FRONTEND_MODEL_DECODER_H

#include "frontend/model/Attention.h"
#include "frontend/model/FeedForward.h"
#include "frontend/model/GatedDeltaNet.h"

#include <optional>
#include <vector>

namespace qwen35 {

/// What the layers of one forward pass share.
struct LayerState {
  dsl::Tensor ropeTable; ///< only read by full attention
  /// One entry per MoE layer that has run.
  llvm::SmallVector<dsl::Builder::Routing> routing;
};

/// h = x + mixer(norm(x)); h + feedForward(norm(h)).
///
/// Shapes  x and the result: [T, D].
/// Source  `Qwen3_5DecoderLayer` (transformers); MODEL.md 2.1.
class DecoderLayer : public dsl::Module {
public:
  DecoderLayer(dsl::Builder &builder, const llvm::Twine &path,
               const ModelConfig &config, LayerType type);
  dsl::Tensor operator()(dsl::Tensor x, LayerState &state) const;

private:
  // One of each pair, as the config has it.
  std::optional<GatedDeltaNet> linearAttn;
  std::optional<Attention> selfAttn;
  std::optional<DenseMlp> denseMlp;
  std::optional<MoeBlock> moeBlock;
  dsl::RmsNorm inputLayernorm, postAttentionLayernorm;
};

/// Embedding, the layers of `config.layerTypes` and the final norm: `model.*`
/// of a checkpoint.
///
/// Shapes  ids: [T]; the result: [T, D].
/// Source  `Qwen3_5TextModel` (transformers); MODEL.md 2.
class Decoder : public dsl::Module {
public:
  Decoder(dsl::Builder &builder, const llvm::Twine &path,
          const ModelConfig &config);
  /// Fills `state` on the way.
  dsl::Tensor operator()(dsl::Tensor ids, LayerState &state) const;

  dsl::Embedding embedTokens;

private:
  double ropeTheta;
  int64_t rotaryDims;
  bool needsRope;
  std::vector<DecoderLayer> layers;
  dsl::RmsNorm norm;
};

} // namespace qwen35

#endif // QWEN35_FRONTEND_MODEL_DECODER_H
