#ifndef QWEN35_TEST_UNIT_E2E_E2E_H
#define QWEN35_TEST_UNIT_E2E_E2E_H

// What the tests of the product share: bundles, compiled once per binary and
// set of arguments; texts; batches for the black-box door.

#include "test/support/Command.h"
#include "test/support/Safetensors.h"

#include "nlohmann/json.hpp"

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace qwen35::test {

inline std::string quiet(const std::string &command) {
  CommandResult result = run(command);
  EXPECT_TRUE(result.ok()) << command << "\n" << result.output;
  return result.output;
}

/// The bundle that `qwen35c ARGUMENTS` makes.
inline std::string bundleOf(const std::string &arguments) {
  static TempFolder folder;
  static std::map<std::string, std::string> bundles;
  std::string &path = bundles[arguments];
  if (path.empty()) {
    path = folder / (std::to_string(bundles.size()) + ".q35");
    quiet(tool("qwen35c") + " " + arguments + " -o " + path);
  }
  return path;
}

/// A model of the reference implementation, in the source tree.
inline std::string golden(const std::string &name) {
  return std::string(QWEN35_SOURCE_DIR) + "/test/golden/" + name;
}

/// The config.json of a golden model with some values replaced.
inline std::string changedConfig(const std::string &model,
                                 const nlohmann::json &changes) {
  auto config = nlohmann::json::parse(readFile(golden(model) + "/config.json"));
  config.update(changes);
  return config.dump(2);
}

/// Paragraphs of 5 to 60 words, the same every time.
inline std::string sampleText() {
  std::string text;
  uint32_t state = 1;
  auto next = [&](uint32_t limit) {
    state = state * 1664525u + 1013904223u;
    return (state >> 16) % limit;
  };
  for (int paragraph = 0; paragraph < 60; ++paragraph) {
    for (uint32_t word = 0, words = 5 + next(56); word < words; ++word)
      text += (word ? " w" : "w") + std::to_string(next(40));
    text += "\n\n";
  }
  return text;
}

/// One tensor of a safetensors file that a test writes.
struct RawTensor {
  std::string name, dtype; // "F32"
  std::vector<int64_t> shape;
  std::string bytes;
};

template <typename T> std::string bytesOf(const std::vector<T> &values) {
  return std::string(reinterpret_cast<const char *>(values.data()),
                     values.size() * sizeof(T));
}

/// Writes the tensors in the order given, which is the order of their bytes.
inline void writeTensors(const std::string &path,
                         const std::vector<RawTensor> &tensors) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  std::string data;
  for (const RawTensor &tensor : tensors) {
    size_t begin = data.size();
    data += tensor.bytes;
    header[tensor.name] = {{"dtype", tensor.dtype},
                           {"shape", tensor.shape},
                           {"data_offsets", {begin, data.size()}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  uint64_t length = text.size();
  std::string file(reinterpret_cast<const char *>(&length), 8);
  writeFile(path, file + text + data);
}

/// Every tensor of a file that a test can trust, in the order of their bytes.
inline std::vector<RawTensor> readTensors(const std::string &path) {
  std::string file = readFile(path);
  uint64_t length = 0;
  std::vector<RawTensor> tensors;
  if (file.size() < 8) {
    ADD_FAILURE() << path << " is no safetensors file";
    return tensors;
  }
  std::memcpy(&length, file.data(), 8);
  auto header = nlohmann::json::parse(file.substr(8, length));
  std::map<std::pair<uint64_t, std::string>, RawTensor> byPlace;
  for (auto &[name, entry] : header.items()) {
    if (name == "__metadata__")
      continue;
    uint64_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
    byPlace[{begin, name}] = {name, entry["dtype"], entry["shape"],
                              file.substr(8 + length + begin, end - begin)};
  }
  for (auto &[place, tensor] : byPlace)
    tensors.push_back(std::move(tensor));
  return tensors;
}

/// One row of documents: `ids` and unshifted `labels`.
inline void writeRow(const std::string &path, const std::vector<int64_t> &ids,
                     const std::vector<int64_t> &labels,
                     const std::vector<int64_t> &cuSeqlens) {
  int64_t tokens = static_cast<int64_t>(ids.size());
  writeTensors(path, {{"input_ids", "I64", {1, tokens}, bytesOf(ids)},
                      {"labels", "I64", {1, tokens}, bytesOf(labels)},
                      {"cu_seqlens",
                       "I64",
                       {static_cast<int64_t>(cuSeqlens.size())},
                       bytesOf(cuSeqlens)}});
}

/// Every tensor of two dumps has the same bits.
inline void expectSameDump(const std::string &a, const std::string &b) {
  Safetensors left(a), right(b);
  ASSERT_EQ(left.names(), right.names());
  for (const std::string &name : left.names()) {
    auto x = left.reals<float>(name), y = right.reals<float>(name);
    ASSERT_EQ(x.size(), y.size()) << name;
    EXPECT_EQ(std::memcmp(x.data(), y.data(), x.size() * 4), 0) << name;
  }
}

} // namespace qwen35::test

#endif // QWEN35_TEST_UNIT_E2E_E2E_H
