#include "runtime/bundle/bundle_reader.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "runtime/bundle/quoted.h"
#include "runtime/bundle/ranks.h"
#include "runtime/bundle/status_macros.h"
#include "runtime/bundle/wire_scan.h"
#include "runtime/schema/bundle_format.h"

#include <sodium/crypto_hash_sha256.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace qwen35 {
namespace {

/// Strings and submessages in one message: the plan of 60 layers has under one
/// million, and each costs at most some 150 bytes of memory.
constexpr uint64_t kMaxRecords = uint64_t(1) << 22;

uint64_t littleEndian(absl::Span<const uint8_t> bytes, uint64_t offset,
                      int count) {
  uint64_t value = 0;
  for (int i = 0; i < count; ++i)
    value |= uint64_t(bytes[offset + i]) << (8 * i);
  return value;
}

std::string sha256(absl::Span<const uint8_t> bytes) {
  std::string digest(BundleFormat::kDigestBytes, '\0');
  crypto_hash_sha256(reinterpret_cast<unsigned char *>(digest.data()),
                     bytes.data(), bytes.size());
  return digest;
}

std::string hex(absl::string_view digest) {
  return absl::BytesToHexString(digest);
}

/// The message's bytes, after everything around them has been checked.
absl::StatusOr<absl::Span<const uint8_t>>
openContainer(absl::Span<const uint8_t> file) {
  if (file.size() < BundleFormat::kMessageOffset)
    return absl::DataLossError(absl::StrCat(
        "the file has ", file.size(), " bytes, but a bundle begins with ",
        BundleFormat::kMessageOffset, " bytes of header"));
  if (std::memcmp(file.data(), BundleFormat::kMagic,
                  sizeof(BundleFormat::kMagic)) != 0)
    return absl::DataLossError(
        absl::StrCat("the file begins with ",
                     quoted(std::string(file.begin(), file.begin() + 8)),
                     ", but a bundle begins with 'Q35BNDL'"));
  uint64_t version = littleEndian(file, BundleFormat::kVersionOffset, 4);
  if (version != BundleFormat::kContainer)
    return absl::UnimplementedError(
        absl::StrCat("the container has version ", version,
                     ", this reader knows version ", BundleFormat::kContainer));
  if (uint64_t zero = littleEndian(file, BundleFormat::kZeroOffset, 4))
    return absl::DataLossError(absl::StrCat(
        "the header holds ", zero, " at byte 12, where a zero is expected"));
  uint64_t length = littleEndian(file, BundleFormat::kLengthOffset, 8);
  if (length > BundleFormat::kMaxMessage)
    return absl::DataLossError(absl::StrCat("the header gives the message ",
                                            length, " bytes, the most is ",
                                            BundleFormat::kMaxMessage));
  uint64_t present = file.size() - BundleFormat::kMessageOffset;
  if (length > present)
    return absl::DataLossError(
        absl::StrCat("the header gives the message ", length,
                     " bytes, but the file ends after ", present, " of them"));
  absl::Span<const uint8_t> message =
      file.subspan(BundleFormat::kMessageOffset, length);
  std::string found = sha256(message);
  std::string expected(file.begin() + BundleFormat::kDigestOffset,
                       file.begin() + BundleFormat::kMessageOffset);
  if (found != expected)
    return absl::DataLossError(
        absl::StrCat("the message has SHA-256 ", hex(found),
                     ", but the header says ", hex(expected)));
  return message;
}

/// Looks at versions before the rest is judged, so that a newer bundle is
/// reported as that and not as a broken one.
absl::Status checkVersion(const bundle::Header &header) {
  if (header.major() != BundleFormat::kMajor)
    return absl::UnimplementedError(absl::StrCat(
        "the bundle has schema version ", header.major(), ".", header.minor(),
        ", this reader knows version ", BundleFormat::kMajor, ".x"));
  for (const std::string &feature : header.features())
    if (feature != kRanksFeature)
      return absl::UnimplementedError(absl::StrCat(
          "the bundle needs the feature ", quoted(feature),
          ", this reader knows '", kRanksFeature, "' beyond version ",
          BundleFormat::kMajor, ".", BundleFormat::kMinor));
  return absl::OkStatus();
}

absl::Status checkGap(absl::Span<const uint8_t> file, uint64_t begin,
                      uint64_t end) {
  for (uint64_t i = begin; i < end; ++i)
    if (file[i] != 0)
      return absl::DataLossError(absl::StrCat(
          "byte ", i, " of the file is ", int(file[i]),
          ", but the gap before the next blob is filled with zeros"));
  return absl::OkStatus();
}

/// Blobs lie where the writer puts them, back to back on pages, so there is
/// exactly one place each may be at.
absl::Status checkBlobs(absl::Span<const uint8_t> file,
                        const bundle::Bundle &plan, uint64_t messageEnd) {
  uint64_t end = messageEnd;
  for (int i = 0; i < plan.blobs_size(); ++i) {
    const bundle::Blob &blob = plan.blobs(i);
    std::string who = absl::StrCat("blob ", i, " ", quoted(blob.name()));
    uint64_t expected = BundleFormat::pageAligned(end);
    if (blob.offset() != expected)
      return absl::InvalidArgumentError(absl::StrCat(
          who, " is said to begin at byte ", blob.offset(),
          ", but the page after what precedes it is at ", expected));
    if (blob.size() == 0)
      return absl::InvalidArgumentError(absl::StrCat(who, " is empty"));
    if (expected > file.size() || blob.size() > file.size() - expected)
      return absl::DataLossError(
          absl::StrCat(who, " has ", blob.size(), " bytes from byte ", expected,
                       ", but the file ends after ", file.size(), " bytes"));
    QWEN35_RETURN_IF_ERROR(checkGap(file, end, expected));
    std::string found = sha256(file.subspan(expected, blob.size()));
    if (found != blob.sha256())
      return absl::DataLossError(absl::StrCat(who, " has SHA-256 ", hex(found),
                                              ", but the message says ",
                                              hex(blob.sha256())));
    end = expected + blob.size();
  }
  if (file.size() != end)
    return absl::DataLossError(
        absl::StrCat("the file has ", file.size(),
                     " bytes, but its contents end after ", end));
  return absl::OkStatus();
}

absl::Status systemError(const std::string &what, int error) {
  std::string text = absl::StrCat(what, ": ", std::strerror(error));
  if (error == ENOENT)
    return absl::NotFoundError(text);
  if (error == EACCES || error == EPERM)
    return absl::PermissionDeniedError(text);
  return absl::UnavailableError(text);
}

/// The file's bytes, mapped read-only; never empty.
absl::StatusOr<absl::Span<const uint8_t>> mapFile(const std::string &path) {
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return systemError("cannot open", errno);
  struct stat info;
  if (::fstat(fd, &info) != 0) {
    int error = errno;
    ::close(fd);
    return systemError("cannot examine", error);
  }
  if (!S_ISREG(info.st_mode) || info.st_size == 0) {
    ::close(fd);
    return absl::DataLossError(S_ISREG(info.st_mode) ? "the file is empty"
                                                     : "not a regular file");
  }
  size_t size = static_cast<size_t>(info.st_size);
  void *data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  int error = errno;
  ::close(fd);
  if (data == MAP_FAILED)
    return systemError("cannot map", error);
  return absl::MakeConstSpan(static_cast<const uint8_t *>(data), size);
}

absl::Status readInto(absl::Span<const uint8_t> file, bundle::Bundle &plan,
                      std::string &digest) {
  absl::StatusOr<absl::Span<const uint8_t>> message = openContainer(file);
  if (!message.ok())
    return message.status();
  QWEN35_RETURN_IF_ERROR(scanBundleMessage(*message, kMaxRecords));
  if (!plan.ParseFromArray(message->data(), static_cast<int>(message->size())))
    return absl::DataLossError(
        "the message is not a bundle: protobuf cannot parse it");
  QWEN35_RETURN_IF_ERROR(checkVersion(plan.header()));
  QWEN35_RETURN_IF_ERROR(
      checkBlobs(file, plan, BundleFormat::kMessageOffset + message->size()));
  QWEN35_RETURN_IF_ERROR(validateBundle(plan));
  QWEN35_RETURN_IF_ERROR(checkPlan(plan));
  digest = hex(sha256(*message));
  return absl::OkStatus();
}

absl::Status withPath(const std::string &path, const absl::Status &status) {
  return absl::Status(status.code(),
                      absl::StrCat(path, ": ", status.message()));
}

} // namespace

