#include "runtime/data/corpus.h"

#include "runtime/crc/crc32c.h"
#include "runtime/data/token_file.h"

#include "absl/strings/str_cat.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace qwen35 {

/// One file of the corpus: a token file, or a text with its paragraphs.
class DataFile {
public:
  static absl::StatusOr<std::unique_ptr<DataFile>>
  open(const std::string &path, const CorpusOptions &options);
  ~DataFile() {
    if (map)
      munmap(const_cast<uint8_t *>(map), static_cast<size_t>(bytes));
  }

  int64_t documents() const {
    return isText ? static_cast<int64_t>(paragraphs.size()) : head.documents;
  }
  int64_t start(int64_t d) const {
    return isText ? paragraphs[d].first : static_cast<int64_t>(index()[d]);
  }
  int64_t length(int64_t d) const {
    return isText ? paragraphs[d].second - paragraphs[d].first
                  : static_cast<int64_t>(index()[d + 1] - index()[d]);
  }
  void copy(int64_t token, int64_t count, int32_t *ids) const;
  bool counts(int64_t token) const {
    return !head.hasMask || (mask()[token / 8] >> (token % 8) & 1);
  }
  int64_t countTargets(int64_t token, int64_t count) const;
  /// Position of the first id of document d at or past `first` that is not
  /// below `vocabSize`, or -1.
  int64_t findOutside(int64_t d, int64_t vocabSize) const;
  absl::Status outside(int64_t d, int64_t position, int64_t vocabSize) const;
  absl::Status checkEveryId(int64_t vocabSize) const;

  std::string path;
  const uint8_t *map = nullptr;
  int64_t bytes = 0;
  bool isText = false;
  TokenFileHeader head; // of a text: its counts, and the CRC of all of it
  std::vector<std::pair<int64_t, int64_t>> paragraphs;
  int64_t emptyInside = 0; // empty documents in the index

private:
  DataFile() = default;
  absl::Status openTokens(const CorpusOptions &options);
  absl::Status openText(const CorpusOptions &options);
  // Offsets are multiples of 8 and the mapping of a page.
  const uint64_t *index() const {
    return reinterpret_cast<const uint64_t *>(map + head.indexOffset());
  }
  const uint8_t *mask() const { return map + head.maskOffset(); }
};

void DataFile::copy(int64_t token, int64_t count, int32_t *ids) const {
  if (isText) {
    std::copy(map + token, map + token + count, ids);
  } else if (head.width == 2) {
    const auto *from =
        reinterpret_cast<const uint16_t *>(map + TokenFileHeader::kBytes) +
        token;
    std::copy(from, from + count, ids);
  } else {
    // An id of 2^31 or more becomes negative, which no vocabulary holds.
    std::memcpy(ids, map + TokenFileHeader::kBytes + token * 4,
                static_cast<size_t>(count) * 4);
  }
}

int64_t DataFile::countTargets(int64_t token, int64_t count) const {
  if (!head.hasMask)
    return count;
  int64_t total = 0, i = token, end = token + count;
  for (; i < end && i % 8; ++i)
    total += counts(i);
  for (; i + 8 <= end; i += 8)
    total += __builtin_popcount(mask()[i / 8]);
  for (; i < end; ++i)
    total += counts(i);
  return total;
}

int64_t DataFile::findOutside(int64_t d, int64_t vocabSize) const {
  int32_t ids[1024];
  for (int64_t first = 0, total = length(d); first < total; first += 1024) {
    int64_t count = std::min<int64_t>(1024, total - first);
    copy(start(d) + first, count, ids);
    for (int64_t i = 0; i < count; ++i)
      if (ids[i] < 0 || ids[i] >= vocabSize)
        return first + i;
  }
  return -1;
}

absl::Status DataFile::outside(int64_t d, int64_t position,
                               int64_t vocabSize) const {
  int32_t id;
  copy(start(d) + position, 1, &id);
  return absl::InvalidArgumentError(absl::StrCat(
      path, ": document ", d, ", position ", position, ": token id ",
      static_cast<uint32_t>(id), " is outside the vocabulary of ", vocabSize));
}

absl::Status DataFile::checkEveryId(int64_t vocabSize) const {
  for (int64_t d = 0; d < documents(); ++d)
    if (int64_t at = findOutside(d, vocabSize); at >= 0)
      return outside(d, at, vocabSize);
  return absl::OkStatus();
}

