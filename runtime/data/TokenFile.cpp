#include "runtime/data/token_file.h"

#include "runtime/crc/crc32c.h"

#include "absl/strings/str_cat.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

// Files are little endian and are mapped as they lie.
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);

namespace qwen35 {

static constexpr int64_t kMaxTokens = int64_t{1} << 48;
static constexpr int64_t kMaxDocuments = int64_t{1} << 40;
static constexpr int64_t kMaxVocab = (int64_t{1} << 31) - 1;
static constexpr size_t kFlushBytes = 1 << 20;

// Within the bounds above none of these can overflow.
int64_t TokenFileHeader::indexOffset() const {
  return (kBytes + tokens * width + 7) / 8 * 8;
}
int64_t TokenFileHeader::maskOffset() const {
  return indexOffset() + (documents + 1) * 8;
}
int64_t TokenFileHeader::fileBytes() const {
  return maskOffset() + (hasMask ? (tokens + 7) / 8 : 0);
}

template <typename T>
static void put(std::vector<uint8_t> &bytes, size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof(T));
}

template <typename T> static T get(absl::Span<const uint8_t> bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

std::vector<uint8_t> TokenFileHeader::encode() const {
  std::vector<uint8_t> bytes(kBytes);
  std::memcpy(bytes.data(), kMagic, sizeof(kMagic));
  put<uint32_t>(bytes, 8, kVersion);
  put<uint32_t>(bytes, 12, static_cast<uint32_t>(width));
  put<int64_t>(bytes, 16, vocabSize);
  put<int64_t>(bytes, 24, tokens);
  put<int64_t>(bytes, 32, documents);
  put<int64_t>(bytes, 40, hasMask ? 1 : 0);
  put<int64_t>(bytes, 48, tokensOffset());
  put<int64_t>(bytes, 56, indexOffset());
  put<int64_t>(bytes, 64, hasMask ? maskOffset() : 0);
  put<int64_t>(bytes, 72, fileBytes());
  put<int64_t>(bytes, 80, emptyDocuments);
  put<uint32_t>(bytes, 88, contentCrc);
  put<uint32_t>(bytes, 124, crc32c(bytes.data(), 124));
  return bytes;
}

absl::StatusOr<TokenFileHeader>
TokenFileHeader::decode(absl::Span<const uint8_t> bytes, int64_t fileBytes) {
  auto bad = [](const char *what, auto found, const std::string &expected) {
    return absl::InvalidArgumentError(absl::StrCat(
        "token file header: ", what, " is ", found, ", expected ", expected));
  };
  if (bytes.size() < kBytes)
    return bad("length", bytes.size(), absl::StrCat(kBytes, " bytes"));
  if (std::memcmp(bytes.data(), kMagic, sizeof(kMagic)) != 0)
    return absl::InvalidArgumentError(
        "token file header: magic is not \"Q35TOKS\"");
  uint32_t crc = crc32c(bytes.data(), 124);
  if (get<uint32_t>(bytes, 124) != crc)
    return bad("checksum", get<uint32_t>(bytes, 124), absl::StrCat(crc));
  if (get<uint32_t>(bytes, 8) != kVersion)
    return bad("version", get<uint32_t>(bytes, 8), absl::StrCat(kVersion));

  TokenFileHeader head;
  head.width = get<uint32_t>(bytes, 12);
  if (head.width != 2 && head.width != 4)
    return bad("bytes per token", head.width, "2 or 4");
  auto range = [&](const char *what, size_t at, int64_t low, int64_t high,
                   int64_t &out) -> absl::Status {
    out = get<int64_t>(bytes, at);
    if (out < low || out > high)
      return bad(what, out, absl::StrCat(low, " to ", high));
    return absl::OkStatus();
  };
  int64_t vocabLimit = head.width == 2 ? 65536 : kMaxVocab;
  int64_t flags = 0;
  for (absl::Status status :
       {range("vocabulary size", 16, 1, vocabLimit, head.vocabSize),
        range("tokens", 24, 0, kMaxTokens, head.tokens),
        range("documents", 32, 0, kMaxDocuments, head.documents),
        range("flags", 40, 0, 1, flags),
        range("empty documents", 80, 0, INT64_MAX, head.emptyDocuments)})
    if (!status.ok())
      return status;
  head.hasMask = flags == 1;
  head.contentCrc = get<uint32_t>(bytes, 88);

  struct Fixed {
    const char *what;
    size_t at;
    int64_t expected;
  };
  for (const Fixed &field :
       {Fixed{"offset of the tokens", 48, head.tokensOffset()},
        Fixed{"offset of the index", 56, head.indexOffset()},
        Fixed{"offset of the mask", 64, head.hasMask ? head.maskOffset() : 0},
        Fixed{"file size", 72, head.fileBytes()}})
    if (get<int64_t>(bytes, field.at) != field.expected)
      return bad(field.what, get<int64_t>(bytes, field.at),
                 absl::StrCat(field.expected));
  for (size_t i = 92; i < 124; ++i)
    if (bytes[i] != 0)
      return bad("reserved byte", static_cast<int>(bytes[i]), "0");
  if (fileBytes != head.fileBytes())
    return absl::InvalidArgumentError(
        absl::StrCat("token file has ", fileBytes, " bytes, its header says ",
                     head.fileBytes(),
                     fileBytes < head.fileBytes() ? "; it is truncated" : ""));
  return head;
}

absl::StatusOr<std::unique_ptr<TokenFileWriter>>
TokenFileWriter::create(const std::string &path, int64_t vocabSize) {
  if (vocabSize < 1 || vocabSize > kMaxVocab)
    return absl::InvalidArgumentError(absl::StrCat(
        "vocabulary size is ", vocabSize, ", expected 1 to ", kMaxVocab));
  std::unique_ptr<TokenFileWriter> writer(new TokenFileWriter);
  writer->path = path;
  writer->temporary = absl::StrCat(path, ".tmp", getpid());
  writer->head.vocabSize = vocabSize;
  writer->head.width = vocabSize <= 65536 ? 2 : 4;
  writer->fd = open(writer->temporary.c_str(),
                    O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (writer->fd < 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot create ", path));
  writer->starts.push_back(0);
  // The header's place; its real bytes come last.
  std::vector<uint8_t> blank(TokenFileHeader::kBytes);
  absl::Status status = writer->write(blank.data(), TokenFileHeader::kBytes);
  writer->head.contentCrc = 0;
  if (!status.ok())
    return status;
  return writer;
}

TokenFileWriter::~TokenFileWriter() {
  if (fd < 0)
    return;
  close(fd);
  unlink(temporary.c_str());
}

absl::Status TokenFileWriter::failed(const char *what) {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot ", what, " ", path));
}

absl::Status TokenFileWriter::write(const void *data, int64_t bytes) {
  const auto *p = static_cast<const uint8_t *>(data);
  head.contentCrc = crc32c(p, bytes, head.contentCrc);
  buffer.insert(buffer.end(), p, p + bytes);
  return buffer.size() >= kFlushBytes ? flush() : absl::OkStatus();
}

absl::Status TokenFileWriter::flush() {
  size_t done = 0;
  while (done < buffer.size()) {
    ssize_t n = ::write(fd, buffer.data() + done, buffer.size() - done);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      return failed("write");
    done += n;
  }
  buffer.clear();
  return absl::OkStatus();
}

/// Bits for the next `count` tokens, which are the last of head.tokens. The
/// bits exist from the first document that brings a mask on; those before are
/// then ones.
void TokenFileWriter::noteMask(int64_t count, absl::Span<const uint8_t> mask) {
  if (mask.empty() && !head.hasMask)
    return;
  int64_t first = head.hasMask ? head.tokens - count : 0;
  head.hasMask = true;
  maskBits.resize((head.tokens + 7) / 8);
  for (int64_t i = first; i < head.tokens; ++i) {
    int64_t inDocument = i - (head.tokens - count);
    if (mask.empty() || inDocument < 0 || mask[inDocument])
      maskBits[i / 8] |= static_cast<uint8_t>(1 << (i % 8));
  }
}

absl::Status TokenFileWriter::add(absl::Span<const int64_t> ids,
                                  absl::Span<const uint8_t> mask) {
  if (!mask.empty() && mask.size() != ids.size())
    return absl::InvalidArgumentError(absl::StrCat(
        "loss mask has ", mask.size(), " entries for ", ids.size(), " ids"));
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] < 0 || ids[i] >= head.vocabSize)
      return absl::InvalidArgumentError(
          absl::StrCat("position ", i, ": token id ", ids[i],
                       " is outside the vocabulary of ", head.vocabSize));
  for (size_t i = 0; i < mask.size(); ++i)
    if (mask[i] > 1)
      return absl::InvalidArgumentError(
          absl::StrCat("position ", i, ": loss mask is ",
                       static_cast<int>(mask[i]), ", expected 0 or 1"));
  if (ids.empty()) {
    ++head.emptyDocuments;
    return absl::OkStatus();
  }
  std::vector<uint8_t> encoded(ids.size() * head.width);
  for (size_t i = 0; i < ids.size(); ++i) {
    uint32_t id = static_cast<uint32_t>(ids[i]);
    std::memcpy(encoded.data() + i * head.width, &id, head.width);
  }
  head.tokens += static_cast<int64_t>(ids.size());
  ++head.documents;
  starts.push_back(head.tokens);
  noteMask(static_cast<int64_t>(ids.size()), mask);
  return write(encoded.data(), static_cast<int64_t>(encoded.size()));
}

absl::Status TokenFileWriter::addBytes(absl::Span<const uint8_t> bytes) {
  std::vector<int64_t> ids(bytes.begin(), bytes.end());
  return add(ids);
}

absl::Status TokenFileWriter::finish() {
  if (head.documents == 0)
    return absl::InvalidArgumentError(absl::StrCat(
        "nothing to write to ", path, ": the input holds no tokens (",
        head.emptyDocuments, " empty documents)"));
  static constexpr uint8_t kZeros[8] = {};
  int64_t padding =
      head.indexOffset() - TokenFileHeader::kBytes - head.tokens * head.width;
  absl::Status status = write(kZeros, padding);
  if (status.ok())
    status = write(starts.data(), static_cast<int64_t>(starts.size() * 8));
  if (status.ok())
    status = write(maskBits.data(), static_cast<int64_t>(maskBits.size()));
  if (status.ok())
    status = flush();
  if (!status.ok())
    return status;
  std::vector<uint8_t> header = head.encode();
  if (pwrite(fd, header.data(), header.size(), 0) !=
      static_cast<ssize_t>(header.size()))
    return failed("write");
  if (fsync(fd) != 0)
    return failed("sync");
  if (rename(temporary.c_str(), path.c_str()) != 0)
    return failed("rename to");
  close(fd);
  fd = -1;
  // The name is on disk once its folder is.
  size_t slash = path.rfind('/');
  std::string folder = slash == std::string::npos
                           ? "."
                           : path.substr(0, std::max<size_t>(slash, 1));
  int folderFd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folderFd < 0)
    return failed("open the folder of");
  int synced = fsync(folderFd);
  close(folderFd);
  return synced == 0 ? absl::OkStatus() : failed("sync the folder of");
}

} // namespace qwen35
