#ifndef QWEN35_FRONTEND_CONFIG_MODELCONFIG_H
#define QWEN35_FRONTEND_CONFIG_MODELCONFIG_H

#include "llvm/Support/Error.h"

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace qwen35 {

/// The mixer of a decoder layer, as `layer_types` names it.
enum class LayerType { LinearAttention, FullAttention };

/// "linear_attention" or "full_attention".
llvm::StringRef layerTypeName(LayerType type);

/// The element type of a checkpoint that is written without an original to
/// follow. Training itself does not depend on it.
enum class FileType { Float32, BFloat16 };

/// "F32" or "BF16", as a safetensors header spells it.
llvm::StringRef fileTypeName(FileType type);

/// The text part of a Qwen3.5 decoder: everything the shapes and the math of a
/// training step depend on.
///
/// Shapes  sizes count elements of the named thing; a field of the other kind
/// of
///         feed-forward block (dense or MoE) is 0.
/// Units   `ropeTheta` is the base of the rotary frequencies, dimensionless.
/// Errors  a struct is only data: `checkConfig` says whether it is a model.
/// Source  `Qwen3_5TextConfig`, `Qwen3_5MoeTextConfig` in transformers; the
///         defaults below are the dense ones of the same classes.
struct ModelConfig {
  bool moe = false;

  int64_t vocabSize = 248320; ///< V, rows of the embedding
  int64_t hiddenSize = 4096;  ///< D
  int64_t maxPositionEmbeddings = 32768;
  double initializerRange = 0.02; ///< std of every normal initialisation
  double rmsNormEps = 1e-6;
  bool tieWordEmbeddings = false;
  std::vector<LayerType> layerTypes; ///< one per layer; its length is L

  // Full attention.
  int64_t numAttentionHeads = 16; ///< Hq
  int64_t numKeyValueHeads = 4;   ///< Hkv
  int64_t headDim = 256;          ///< hd, not derived from D
  double ropeTheta = 1e7;
  double partialRotaryFactor = 0.25;
  /// Frequencies of time, height and width. Text has one position for all
  /// three, so they never enter the math; kept to be written back.
  std::array<int64_t, 3> mropeSection = {11, 11, 10};

  // Gated DeltaNet.
  int64_t linearConvKernelDim = 4;  ///< W
  int64_t linearKeyHeadDim = 128;   ///< dk
  int64_t linearValueHeadDim = 128; ///< dv
  int64_t linearNumKeyHeads = 16;   ///< Hk
  int64_t linearNumValueHeads = 32; ///< Hv

  // Dense feed-forward block.
  int64_t intermediateSize = 12288; ///< F

  // Mixture of experts.
  int64_t numExperts = 0;                   ///< E
  int64_t numExpertsPerTok = 0;             ///< K
  int64_t moeIntermediateSize = 0;          ///< I
  int64_t sharedExpertIntermediateSize = 0; ///< Is
  bool outputRouterLogits = false;
  double routerAuxLossCoef = 0.001;

  // Kept for the file that is written back.
  std::optional<int64_t> padTokenId, bosTokenId;
  std::vector<int64_t> eosTokenIds;
  FileType dtype = FileType::BFloat16;

  int64_t numLayers() const { return int64_t(layerTypes.size()); }
  int64_t numLayers(LayerType type) const;
  /// R, how many dims of a head are rotated.
  int64_t rotaryDims() const {
    return int64_t(double(headDim) * partialRotaryFactor);
  }
  /// Hq * hd, columns of o_proj.
  int64_t attentionDim() const { return numAttentionHeads * headDim; }
  /// Kd and Vd, and C, the channels of the convolution.
  int64_t linearKeyDim() const { return linearNumKeyHeads * linearKeyHeadDim; }
  int64_t linearValueDim() const {
    return linearNumValueHeads * linearValueHeadDim;
  }
  int64_t linearConvDim() const {
    return 2 * linearKeyDim() + linearValueDim();
  }

  bool operator==(const ModelConfig &) const = default;
};

/// The published pattern: layer i is full attention when (i + 1) % interval is
/// 0. `interval` must be greater than zero.
std::vector<LayerType> layerPattern(int64_t layers, int64_t interval);

/// Fails with one error, found and expected by the name of the config key,
/// unless the struct describes a model that this compiler can train.
llvm::Error checkConfig(const ModelConfig &config);

/// A config error with this text.
llvm::Error configError(const llvm::Twine &message);

} // namespace qwen35

#endif // QWEN35_FRONTEND_CONFIG_MODELCONFIG_H