absl::Status DataFile::openTokens(const CorpusOptions &options) {
  auto decoded = TokenFileHeader::decode(
      absl::MakeConstSpan(map,
                          std::min<int64_t>(bytes, TokenFileHeader::kBytes)),
      bytes);
  if (!decoded.ok())
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", decoded.status().message()));
  head = *decoded;
  // With a header that adds up, the index is the only other thing that could
  // lead outside the mapping.
  const uint64_t *starts = index();
  uint64_t tokens = static_cast<uint64_t>(head.tokens);
  for (int64_t d = 0; d <= head.documents; ++d) {
    uint64_t low = d == 0 ? 0 : starts[d - 1];
    bool fixed = d == 0 || d == head.documents;
    uint64_t expected = d == 0 ? 0 : tokens;
    if (fixed ? starts[d] != expected : starts[d] < low || starts[d] > tokens)
      return absl::InvalidArgumentError(
          fixed ? absl::StrCat(path, ": index entry ", d, " is ", starts[d],
                               ", expected ", expected)
                : absl::StrCat(path, ": index entry ", d, " is ", starts[d],
                               ", expected ", low, " to ", tokens));
    if (d > 0 && starts[d] == low)
      ++emptyInside;
  }
  if (head.tokens == 0)
    return absl::InvalidArgumentError(absl::StrCat(path, ": holds no tokens"));
  // The header of an honest file bounds its ids; every id is looked at again
  // when it is used. A wider vocabulary is fine if the file does not need it.
  if (head.vocabSize > options.vocabSize)
    return checkEveryId(options.vocabSize);
  return absl::OkStatus();
}

absl::Status DataFile::openText(const CorpusOptions &options) {
  const void *nul = std::memchr(map, 0, static_cast<size_t>(bytes));
  if (!options.byteVocabulary || nul)
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": is not a token file (its first bytes are not \"Q35TOKS\"), ",
        nul ? absl::StrCat("nor text (byte ",
                           static_cast<const uint8_t *>(nul) - map, " is 0)")
            : absl::StrCat("and only a model with a byte vocabulary reads "
                           "text (this one has ",
                           options.vocabSize,
                           " ids); convert it with qwen35-data")));
  isText = true;
  paragraphs = findParagraphs(map, bytes);
  if (paragraphs.empty())
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": holds no text, only white space"));
  head.vocabSize = 256;
  head.documents = static_cast<int64_t>(paragraphs.size());
  for (auto [begin, end] : paragraphs)
    head.tokens += end - begin;
  head.contentCrc = crc32c(map, static_cast<size_t>(bytes));
  return head.vocabSize > options.vocabSize ? checkEveryId(options.vocabSize)
                                            : absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<DataFile>>
DataFile::open(const std::string &path, const CorpusOptions &options) {
  auto failed = [&](const char *what) {
    return absl::ErrnoToStatus(errno, absl::StrCat(what, " ", path));
  };
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    return failed("cannot open data file");
  std::unique_ptr<DataFile> file(new DataFile);
  file->path = path;
  struct stat info;
  absl::Status status;
  if (fstat(fd, &info) != 0)
    status = failed("cannot read data file");
  else if (!S_ISREG(info.st_mode))
    status = absl::InvalidArgumentError(
        absl::StrCat(path, ": is not a regular file"));
  else if (info.st_size == 0)
    status = absl::InvalidArgumentError(absl::StrCat(path, ": is empty"));
  if (status.ok()) {
    void *map = mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ,
                     MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED) {
      status = failed("cannot map data file");
    } else {
      file->map = static_cast<const uint8_t *>(map);
      file->bytes = info.st_size;
    }
  }
  close(fd);
  if (!status.ok())
    return status;
  bool tokens = file->bytes >= 8 &&
                std::memcmp(file->map, TokenFileHeader::kMagic, 8) == 0;
  status = tokens ? file->openTokens(options) : file->openText(options);
  if (!status.ok())
    return status;
  return file;
}

Corpus::Corpus() = default;
Corpus::~Corpus() = default;

