#include "frontend/config/ModelConfig.h"

#include "frontend/config/Text.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include <cmath>

namespace qwen35 {
namespace {

// Far above every published size, and small enough that a product of any two
// of them, and of E * 2I * D, stays inside int64.
constexpr int64_t kMaxSize = int64_t(1) << 20;
constexpr int64_t kMaxRows = int64_t(1) << 31; // vocabulary, positions
constexpr int64_t kMaxLayers = 4096;

struct SizeRule {
  llvm::StringRef key;
  int64_t value;
  int64_t max;
};

llvm::Error checkSizes(const ModelConfig &config) {
  std::vector<SizeRule> rules = {
      {"vocab_size", config.vocabSize, kMaxRows},
      {"hidden_size", config.hiddenSize, kMaxSize},
      {"num_hidden_layers", config.numLayers(), kMaxLayers},
      {"max_position_embeddings", config.maxPositionEmbeddings, kMaxRows},
      {"num_attention_heads", config.numAttentionHeads, kMaxSize},
      {"num_key_value_heads", config.numKeyValueHeads, kMaxSize},
      {"head_dim", config.headDim, kMaxSize},
      {"linear_conv_kernel_dim", config.linearConvKernelDim, kMaxSize},
      {"linear_key_head_dim", config.linearKeyHeadDim, kMaxSize},
      {"linear_value_head_dim", config.linearValueHeadDim, kMaxSize},
      {"linear_num_key_heads", config.linearNumKeyHeads, kMaxSize},
      {"linear_num_value_heads", config.linearNumValueHeads, kMaxSize},
  };
  if (config.moe) {
    rules.push_back({"num_experts", config.numExperts, kMaxSize});
    rules.push_back({"num_experts_per_tok", config.numExpertsPerTok, kMaxSize});
    rules.push_back(
        {"moe_intermediate_size", config.moeIntermediateSize, kMaxSize});
    rules.push_back({"shared_expert_intermediate_size",
                     config.sharedExpertIntermediateSize, kMaxSize});
  } else {
    rules.push_back({"intermediate_size", config.intermediateSize, kMaxSize});
  }
  for (const SizeRule &rule : rules)
    if (rule.value < 1 || rule.value > rule.max)
      return configError(
          llvm::formatv("{0}: found {1}, expected an integer from 1 to {2}",
                        rule.key, rule.value, rule.max));
  return llvm::Error::success();
}

/// Elements of the whole model in floating point: only to refuse a model whose
/// exact counts would not fit 64 bits.
double roughElements(const ModelConfig &config) {
  auto wide = [](int64_t value) { return double(value); };
  double mixer = 4.0 * wide(config.attentionDim()) * wide(config.hiddenSize) +
                 wide(config.linearConvDim() + 2 * config.linearValueDim()) *
                     wide(config.hiddenSize);
  double ffn =
      config.moe
          ? 3.0 * wide(config.numExperts) * wide(config.moeIntermediateSize) *
                wide(config.hiddenSize)
          : 3.0 * wide(config.intermediateSize) * wide(config.hiddenSize);
  return 2.0 * wide(config.vocabSize) * wide(config.hiddenSize) +
         wide(config.numLayers()) * (mixer + ffn);
}

/// `multiple` must be a multiple of `divisor`.
llvm::Error checkMultiple(llvm::StringRef key, int64_t multiple,
                          llvm::StringRef divisorKey, int64_t divisor) {
  if (multiple % divisor == 0)
    return llvm::Error::success();
  return configError(
      llvm::formatv("{0}: found {1}, expected a multiple of {2}, which is {3}",
                    key, multiple, divisorKey, divisor));
}

llvm::Error checkReals(const ModelConfig &config) {
  // Written so that NaN fails too.
  auto positive = [](double value) {
    return value > 0 && std::isfinite(value);
  };
  if (!positive(config.rmsNormEps))
    return configError(llvm::formatv(
        "rms_norm_eps: found {0}, expected a number greater than zero",
        shortestReal(config.rmsNormEps)));
  if (!positive(config.initializerRange))
    return configError(llvm::formatv(
        "initializer_range: found {0}, expected a number greater than zero",
        shortestReal(config.initializerRange)));
  if (!(config.ropeTheta > 1) || !std::isfinite(config.ropeTheta))
    return configError(llvm::formatv(
        "rope_theta: found {0}, expected a number greater than one",
        shortestReal(config.ropeTheta)));
  if (config.moe && !(config.routerAuxLossCoef >= 0 &&
                      std::isfinite(config.routerAuxLossCoef)))
    return configError(llvm::formatv(
        "router_aux_loss_coef: found {0}, expected a number of at least zero",
        shortestReal(config.routerAuxLossCoef)));
  return llvm::Error::success();
}

llvm::Error checkRope(const ModelConfig &config) {
  if (!(config.partialRotaryFactor > 0 && config.partialRotaryFactor <= 1))
    return configError(llvm::formatv("partial_rotary_factor: found {0}, "
                                     "expected a number above 0 and up to 1",
                                     shortestReal(config.partialRotaryFactor)));
  int64_t rotary = config.rotaryDims();
  if (rotary < 2 || rotary % 2 != 0)
    return configError(llvm::formatv(
        "partial_rotary_factor: head_dim {0} times {1} gives {2} rotary dims, "
        "expected an even number of at least 2",
        config.headDim, shortestReal(config.partialRotaryFactor), rotary));

  // transformers writes its own default into every file it saves, whatever the
  // head size, and text never reads it; any other section was chosen, so it
  // has to fit.
  std::array<int64_t, 3> section = config.mropeSection;
  for (int64_t count : section)
    if (count < 0 || count > kMaxSize)
      return configError(llvm::formatv(
          "mrope_section: found {0}, expected counts from 0 to {1}", count,
          kMaxSize));
  int64_t sum = section[0] + section[1] + section[2];
  bool isDefault = section == ModelConfig().mropeSection;
  if (!isDefault && sum != rotary / 2)
    return configError(llvm::formatv(
        "mrope_section: [{0}, {1}, {2}] has the sum {3}, expected {4}, half of "
        "the {5} rotary dims",
        section[0], section[1], section[2], sum, rotary / 2, rotary));
  return llvm::Error::success();
}

llvm::Error checkTokenIds(const ModelConfig &config) {
  auto check = [&](llvm::StringRef key, int64_t id) -> llvm::Error {
    if (id >= 0 && id < config.vocabSize)
      return llvm::Error::success();
    return configError(
        llvm::formatv("{0}: found {1}, expected an id from 0 to {2}", key, id,
                      config.vocabSize - 1));
  };
  if (config.padTokenId)
    if (llvm::Error error = check("pad_token_id", *config.padTokenId))
      return error;
  if (config.bosTokenId)
    if (llvm::Error error = check("bos_token_id", *config.bosTokenId))
      return error;
  for (int64_t id : config.eosTokenIds)
    if (llvm::Error error = check("eos_token_id", id))
      return error;
  return llvm::Error::success();
}

} // namespace

llvm::Error configError(const llvm::Twine &message) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), message);
}

