#include "frontend/model/Decoder.h"

namespace qwen35 {

using dsl::Builder;
using dsl::Tensor;

namespace {

template <typename T, typename... Args>
std::optional<T> makeIf(bool condition, Args &&...args) {
  if (!condition)
    return std::nullopt;
  return std::optional<T>(std::in_place, std::forward<Args>(args)...);
}

} // namespace

DecoderLayer::DecoderLayer(Builder &builder, const llvm::Twine &path,
                           const ModelConfig &config, LayerType type)
    : Module(builder, path),
      linearAttn(makeIf<GatedDeltaNet>(type == LayerType::LinearAttention,
                                       builder, child("linear_attn"), config)),
      selfAttn(makeIf<Attention>(type == LayerType::FullAttention, builder,
                                 child("self_attn"), config)),
      denseMlp(makeIf<DenseMlp>(!config.moe, builder, child("mlp"),
                                config.hiddenSize, config.intermediateSize)),
      moeBlock(makeIf<MoeBlock>(config.moe, builder, child("mlp"), config)),
      inputLayernorm(builder, child("input_layernorm"), config.hiddenSize,
                     config.rmsNormEps),
      postAttentionLayernorm(builder, child("post_attention_layernorm"),
                             config.hiddenSize, config.rmsNormEps) {}

Tensor DecoderLayer::operator()(Tensor x, LayerState &state) const {
  Builder::Scope scope(builder, path());
  Tensor normed = inputLayernorm(x);
  Tensor mixed =
      linearAttn ? (*linearAttn)(normed) : (*selfAttn)(normed, state.ropeTable);
  Tensor h = builder.add(x, mixed);
  normed = postAttentionLayernorm(h);
  Tensor fed =
      denseMlp ? (*denseMlp)(normed) : (*moeBlock)(normed, state.routing);
  return builder.add(h, fed);
}

Decoder::Decoder(Builder &builder, const llvm::Twine &path,
                 const ModelConfig &config)
    : Module(builder, path), embedTokens(builder, child("embed_tokens"),
                                         config.vocabSize, config.hiddenSize),
      ropeTheta(config.ropeTheta), rotaryDims(config.rotaryDims()),
      needsRope(config.numLayers(LayerType::FullAttention) > 0), layers([&] {
        std::vector<DecoderLayer> made;
        made.reserve(config.layerTypes.size());
        for (auto [index, type] : llvm::enumerate(config.layerTypes))
          made.emplace_back(builder, child("layers." + std::to_string(index)),
                            config, type);
        return made;
      }()),
      norm(builder, child("norm"), config.hiddenSize, config.rmsNormEps) {}

Tensor Decoder::operator()(Tensor ids, LayerState &state) const {
  if (needsRope) {
    Builder::Scope scope(builder, child("rotary_emb"));
    state.ropeTable = builder.ropeTable(ropeTheta, rotaryDims);
  }
  Tensor x = embedTokens(ids);
  for (const DecoderLayer &layer : layers)
    x = layer(x, state);
  return norm(x);
}

} // namespace qwen35
