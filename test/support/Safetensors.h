#ifndef QWEN35_TEST_SUPPORT_SAFETENSORS_H
#define QWEN35_TEST_SUPPORT_SAFETENSORS_H

#include "nlohmann/json.hpp"
#include "gtest/gtest.h"

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace qwen35::test {

/// A safetensors file in memory, for tests: golden tensors and fixtures that
/// are trusted to be well formed.
///
/// Units   Shapes count elements.
/// Errors  A file or tensor that cannot be read fails the running test and
///         reads as empty.
/// Source  https://github.com/huggingface/safetensors: a little-endian 64-bit
///         length, that many bytes of JSON, then the data.
class Safetensors {
public:
  explicit Safetensors(const std::string &path) : path(path) {
    std::ifstream in(path, std::ios::binary);
    if (!in) {
      ADD_FAILURE() << "cannot open " << path;
      return;
    }
    bytes.assign(std::istreambuf_iterator<char>(in), {});
    uint64_t length = 0;
    if (bytes.size() >= sizeof(length))
      std::memcpy(&length, bytes.data(), sizeof(length));
    if (bytes.size() < sizeof(length) ||
        length > bytes.size() - sizeof(length)) {
      ADD_FAILURE() << path << " is not a safetensors file";
      return;
    }
    data = sizeof(length) + length;
    header = nlohmann::json::parse(bytes.begin() + sizeof(length),
                                   bytes.begin() + data, nullptr,
                                   /*allow_exceptions=*/false);
    if (!header.is_object()) {
      header = nlohmann::json::object();
      ADD_FAILURE() << path << " has no JSON header";
    }
  }

  bool has(const std::string &name) const { return header.contains(name); }

  /// Names of all tensors, in alphabetical order.
  std::vector<std::string> names() const {
    std::vector<std::string> result;
    for (const auto &item : header.items())
      if (item.key() != "__metadata__")
        result.push_back(item.key());
    return result;
  }

  /// "F64", "F32", "I32", "I64", ...; empty if there is no such tensor.
  std::string dtype(const std::string &name) const {
    return has(name) ? header.at(name).at("dtype").get<std::string>()
                     : std::string();
  }

  std::vector<int64_t> shape(const std::string &name) const {
    return has(name) ? header.at(name).at("shape").get<std::vector<int64_t>>()
                     : std::vector<int64_t>();
  }

  /// Elements of an F64 or F32 tensor.
  template <typename Real = double>
  std::vector<Real> reals(const std::string &name) const {
    std::string type = dtype(name);
    if (type == "F64")
      return read<double, Real>(name);
    if (type == "F32")
      return read<float, Real>(name);
    ADD_FAILURE() << path << " has no F64 or F32 tensor " << name;
    return {};
  }

  /// Elements of an I32 or I64 tensor.
  template <typename Int = int32_t>
  std::vector<Int> integers(const std::string &name) const {
    std::string type = dtype(name);
    if (type == "I32")
      return read<int32_t, Int>(name);
    if (type == "I64")
      return read<int64_t, Int>(name);
    ADD_FAILURE() << path << " has no I32 or I64 tensor " << name;
    return {};
  }

private:
  template <typename Stored, typename Result>
  std::vector<Result> read(const std::string &name) const {
    uint64_t begin = header.at(name).at("data_offsets").at(0);
    uint64_t end = header.at(name).at("data_offsets").at(1);
    if (begin > end || end > bytes.size() - data) {
      ADD_FAILURE() << path << " ends before tensor " << name;
      return {};
    }
    std::vector<Stored> stored((end - begin) / sizeof(Stored));
    std::memcpy(stored.data(), bytes.data() + data + begin,
                stored.size() * sizeof(Stored));
    return std::vector<Result>(stored.begin(), stored.end());
  }

  std::string path;
  std::vector<char> bytes;
  size_t data = 0; // offset of the first tensor
  nlohmann::json header = nlohmann::json::object();
};

} // namespace qwen35::test

#endif // QWEN35_TEST_SUPPORT_SAFETENSORS_H
