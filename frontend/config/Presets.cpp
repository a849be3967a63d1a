#include "frontend/config/Presets.h"

#include "frontend/config/Text.h"

#include "llvm/ADT/StringExtras.h"

namespace qwen35 {
namespace {

/// What the published sizes do not share.
struct DenseSize {
  llvm::StringRef name;
  int64_t hidden, layers, queryHeads, keyValueHeads, valueHeads, ffn;
  bool tied;
};
struct MoeSize {
  llvm::StringRef name;
  int64_t hidden, layers, queryHeads, keyValueHeads, valueHeads;
  int64_t experts, perToken, expertWidth, sharedWidth;
};

constexpr DenseSize kDense[] = {
    {"0.8b", 1024, 24, 8, 2, 16, 3584, true},
    {"2b", 2048, 24, 8, 2, 16, 6144, true},
    {"4b", 2560, 32, 16, 4, 32, 9216, true},
    {"9b", 4096, 32, 16, 4, 32, 12288, false},
    {"27b", 5120, 64, 24, 4, 48, 17408, false},
};
constexpr MoeSize kMoe[] = {
    {"35b-a3b", 2048, 40, 16, 2, 32, 256, 8, 512, 512},
    {"122b-a10b", 3072, 48, 32, 2, 64, 256, 8, 1024, 1024},
    {"397b-a17b", 4096, 60, 32, 2, 64, 512, 10, 1024, 1024},
};
constexpr llvm::StringRef kNames[] = {
    "debug", "debug-moe", "0.8b",    "2b",        "4b",
    "9b",    "27b",       "35b-a3b", "122b-a10b", "397b-a17b",
};

ModelConfig publishedBase() {
  ModelConfig config;
  config.maxPositionEmbeddings = 262144;
  config.eosTokenIds = {248044};
  return config;
}

void makeMoe(ModelConfig &config, int64_t experts, int64_t perToken,
             int64_t expertWidth, int64_t sharedWidth) {
  config.moe = true;
  config.intermediateSize = 0;
  config.numExperts = experts;
  config.numExpertsPerTok = perToken;
  config.moeIntermediateSize = expertWidth;
  config.sharedExpertIntermediateSize = sharedWidth;
}

ModelConfig debugConfig(bool moe) {
  ModelConfig config;
  config.vocabSize = 256;
  config.hiddenSize = 64;
  config.layerTypes = layerPattern(4, 4);
  config.numAttentionHeads = 4;
  config.numKeyValueHeads = 2;
  config.headDim = 32;
  config.mropeSection = {2, 1, 1};
  config.linearKeyHeadDim = 32;
  config.linearValueHeadDim = 32;
  config.linearNumKeyHeads = 2;
  config.linearNumValueHeads = 4;
  config.intermediateSize = 192;
  // So that a saved model gives the same loss, not nearly the same.
  config.dtype = FileType::Float32;
  if (moe)
    makeMoe(config, /*experts=*/8, /*perToken=*/2, /*expertWidth=*/64,
            /*sharedWidth=*/64);
  return config;
}

} // namespace

llvm::ArrayRef<llvm::StringRef> presetNames() { return kNames; }

llvm::Expected<ModelConfig> presetConfig(llvm::StringRef name) {
  if (name == "debug" || name == "debug-moe")
    return debugConfig(name == "debug-moe");

  ModelConfig config = publishedBase();
  auto fill = [&](const auto &size) {
    config.hiddenSize = size.hidden;
    config.layerTypes = layerPattern(size.layers, 4);
    config.numAttentionHeads = size.queryHeads;
    config.numKeyValueHeads = size.keyValueHeads;
    config.linearNumValueHeads = size.valueHeads;
  };
  for (const DenseSize &size : kDense) {
    if (size.name != name)
      continue;
    fill(size);
    config.intermediateSize = size.ffn;
    config.tieWordEmbeddings = size.tied;
    return config;
  }
  for (const MoeSize &size : kMoe) {
    if (size.name != name)
      continue;
    fill(size);
    makeMoe(config, size.experts, size.perToken, size.expertWidth,
            size.sharedWidth);
    return config;
  }

  std::string message = "no preset has the name \"" + name.str() + "\"";
  llvm::StringRef near = nearestName(name.lower(), kNames);
  message += near.empty() ? "." : "; did you mean " + near.str() + "?";
  return configError(message + " Presets: " + llvm::join(presetNames(), " "));
}

} // namespace qwen35
