#ifndef QWEN35_TEST_UNIT_DATA_DATA_TEST_UTIL_H
#define QWEN35_TEST_UNIT_DATA_DATA_TEST_UTIL_H

#include "runtime/data/corpus.h"
#include "runtime/data/token_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <unistd.h>
#include <vector>

namespace qwen35 {

/// A path in a folder that this test process removes when it ends.
inline std::string tempPath(const std::string &name) {
  struct Folder {
    std::string path =
        testing::TempDir() + "/q35data_" + std::to_string(getpid());
    Folder() { std::filesystem::create_directories(path); }
    ~Folder() { std::filesystem::remove_all(path); }
  };
  static Folder folder;
  return folder.path + "/" + name;
}

inline std::string writeBytes(const std::string &name,
                              const std::string &bytes) {
  std::string path = tempPath(name);
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

inline std::string readBytes(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline bool exists(const std::string &path) {
  return access(path.c_str(), F_OK) == 0;
}

struct Document {
  std::vector<int64_t> ids;
  std::vector<uint8_t> mask;
};

inline std::string writeTokens(const std::string &name, int64_t vocab,
                               const std::vector<Document> &documents) {
  std::string path = tempPath(name);
  auto writer = TokenFileWriter::create(path, vocab);
  EXPECT_TRUE(writer.ok()) << writer.status();
  for (const Document &document : documents)
    EXPECT_TRUE((*writer)->add(document.ids, document.mask).ok());
  EXPECT_TRUE((*writer)->finish().ok());
  return path;
}

inline std::shared_ptr<const Corpus>
openCorpus(const std::vector<std::string> &paths, int64_t vocab) {
  auto corpus = Corpus::open(paths, {vocab, vocab == 256});
  EXPECT_TRUE(corpus.ok()) << corpus.status();
  return corpus.ok() ? *corpus : nullptr;
}

inline std::string openError(const std::string &path, int64_t vocab,
                             bool bytes = false) {
  auto corpus = Corpus::open({path}, {vocab, bytes});
  EXPECT_FALSE(corpus.ok());
  return std::string(corpus.status().message());
}

} // namespace qwen35

#endif // QWEN35_TEST_UNIT_DATA_DATA_TEST_UTIL_H
