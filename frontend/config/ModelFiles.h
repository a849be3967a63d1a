#ifndef QWEN35_FRONTEND_CONFIG_MODELFILES_H
#define QWEN35_FRONTEND_CONFIG_MODELFILES_H

#include "frontend/config/ModelConfig.h"

#include <string>
#include <vector>

namespace qwen35 {

/// The model that the user named, wherever it came from.
struct ModelSource {
  ModelConfig config;
  std::string name;       ///< preset, or the folder that holds the config
  std::string configJson; ///< the file's own text; generated for a preset
  std::string directory;  ///< that folder; empty for a preset
  std::vector<std::string> warnings; ///< ready to print, path included
};

/// Resolves the MODEL argument of the tools: the name of a preset, the path of
/// a config.json, or a folder that holds one (a Hugging Face checkpoint). A
/// preset wins over a folder of the same name; write `./debug` for the folder.
///
/// Errors  an unknown name (with the nearest preset and the list), a path that
///         cannot be read or is larger than 1 MiB, and everything that
///         `parseConfigJson` refuses, prefixed by the path.
llvm::Expected<ModelSource> parseModel(llvm::StringRef model);

} // namespace qwen35

#endif // QWEN35_FRONTEND_CONFIG_MODELFILES_H
