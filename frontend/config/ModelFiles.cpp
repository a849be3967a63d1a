#include "frontend/config/ModelFiles.h"

#include "frontend/config/ConfigJson.h"
#include "frontend/config/Presets.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"

namespace qwen35 {
namespace {

namespace fs = llvm::sys::fs;
namespace path = llvm::sys::path;

// A real one has a few KiB; anything far above was named by mistake.
constexpr uint64_t kMaxConfigBytes = uint64_t(1) << 20;

/// The name of the folder of `file`, whatever way the path was written.
std::string folderName(llvm::StringRef file) {
  llvm::SmallString<256> full(file);
  if (fs::make_absolute(full))
    return path::parent_path(file).str();
  path::remove_dots(full, /*remove_dot_dot=*/true);
  return path::filename(path::parent_path(full)).str();
}

llvm::Expected<ModelSource> readFile(llvm::StringRef file) {
  auto failed = [&](const llvm::Twine &why) {
    return configError(file + ": " + why);
  };
  fs::file_status status;
  if (std::error_code code = fs::status(file, status))
    return failed(code.message());
  if (status.type() != fs::file_type::regular_file)
    return failed("found something else than a file, expected a config.json");
  if (status.getSize() > kMaxConfigBytes)
    return failed(llvm::formatv("found {0} bytes, expected a config.json of at "
                                "most {1}",
                                status.getSize(), kMaxConfigBytes));
  auto buffer = llvm::MemoryBuffer::getFile(file, /*IsText=*/true);
  if (!buffer)
    return failed(buffer.getError().message());

  llvm::Expected<ParsedConfig> parsed = parseConfigJson((*buffer)->getBuffer());
  if (!parsed)
    return failed(llvm::toString(parsed.takeError()));
  ModelSource source;
  source.config = std::move(parsed->config);
  source.name = folderName(file);
  source.configJson = (*buffer)->getBuffer().str();
  source.directory = path::parent_path(file).str();
  if (source.directory.empty())
    source.directory = ".";
  for (const std::string &warning : parsed->warnings)
    source.warnings.push_back(file.str() + ": " + warning);
  return source;
}

} // namespace

llvm::Expected<ModelSource> parseModel(llvm::StringRef model) {
  if (llvm::is_contained(presetNames(), model)) {
    llvm::Expected<ModelConfig> config = presetConfig(model);
    if (!config)
      return config.takeError();
    ModelSource source;
    source.configJson = toConfigJson(*config);
    source.config = std::move(*config);
    source.name = model.str();
    return source;
  }
  if (fs::is_directory(model)) {
    llvm::SmallString<256> file(model);
    path::append(file, "config.json");
    if (!fs::exists(file))
      return configError(model + ": the folder has no config.json, expected a "
                                 "Hugging Face checkpoint");
    return readFile(file);
  }
  if (fs::exists(model) || model.contains('/') || model.ends_with(".json"))
    return readFile(model);

  llvm::Expected<ModelConfig> unknown = presetConfig(model);
  return configError(llvm::toString(unknown.takeError()) +
                     ". Or give the path of a config.json or of a folder that "
                     "holds one");
}

} // namespace qwen35