absl::StatusOr<std::shared_ptr<const Corpus>>
Corpus::open(const std::vector<std::string> &paths,
             const CorpusOptions &options) {
  if (paths.empty())
    return absl::InvalidArgumentError("no data file was given");
  std::shared_ptr<Corpus> corpus(new Corpus);
  corpus->options = options;
  corpus->firstDocument.push_back(0);
  for (const std::string &path : paths) {
    auto file = DataFile::open(path, options);
    if (!file.ok())
      return file.status();
    corpus->firstDocument.push_back(corpus->firstDocument.back() +
                                    (*file)->documents());
    corpus->parts.push_back(*std::move(file));
  }
  return std::shared_ptr<const Corpus>(corpus);
}

int64_t Corpus::files() const { return static_cast<int64_t>(parts.size()); }
int64_t Corpus::documents() const { return firstDocument.back(); }

int64_t Corpus::emptyDocuments() const {
  int64_t total = 0;
  for (const auto &part : parts)
    total += part->emptyInside + part->head.emptyDocuments;
  return total;
}

int64_t Corpus::tokens() const {
  int64_t total = 0;
  for (const auto &part : parts)
    total += part->head.tokens;
  return total;
}

uint32_t Corpus::fingerprint() const {
  uint32_t crc = 0;
  for (const auto &part : parts) {
    int64_t facts[] = {part->head.tokens, part->head.documents,
                       part->head.contentCrc};
    crc = crc32c(facts, sizeof(facts), crc);
  }
  return crc;
}

const DataFile &Corpus::fileOf(int64_t d, int64_t &local) const {
  auto after = std::upper_bound(firstDocument.begin(), firstDocument.end(), d);
  int64_t file = after - firstDocument.begin() - 1;
  local = d - firstDocument[file];
  return *parts[file];
}

int64_t Corpus::length(int64_t d) const {
  int64_t local;
  return fileOf(d, local).length(local);
}

absl::Status Corpus::read(int64_t d, int64_t first, int64_t count,
                          int32_t *ids) const {
  int64_t local;
  const DataFile &file = fileOf(d, local);
  file.copy(file.start(local) + first, count, ids);
  for (int64_t i = 0; i < count; ++i)
    if (ids[i] < 0 || ids[i] >= options.vocabSize)
      return file.outside(local, first + i, options.vocabSize);
  return absl::OkStatus();
}

bool Corpus::hasMask(int64_t d) const {
  int64_t local;
  return fileOf(d, local).head.hasMask;
}

bool Corpus::counts(int64_t d, int64_t i) const {
  int64_t local;
  const DataFile &file = fileOf(d, local);
  return file.counts(file.start(local) + i);
}

int64_t Corpus::countTargets(int64_t d, int64_t first, int64_t count) const {
  int64_t local;
  const DataFile &file = fileOf(d, local);
  return file.countTargets(file.start(local) + first, count);
}

absl::Status Corpus::verify() const {
  for (const auto &part : parts) {
    if (!part->isText) {
      uint32_t crc = crc32c(part->map + TokenFileHeader::kBytes,
                            part->bytes - TokenFileHeader::kBytes);
      if (crc != part->head.contentCrc)
        return absl::DataLossError(
            absl::StrCat(part->path, ": checksum of the contents is ", crc,
                         ", its header says ", part->head.contentCrc));
    }
    absl::Status status =
        part->checkEveryId(std::min(options.vocabSize, part->head.vocabSize));
    if (!status.ok())
      return status;
  }
  return absl::OkStatus();
}

std::vector<std::pair<int64_t, int64_t>> findParagraphs(const uint8_t *text,
                                                        int64_t bytes) {
  std::vector<std::pair<int64_t, int64_t>> paragraphs;
  bool open = false;
  for (int64_t line = 0; line < bytes;) {
    const auto *end = static_cast<const uint8_t *>(
        std::memchr(text + line, '\n', static_cast<size_t>(bytes - line)));
    int64_t next = end ? end - text + 1 : bytes;
    int64_t lineEnd = end ? next - 1 : bytes;
    bool blank = std::all_of(text + line, text + lineEnd, [](uint8_t c) {
      return c == ' ' || (c >= '\t' && c <= '\r');
    });
    if (!blank) {
      int64_t visible = text[lineEnd - 1] == '\r' ? lineEnd - 1 : lineEnd;
      if (open)
        paragraphs.back().second = visible;
      else
        paragraphs.push_back({line, visible});
    }
    open = !blank;
    line = next;
  }
  return paragraphs;
}

} // namespace qwen35
