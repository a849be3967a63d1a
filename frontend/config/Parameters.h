#ifndef QWEN35_FRONTEND_CONFIG_PARAMETERS_H
#define QWEN35_FRONTEND_CONFIG_PARAMETERS_H

#include "frontend/config/ModelConfig.h"

#include "llvm/ADT/SmallVector.h"

#include <string>
#include <vector>

namespace qwen35 {

/// One trained tensor of the text model.
struct ParameterSpec {
  std::string name; ///< Hugging Face, flat form: model.layers.0.mlp...
  llvm::SmallVector<int64_t, 3> shape;
  /// How a fresh one is drawn: zeros | ones | normal(STD) |
  /// log_uniform(LO,HI), which is the log of a uniform number.
  std::string init;
  bool decay;        ///< weight decay applies: two or more dims
  FileType fileType; ///< in a checkpoint written without an original to follow

  int64_t elements() const;
};

/// Every parameter in the order in which the reference's modules register them
/// (`named_parameters()` there). A tied head is the embedding and has no entry.
/// The config must have passed `checkConfig`.
/// Source: MODEL.md 9.2 (names, shapes), 10 (init, HF column), 9.3 (dtypes).
std::vector<ParameterSpec> parameterTable(const ModelConfig &config);

/// The entries of one layer, as `parameterTable` lists them.
std::vector<ParameterSpec> layerParameters(const ModelConfig &config,
                                           int64_t layer);

/// Numbers of elements. Source: MODEL.md 1.7.
struct ParameterCount {
  int64_t attention;   ///< one full-attention mixer
  int64_t gatedDelta;  ///< one GatedDeltaNet mixer
  int64_t feedForward; ///< one dense or MoE block
  int64_t total;       ///< the text model; a tied head counts once
  /// What one token passes through: only `num_experts_per_tok` experts, without
  /// embedding and head.
  int64_t activeBody;
  int64_t activeWithHead; ///< the same plus lm_head
};
ParameterCount countParameters(const ModelConfig &config);

/// Forward FLOPs of one token, one multiply-add counted as two, averaged over a
/// document of `documentLength` tokens (causal attention).
/// Source: MODEL.md 11.1.
struct ForwardFlops {
  double weights;   ///< products with weights, the head included
  double attention; ///< QK^T and PV
  double conv;
  double deltaRule;

  double total() const { return weights + attention + conv + deltaRule; }
};

/// How the delta rule is counted: the products of the chunked algorithm with
/// chunks of 64 tokens (a roofline), or 8 dk dv per value head (Megatron's
/// convention, for MFU: an algorithm with more arithmetic does not score more).
enum class DeltaRuleCount { Chunked, Useful };

ForwardFlops forwardFlops(const ModelConfig &config, int64_t documentLength,
                          DeltaRuleCount count);

/// Forward and backward (three times forward), no recomputation.
double trainingFlops(const ModelConfig &config, int64_t documentLength,
                     DeltaRuleCount count);

} // namespace qwen35

#endif // QWEN35_FRONTEND_CONFIG_PARAMETERS_H
