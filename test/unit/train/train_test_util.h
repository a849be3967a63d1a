#ifndef QWEN35_TEST_UNIT_TRAIN_TRAIN_TEST_UTIL_H
#define QWEN35_TEST_UNIT_TRAIN_TRAIN_TEST_UTIL_H

#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "runtime/train/run.h"
#include "runtime/train/training_step.h"
#include "test/unit/bundle/tiny_bundle.h"
#include "test/unit/checkpoint/checkpoint_test_util.h"

namespace qwen35::test {

/// The tiny bundle, a text to train on and a place for runs.
class TinyRun {
public:
  explicit TinyRun(
      const std::function<void(bundle::Bundle &)> &change = nullptr) {
    std::string text;
    for (int paragraph = 0; paragraph < 40; ++paragraph)
      absl::StrAppend(&text, "Paragraph ", paragraph,
                      " says what the one before it said.\n\n");
    EXPECT_TRUE(writeFile(folder.in("text"), text).ok());
    EXPECT_TRUE(writeFile(folder.in("tiny.q35"), tinyBundle(change)).ok());
  }

  /// A fresh run of `steps` steps into folder `out`.
  RunOptions options(int64_t steps, const std::string &out = "run") const {
    RunOptions result;
    result.bundle = folder.in("tiny.q35");
    result.initSeed = 7;
    result.data = {folder.in("text")};
    result.out = folder.in(out);
    result.steps = steps;
    result.threads = 1;
    // 10: one word is hit by an eighth of the tokens at most.
    result.sets = {"optim.lr=10", "schedule.kind=constant", "train.rows=3"};
    return result;
  }

  absl::Status run(const RunOptions &options) {
    std::FILE *out = std::fopen(folder.in("out").c_str(), "w");
    absl::Status status = runBundle(options, out);
    std::fclose(out);
    output = readAll(folder.in("out"));
    return status;
  }

  /// The tensors of a checkpoint, as one text to compare.
  std::string state(const std::string &out, int64_t step) const {
    std::string path = absl::StrCat(
        folder.in(out), "/checkpoints/step-",
        std::string(8 - std::to_string(step).size(), '0'), step);
    EXPECT_TRUE(CheckpointStore::check(path).ok()) << path;
    std::string all;
    for (const char *role : {"weights", "m", "v"})
      all += readAll(
          absl::StrCat(path, "/", role, "-00001-of-00001.safetensors"));
    return all;
  }

  TempFolder folder;
  std::string output; // of the last run
};

inline void expectContains(const std::string &text, const std::string &part) {
  EXPECT_NE(text.find(part), std::string::npos)
      << "expected \"" << part << "\" in:\n"
      << text;
}

/// Lines of a text that contain a part.
inline int countLines(const std::string &text, const std::string &part) {
  int count = 0;
  size_t at = 0;
  while (at < text.size()) {
    size_t end = std::min(text.find('\n', at), text.size());
    count += text.substr(at, end - at).find(part) != std::string::npos;
    at = end + 1;
  }
  return count;
}

} // namespace qwen35::test

#endif // QWEN35_TEST_UNIT_TRAIN_TRAIN_TEST_UTIL_H
