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

/// A safetensors file of int64 tensors.
inline void writeInt64(
    const std::string &path,
    const std::vector<std::tuple<std::string, std::vector<int64_t>,
                                 std::vector<int64_t>>> &tensors) {
  nlohmann::json header = nlohmann::json::object();
  std::string data;
  for (const auto &[name, shape, values] : tensors) {
    size_t begin = data.size();
    data.append(reinterpret_cast<const char *>(values.data()),
                values.size() * 8);
    header[name] = {{"dtype", "I64"},
                    {"shape", shape},
                    {"data_offsets", {begin, data.size()}}};
  }
  std::string text = header.dump();
  uint64_t length = text.size();
  std::string file(reinterpret_cast<const char *>(&length), 8);
  writeFile(path, file + text + data);
}

/// One row of documents: `ids` and unshifted `labels`.
inline void writeRow(const std::string &path, const std::vector<int64_t> &ids,
                     const std::vector<int64_t> &labels,
                     const std::vector<int64_t> &cuSeqlens) {
  int64_t tokens = static_cast<int64_t>(ids.size());
  writeInt64(path, {{"input_ids", {1, tokens}, ids},
                    {"labels", {1, tokens}, labels},
                    {"cu_seqlens",
                     {static_cast<int64_t>(cuSeqlens.size())},
                     cuSeqlens}});
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
