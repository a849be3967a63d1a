#ifndef QWEN35_RUNTIME_DATA_TOKEN_FILE_H
#define QWEN35_RUNTIME_DATA_TOKEN_FILE_H

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace qwen35 {

/// The token file: documents of token ids, made by qwen35-data, mapped by the
/// loader. All integers are little endian.
///
///   offset  bytes  field
///        0      8  magic "Q35TOKS\0"
///        8      4  version, 1
///       12      4  bytes per token: 2 (vocabulary up to 65536) or 4
///       16      8  vocabulary size V, 1 to 2^31 - 1; every id is below it
///       24      8  tokens N, at most 2^48
///       32      8  documents D, at most 2^40
///       40      8  flags: bit 0, there is a loss mask; the rest zero
///       48      8  offset of the tokens: 128
///       56      8  offset of the document index, a multiple of 8
///       64      8  offset of the loss mask, 0 without one
///       72      8  size of the file
///       80      8  documents the converter left out because they were empty
///       88      4  CRC-32C of everything after the header
///       92     32  zero
///      124      4  CRC-32C of bytes 0 to 123
///      128         tokens, N x width; zeros to the next multiple of 8
///                  index, (D + 1) x 8: first token of document d, then N
///                  mask, ceil(N / 8): bit i % 8 of byte i / 8 is 1 when token
///                  i counts in the loss as a target
///
/// Sections follow each other without gaps but that padding, so the header
/// fixes every offset; a reader refuses any other value.
struct TokenFileHeader {
  static constexpr int64_t kBytes = 128;
  static constexpr uint32_t kVersion = 1;
  static constexpr char kMagic[8] = {'Q', '3', '5', 'T', 'O', 'K', 'S', '\0'};

  int64_t width = 2;
  int64_t vocabSize = 0;
  int64_t tokens = 0;
  int64_t documents = 0;
  bool hasMask = false;
  int64_t emptyDocuments = 0;
  uint32_t contentCrc = 0;

  int64_t tokensOffset() const { return kBytes; }
  int64_t indexOffset() const;
  int64_t maskOffset() const; // where a mask is, or the end of the file
  int64_t fileBytes() const;

  /// The 128 bytes, checksum included.
  std::vector<uint8_t> encode() const;
  /// Errors  InvalidArgument: what is wrong, found and expected. `fileBytes` is
  ///         the size of the file the bytes come from.
  static absl::StatusOr<TokenFileHeader> decode(absl::Span<const uint8_t> bytes,
                                                int64_t fileBytes);
};

/// Writes a token file, document by document. Memory: 8 bytes per document and
/// one bit per token. The file appears under its name when finish() succeeds,
/// whole and on disk; until then, and after an error, there is none.
class TokenFileWriter {
public:
  /// Errors  InvalidArgument for a vocabulary outside 1 .. 2^31 - 1; else what
  ///         the file system says, naming the path.
  static absl::StatusOr<std::unique_ptr<TokenFileWriter>>
  create(const std::string &path, int64_t vocabSize);
  ~TokenFileWriter();
  TokenFileWriter(const TokenFileWriter &) = delete;
  TokenFileWriter &operator=(const TokenFileWriter &) = delete;

  /// Appends a document. `mask` is empty (every token counts) or has one 0 or
  /// 1 per id. A document without ids is counted and left out.
  /// Errors  InvalidArgument naming position, id and vocabulary, or lengths.
  absl::Status add(absl::Span<const int64_t> ids,
                   absl::Span<const uint8_t> mask = {});
  /// The same for a byte vocabulary.
  absl::Status addBytes(absl::Span<const uint8_t> bytes);

  /// Errors  InvalidArgument when no document was added.
  absl::Status finish();

  /// Counts so far.
  const TokenFileHeader &header() const { return head; }

private:
  TokenFileWriter() = default;
  absl::Status write(const void *data, int64_t bytes);
  absl::Status flush();
  absl::Status failed(const char *what);
  void noteMask(int64_t count, absl::Span<const uint8_t> mask);

  std::string path, temporary;
  int fd = -1;
  TokenFileHeader head;
  std::vector<uint8_t> buffer;
  std::vector<uint64_t> starts;
  std::vector<uint8_t> maskBits;
};

} // namespace qwen35

#endif // QWEN35_RUNTIME_DATA_TOKEN_FILE_H
