#ifndef QWEN35_FRONTEND_CONFIG_PRESETS_H
#define QWEN35_FRONTEND_CONFIG_PRESETS_H

#include "frontend/config/ModelConfig.h"

namespace qwen35 {

/// Every preset, smallest first: debug, debug-moe, then the published sizes
/// 0.8b 2b 4b 9b 27b 35b-a3b 122b-a10b 397b-a17b.
///
/// The debug models have bytes as vocabulary, 3 linear and 1 full layers, and
/// two value heads per key head and two query heads per key/value head, so that
/// every grouping of the published sizes occurs. Their checkpoints are float32.
/// Source: MODEL.md 1.6.
llvm::ArrayRef<llvm::StringRef> presetNames();

/// Fails when there is no such preset; the message names the nearest one and
/// lists all.
llvm::Expected<ModelConfig> presetConfig(llvm::StringRef name);

} // namespace qwen35

#endif // QWEN35_FRONTEND_CONFIG_PRESETS_H