absl::StatusOr<std::shared_ptr<const BundleFile>>
BundleFile::open(const std::string &path) {
  absl::StatusOr<absl::Span<const uint8_t>> file = mapFile(path);
  if (!file.ok())
    return withPath(path, file.status());
  std::shared_ptr<BundleFile> result(new BundleFile);
  result->bytes = *file;
  result->mapping = const_cast<uint8_t *>(file->data());
  if (absl::Status status =
          readInto(*file, result->contents, result->messageDigest);
      !status.ok())
    return withPath(path, status);
  return result;
}

absl::StatusOr<std::shared_ptr<const BundleFile>>
BundleFile::parse(absl::Span<const uint8_t> bytes) {
  std::shared_ptr<BundleFile> result(new BundleFile);
  result->bytes = bytes;
  QWEN35_RETURN_IF_ERROR(
      readInto(bytes, result->contents, result->messageDigest));
  return result;
}

BundleFile::~BundleFile() {
  if (mapping)
    ::munmap(mapping, bytes.size());
}

const bundle::Target &BundleFile::target(int index) const {
  return index == 0 ? contents.targets(0)
                    : contents.alternatives(index - 1).target();
}

std::shared_ptr<const BundleFile> BundleFile::plan(int index) const {
  if (plans() == 1)
    return shared_from_this();
  std::shared_ptr<BundleFile> result(new BundleFile);
  result->bytes = bytes;
  result->owner = shared_from_this();
  result->contents = planMessage(contents, index);
  result->messageDigest = messageDigest;
  return result;
}

bundle::Bundle planMessage(const bundle::Bundle &message, int index) {
  bundle::Bundle result = message;
  result.clear_alternatives();
  if (index == 0)
    return result;
  const bundle::Plan &plan = message.alternatives(index - 1);
  result.clear_targets();
  *result.add_targets() = plan.target();
  *result.mutable_kernels() = plan.kernels();
  *result.mutable_arenas() = plan.arenas();
  *result.mutable_buffers() = plan.buffers();
  *result.mutable_params() = plan.params();
  *result.mutable_io() = plan.io();
  *result.mutable_programs() = plan.programs();
  *result.mutable_communicators() = plan.communicators();
  *result.mutable_rank_vars() = plan.rank_vars();
  result.mutable_provenance()->set_planned_peak(plan.planned_peak());
  return result;
}

absl::Span<const uint8_t> BundleFile::blob(uint32_t index) const {
  const bundle::Blob &blob = contents.blobs(static_cast<int>(index));
  return bytes.subspan(blob.offset(), blob.size());
}

} // namespace qwen35