llvm::StringRef layerTypeName(LayerType type) {
  return type == LayerType::FullAttention ? "full_attention"
                                          : "linear_attention";
}

llvm::StringRef fileTypeName(FileType type) {
  return type == FileType::Float32 ? "F32" : "BF16";
}

int64_t ModelConfig::numLayers(LayerType type) const {
  return llvm::count(layerTypes, type);
}

std::vector<LayerType> layerPattern(int64_t layers, int64_t interval) {
  std::vector<LayerType> types(layers, LayerType::LinearAttention);
  for (int64_t i = interval - 1; i < layers; i += interval)
    types[i] = LayerType::FullAttention;
  return types;
}

llvm::Error checkConfig(const ModelConfig &config) {
  if (llvm::Error error = checkSizes(config))
    return error;
  if (llvm::Error error = checkReals(config))
    return error;
  if (llvm::Error error =
          checkMultiple("num_attention_heads", config.numAttentionHeads,
                        "num_key_value_heads", config.numKeyValueHeads))
    return error;
  if (llvm::Error error =
          checkMultiple("linear_num_value_heads", config.linearNumValueHeads,
                        "linear_num_key_heads", config.linearNumKeyHeads))
    return error;
  if (llvm::Error error = checkRope(config))
    return error;
  if (config.moe && config.numExpertsPerTok > config.numExperts)
    return configError(llvm::formatv(
        "num_experts_per_tok: found {0}, expected at most num_experts, which "
        "is {1}",
        config.numExpertsPerTok, config.numExperts));
  if (llvm::Error error = checkTokenIds(config))
    return error;
  if (!(roughElements(config) < 4e18))
    return configError(llvm::formatv(
        "the sizes give about {0} parameters, more than 64 bits can count",
        shortestReal(roughElements(config))));
  return llvm::Error::success();
}

} // namespace qwen35
