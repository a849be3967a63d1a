#ifndef QWEN35_RUNTIME_CHECKPOINT_SAFETENSORS_H
#define QWEN35_RUNTIME_CHECKPOINT_SAFETENSORS_H

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "runtime/checkpoint/element_type.h"
#include "runtime/checkpoint/file_io.h"
#include "runtime/checkpoint/param_store.h"

namespace qwen35 {

/// One tensor of a file. `begin` counts bytes from the end of the header.
struct TensorInfo {
  std::string name;
  ElementType type = ElementType::F32;
  std::vector<int64_t> shape;
  int64_t begin = 0;
  int64_t bytes = 0;
};

using TensorMetadata = std::map<std::string, std::string>;

/// A safetensors file: 8 bytes little endian length of a JSON header, the
/// header, then the tensors, row-major and dense.
///
/// The file is treated as hostile. Accepted is only what the format allows: a
/// header of at most 100 MB inside the file, every name once, known dtypes,
/// bytes equal to dtype times shape, tensors that tile the data from its first
/// to its last byte without overlap or hole.
///
/// Errors  InvalidArgument "FILE: tensor NAME ...", with what was found and
///         what was expected.
/// Source  https://huggingface.co/docs/safetensors, section Format.
class SafetensorsFile {
public:
  static absl::StatusOr<SafetensorsFile> open(const std::string &path);

  const std::string &path() const { return file.path(); }
  /// In the order of their bytes.
  const std::vector<TensorInfo> &tensors() const { return infos; }
  const TensorMetadata &metadata() const { return pairs; }
  /// Null when the file has no such tensor.
  const TensorInfo *find(absl::string_view name) const;
  /// The bytes of a tensor of this file; at any alignment.
  absl::string_view bytes(const TensorInfo &info) const {
    return absl::string_view(file.data() + dataBegin + info.begin,
                             static_cast<size_t>(info.bytes));
  }
  /// The header as it stands in the file, with its length and padding.
  absl::string_view header() const {
    return absl::string_view(file.data(), static_cast<size_t>(dataBegin));
  }

private:
  explicit SafetensorsFile(MappedFile file) : file(std::move(file)) {}
  absl::Status parse();
  absl::Status fail(absl::string_view message) const;

  MappedFile file;
  int64_t dataBegin = 0;
  std::vector<TensorInfo> infos;
  std::map<std::string, size_t> byName;
  TensorMetadata pairs;
};

/// Takes the bytes of one tensor, in pieces of any size.
using TensorSink = std::function<absl::Status(const char *, int64_t)>;

/// A tensor to write: `write` hands its bytes, all of them, to the sink.
struct TensorSource {
  std::string name;
  ElementType type = ElementType::F32;
  std::vector<int64_t> shape;
  std::function<absl::Status(const TensorSink &)> write;
};

/// A source of one array of a parameter, float32; the store outlives the write.
TensorSource tensorFromStore(std::string name, std::vector<int64_t> shape,
                             const ParamStore &store, ParamRole role,
                             size_t param);

/// A source over bytes that outlive the write.
TensorSource tensorFromBytes(std::string name, ElementType type,
                             std::vector<int64_t> shape, const void *bytes);

/// Header text (with length and padding) for tensors laid out in this order.
std::string safetensorsHeader(absl::Span<const TensorSource> tensors,
                              const TensorMetadata &metadata);

/// Writes the tensors in the order given; equal input, equal bytes. The file
/// appears complete or not at all (FileWriter). `header` may carry the header
/// of a file that this one reproduces; otherwise it is made.
///
/// Errors  InvalidArgument for a name given twice or a source of the wrong
///         length; whatever a source returns; those of FileWriter.
absl::StatusOr<FileDigest>
writeSafetensors(const std::string &path, absl::Span<const TensorSource> tensors,
                 const TensorMetadata &metadata, absl::string_view header = {});

/// The order for a file that follows no original: wide types first, so that
/// every tensor is aligned, then by name.
void sortForWriting(std::vector<TensorSource> *tensors);

} // namespace qwen35

#endif // QWEN35_RUNTIME_CHECKPOINT_SAFETENSORS_H
