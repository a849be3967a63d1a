#ifndef QWEN35_FRONTEND_CONFIG_CONFIGJSON_H
#define QWEN35_FRONTEND_CONFIG_CONFIGJSON_H

#include "frontend/config/ModelConfig.h"

#include <string>
#include <vector>

namespace qwen35 {

/// What a config.json said, and what of it had no effect.
struct ParsedConfig {
  ModelConfig config;
  /// One sentence per key that was ignored or overruled. Never fatal.
  std::vector<std::string> warnings;
};

/// Reads the text of a Hugging Face config.json, composite (with `text_config`)
/// or flat. A missing field is looked up in `text_config`, then in its
/// `rope_parameters` (rope fields; `rope_scaling` is the older name), then at
/// the top level (`tie_word_embeddings` and `dtype` only), then takes the
/// default of the reference. `null` counts as missing. Dense or MoE is decided
/// by `model_type`.
///
/// Shapes  the result has passed `checkConfig`.
/// Errors  one error for the first key that is wrong: text that is not JSON, an
///         unsupported model_type, a value of the wrong kind, a missing
///         rope_theta (it has no default), a variant of the architecture that
///         is not implemented. Unknown keys are warnings.
/// Source  `configuration_qwen3_5.py`, `configuration_qwen3_5_moe.py`
///         (transformers); MODEL.md 1.1 to 1.4.
llvm::Expected<ParsedConfig> parseConfigJson(llvm::StringRef text);

/// The flat config.json of this model (`model_type` qwen3_5_text or
/// qwen3_5_moe_text), as transformers writes it: two spaces of indentation,
/// keys sorted, a newline at the end. The config must have passed
/// `checkConfig`. Reading the text back gives an equal struct.
std::string toConfigJson(const ModelConfig &config);

} // namespace qwen35

#endif // QWEN35_FRONTEND_CONFIG_CONFIGJSON_H
