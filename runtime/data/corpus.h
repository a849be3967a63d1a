#ifndef QWEN35_RUNTIME_DATA_CORPUS_H
#define QWEN35_RUNTIME_DATA_CORPUS_H

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace qwen35 {

class DataFile; // one mapped file, in Corpus.cpp

struct CorpusOptions {
  int64_t vocabSize = 0;       // the model's
  bool byteVocabulary = false; // plain text files are read as bytes
};

/// The documents of the files given to --data, numbered through in that order.
///
/// A file is a token file (token_file.h), known by its first bytes, or, for a
/// model with a byte vocabulary, plain text: UTF-8 or any bytes but NUL, one
/// document per paragraph. Paragraphs are what blank lines (white space only)
/// separate; the line break that ends one is not part of it.
///
/// Units   Documents, tokens. Files are mapped, not read; a text file costs 16
///         bytes of memory per paragraph.
/// Threads Const and safe to share.
class Corpus {
public:
  /// Errors  NotFound or Unavailable naming the path; InvalidArgument for a
  ///         file that is neither, a damaged one, one without any token, a
  ///         vocabulary larger than the model's when an id needs it.
  static absl::StatusOr<std::shared_ptr<const Corpus>>
  open(const std::vector<std::string> &paths, const CorpusOptions &options);
  ~Corpus();

  int64_t files() const;
  int64_t documents() const;      // empty ones included
  int64_t emptyDocuments() const; // also those the converter left out
  int64_t tokens() const;
  /// Changes when any file's content or their order changes.
  uint32_t fingerprint() const;

  /// Tokens of document d; 0 for an empty one.
  int64_t length(int64_t d) const;
  /// Copies ids [first, first + count) of document d.
  /// Errors  InvalidArgument naming file, document, position, id and
  ///         vocabulary, when an id is outside the model's vocabulary.
  absl::Status read(int64_t d, int64_t first, int64_t count,
                    int32_t *ids) const;
  /// Whether document d has a loss mask, and token i of it counts as a target.
  bool hasMask(int64_t d) const;
  bool counts(int64_t d, int64_t i) const;
  /// How many of tokens [first, first + count) of document d count.
  int64_t countTargets(int64_t d, int64_t first, int64_t count) const;

  /// Reads every file to its end: checksums of the contents, every id.
  absl::Status verify() const;

private:
  Corpus();
  const DataFile &fileOf(int64_t d, int64_t &local) const;

  CorpusOptions options;
  std::vector<std::unique_ptr<DataFile>> parts;
  std::vector<int64_t> firstDocument; // of each file, and the total
};

/// Where the paragraphs of a text lie, as [begin, end) byte offsets.
std::vector<std::pair<int64_t, int64_t>> findParagraphs(const uint8_t *text,
                                                        int64_t bytes);

} // namespace qwen35

#endif // QWEN35_RUNTIME_DATA_CORPUS_H
