#ifndef QWEN35_TEST_UNIT_CHECKPOINT_CHECKPOINT_TEST_UTIL_H
#define QWEN35_TEST_UNIT_CHECKPOINT_CHECKPOINT_TEST_UTIL_H

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "runtime/checkpoint/file_io.h"
#include "runtime/checkpoint/hf_checkpoint.h"
#include "runtime/checkpoint/safetensors.h"

namespace qwen35::test {

#define ASSERT_OK(expression)                                                  \
  do {                                                                         \
    auto &&_result = (expression);                                             \
    ASSERT_TRUE(qwen35::test::statusOf(_result).ok())                          \
        << qwen35::test::statusOf(_result);                                    \
  } while (false)

inline const absl::Status &statusOf(const absl::Status &status) {
  return status;
}
template <typename T>
const absl::Status &statusOf(const absl::StatusOr<T> &result) {
  return result.status();
}

/// A folder of the test's own, removed with all it holds.
class TempFolder {
public:
  TempFolder() {
    const char *base = std::getenv("TMPDIR");
    std::string pattern =
        joinPath(base ? base : "/tmp", "qwen35-test-XXXXXX");
    if (!::mkdtemp(pattern.data()))
      std::abort();
    path = pattern;
  }
  ~TempFolder() { removeAll(path).IgnoreError(); }
  std::string in(absl::string_view name) const { return joinPath(path, name); }

  std::string path;
};

/// One tensor with its bytes.
struct MadeTensor {
  std::string name;
  ElementType type;
  std::vector<int64_t> shape;
  std::string bytes;
};

/// A tensor of distinct, exactly representable values: its place in a fixed
/// sequence that differs per name.
inline MadeTensor makeTensor(const std::string &name, ElementType type,
                             std::vector<int64_t> shape) {
  uint32_t salt = 2166136261u;
  for (char c : name)
    salt = (salt ^ static_cast<unsigned char>(c)) * 16777619u;
  int64_t count = elementsOf(shape);
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i) {
    salt = salt * 1664525u + 1013904223u;
    // Eight significant bits, so that every type holds the value exactly.
    values[i] = static_cast<float>(static_cast<int32_t>(salt >> 24) - 128) /
                64.0f;
  }
  MadeTensor tensor{name, type, std::move(shape), {}};
  tensor.bytes.resize(count * bytesOf(type));
  fromFloat(type, values.data(), count, tensor.bytes.data());
  return tensor;
}

inline std::vector<float> floatsOf(const MadeTensor &tensor) {
  std::vector<float> values(elementsOf(tensor.shape));
  toFloat(tensor.type, tensor.bytes.data(),
          static_cast<int64_t>(values.size()), values.data());
  return values;
}

inline absl::Status writeTensors(const std::string &path,
                                 const std::vector<MadeTensor> &tensors) {
  std::vector<TensorSource> sources;
  for (const MadeTensor &tensor : tensors)
    sources.push_back(tensorFromBytes(tensor.name, tensor.type, tensor.shape,
                                      tensor.bytes.data()));
  return writeSafetensors(path, sources, {{"format", "pt"}}).status();
}

/// Writes shards and their index.
inline absl::Status
writeShards(const TempFolder &folder,
            const std::map<std::string, std::vector<MadeTensor>> &shards,
            const std::string &totalSize = "123.0") {
  std::string map;
  for (const auto &[file, tensors] : shards) {
    if (absl::Status status = writeTensors(folder.in(file), tensors);
        !status.ok())
      return status;
    for (const MadeTensor &tensor : tensors)
      absl::StrAppend(&map, map.empty() ? "" : ",\n", "    \"", tensor.name,
                      "\": \"", file, "\"");
  }
  return writeFile(folder.in(kIndexName),
                   absl::StrCat("{\n  \"metadata\": {\n    \"total_size\": ",
                                totalSize, "\n  },\n  \"weight_map\": {\n", map,
                                "\n  }\n}\n"));
}

/// Float arrays for the parameters of a model.
struct Weights {
  explicit Weights(absl::Span<const ParamSpec> params) {
    for (const ParamSpec &param : params)
      arrays.emplace_back(param.elements(), -1.0f);
  }
  std::vector<absl::Span<float>> mut() {
    std::vector<absl::Span<float>> spans;
    for (std::vector<float> &array : arrays)
      spans.push_back(absl::MakeSpan(array));
    return spans;
  }
  std::vector<absl::Span<const float>> view() const {
    return {arrays.begin(), arrays.end()};
  }
  std::vector<std::vector<float>> arrays;
};

inline std::string readAll(const std::string &path) {
  absl::StatusOr<std::string> text = readFile(path, int64_t{1} << 30);
  EXPECT_TRUE(text.ok()) << text.status();
  return text.ok() ? *text : std::string();
}

/// dtype, shape and bytes of every tensor of a folder, as one map.
inline std::map<std::string, std::string>
tensorsOf(const std::string &folderPath) {
  std::map<std::string, std::string> result;
  absl::StatusOr<HfFolder> folder = HfFolder::open(folderPath);
  EXPECT_TRUE(folder.ok()) << folder.status();
  if (!folder.ok())
    return result;
  for (const auto &[name, tensor] : folder->tensors())
    result[name] = absl::StrCat(nameOf(tensor.info->type), " ",
                                shapeText(tensor.info->shape), " ",
                                folder->bytes(tensor));
  return result;
}

inline void expectError(const absl::Status &status,
                        std::vector<std::string> parts) {
  ASSERT_FALSE(status.ok());
  for (const std::string &part : parts)
    EXPECT_NE(std::string(status.message()).find(part), std::string::npos)
        << "expected \"" << part << "\" in: " << status.message();
}

} // namespace qwen35::test

#endif // QWEN35_TEST_UNIT_CHECKPOINT_CHECKPOINT_TEST_UTIL_H
