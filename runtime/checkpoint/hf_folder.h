#ifndef QWEN35_RUNTIME_CHECKPOINT_HF_FOLDER_H
#define QWEN35_RUNTIME_CHECKPOINT_HF_FOLDER_H

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/checkpoint/safetensors.h"

namespace qwen35 {

/// A Hugging Face model folder: its safetensors files, opened and checked
/// against the index, whatever the tensors are called.
///
/// With model.safetensors.index.json the files are those that it names (both
/// shard name patterns occur, so names are never guessed); without it the one
/// file is model.safetensors.
///
/// Errors  NotFound if there is neither; InvalidArgument for an index that
///         names a path outside the folder, a tensor that its file lacks, or
///         files that hold a tensor the index does not place there.
class HfFolder {
public:
  struct Tensor {
    size_t file = 0; // in files()
    const TensorInfo *info = nullptr;
  };

  static absl::StatusOr<HfFolder> open(const std::string &folder);

  const std::string &path() const { return folder; }
  /// In the order of their names.
  const std::vector<SafetensorsFile> &files() const { return shards; }
  /// The name of files()[i] below path().
  const std::string &fileName(size_t i) const { return names[i]; }
  /// Every tensor, by name.
  const std::map<std::string, Tensor> &tensors() const { return byName; }
  absl::string_view bytes(const Tensor &tensor) const {
    return shards[tensor.file].bytes(*tensor.info);
  }
  /// The text of the index, empty without one.
  const std::string &indexText() const { return index; }

private:
  absl::Status readIndex(const std::string &path);

  std::string folder, index;
  std::vector<std::string> names;
  std::vector<SafetensorsFile> shards;
  std::map<std::string, Tensor> byName;
};

constexpr char kIndexName[] = "model.safetensors.index.json";
constexpr char kSingleName[] = "model.safetensors";

} // namespace qwen35

#endif // QWEN35_RUNTIME_CHECKPOINT_HF_FOLDER_H
