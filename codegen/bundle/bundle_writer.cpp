#include "codegen/bundle/bundle_writer.h"

#include "absl/strings/str_cat.h"
#include "runtime/schema/bundle_format.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <sodium/crypto_hash_sha256.h>

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <set>
#include <unistd.h>

namespace qwen35 {
namespace {

std::string sha256(const void *data, size_t size) {
  std::string digest(BundleFormat::kDigestBytes, '\0');
  crypto_hash_sha256(reinterpret_cast<unsigned char *>(digest.data()),
                     static_cast<const unsigned char *>(data), size);
  return digest;
}

void appendLittleEndian(std::string &out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i)
    out.push_back(static_cast<char>(value >> (8 * i)));
}

absl::Status checkBlobs(const bundle::Bundle &message,
                        absl::Span<const NamedBlob> blobs) {
  if (message.blobs_size() != 0)
    return absl::InvalidArgumentError(
        absl::StrCat("the message already lists ", message.blobs_size(),
                     " blobs, but the writer fills that table"));
  std::set<std::string> names;
  for (const NamedBlob &blob : blobs) {
    if (blob.name.empty())
      return absl::InvalidArgumentError("a blob has no name");
    if (blob.bytes.empty())
      return absl::InvalidArgumentError(
          absl::StrCat("blob '", blob.name, "' is empty"));
    if (!names.insert(blob.name).second)
      return absl::InvalidArgumentError(
          absl::StrCat("two blobs are named '", blob.name, "'"));
  }
  return absl::OkStatus();
}

/// Places the blobs behind the message. The offsets are part of the message and
/// take more bytes as they grow, so its own size moves the first page; that
/// page only ever moves up, hence the loop ends (in practice after two rounds).
void placeBlobs(bundle::Bundle &message, absl::Span<const NamedBlob> blobs) {
  uint64_t first = 0;
  while (true) {
    uint64_t end =
        BundleFormat::kMessageOffset + uint64_t(message.ByteSizeLong());
    uint64_t page = BundleFormat::pageAligned(end);
    if (page == first)
      return;
    first = page;
    for (size_t i = 0; i < blobs.size(); ++i) {
      message.mutable_blobs(static_cast<int>(i))->set_offset(page);
      page = BundleFormat::pageAligned(page + blobs[i].bytes.size());
    }
  }
}

absl::StatusOr<std::string> serializeMessage(const bundle::Bundle &message) {
  uint64_t size = message.ByteSizeLong();
  if (size > BundleFormat::kMaxMessage)
    return absl::InvalidArgumentError(absl::StrCat(
        "the bundle's message has ", size, " bytes, more than the ",
        BundleFormat::kMaxMessage, " a reader accepts"));
  std::string text;
  bool complete = false;
  {
    google::protobuf::io::StringOutputStream stream(&text);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    complete = message.SerializeToCodedStream(&coded);
  }
  if (!complete || text.size() != size)
    return absl::InternalError(absl::StrCat("protobuf serialised ", text.size(),
                                            " of ", size,
                                            " bytes of the bundle's message"));
  return text;
}

absl::Status systemError(const std::string &what, const std::string &path,
                         int error) {
  return absl::UnavailableError(
      absl::StrCat("cannot ", what, " ", path, ": ", std::strerror(error)));
}

/// Owns the temporary file until it has been renamed.
class TemporaryFile {
public:
  explicit TemporaryFile(const std::string &path)
      : path(absl::StrCat(path, ".tmp.", ::getpid())) {}
  ~TemporaryFile() {
    if (fd >= 0)
      ::close(fd);
    if (created)
      ::unlink(path.c_str());
  }

  absl::Status write(const std::string &bytes) {
    fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
      return systemError("create", path, errno);
    created = true;
    for (size_t done = 0; done < bytes.size();) {
      ssize_t count = ::write(fd, bytes.data() + done, bytes.size() - done);
      if (count < 0 && errno == EINTR)
        continue;
      if (count < 0)
        return systemError("write", path, errno);
      done += static_cast<size_t>(count);
    }
    if (::fsync(fd) != 0)
      return systemError("sync", path, errno);
    int descriptor = fd;
    fd = -1;
    if (::close(descriptor) != 0)
      return systemError("close", path, errno);
    return absl::OkStatus();
  }

  absl::Status renameTo(const std::string &target) {
    if (::rename(path.c_str(), target.c_str()) != 0)
      return systemError(absl::StrCat("rename ", path, " to"), target, errno);
    created = false;
    return absl::OkStatus();
  }

private:
  std::string path;
  int fd = -1;
  bool created = false;
};

/// Makes the rename itself survive a power cut.
absl::Status syncFolderOf(const std::string &path) {
  size_t slash = path.rfind('/');
  std::string folder = slash == std::string::npos ? "."
                       : slash == 0               ? "/"
                                                  : path.substr(0, slash);
  int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0)
    return systemError("open folder", folder, errno);
  int result = ::fsync(fd), error = errno;
  ::close(fd);
  // Some file systems have no sync of folders and say so; the file is there.
  if (result != 0 && error != EINVAL && error != EROFS)
    return systemError("sync folder", folder, error);
  return absl::OkStatus();
}

} // namespace

absl::StatusOr<std::string> serializeBundle(bundle::Bundle message,
                                            absl::Span<const NamedBlob> blobs) {
  if (absl::Status status = checkBlobs(message, blobs); !status.ok())
    return status;
  if (message.header().major() == 0) {
    message.mutable_header()->set_major(BundleFormat::kMajor);
    message.mutable_header()->set_minor(BundleFormat::kMinor);
  }
  for (const NamedBlob &blob : blobs) {
    bundle::Blob *entry = message.add_blobs();
    entry->set_name(blob.name);
    entry->set_size(blob.bytes.size());
    entry->set_sha256(sha256(blob.bytes.data(), blob.bytes.size()));
  }
  placeBlobs(message, blobs);
  absl::StatusOr<std::string> text = serializeMessage(message);
  if (!text.ok())
    return text.status();

  std::string file(BundleFormat::kMagic, sizeof(BundleFormat::kMagic));
  appendLittleEndian(file, BundleFormat::kContainer, 4);
  appendLittleEndian(file, 0, 4);
  appendLittleEndian(file, text->size(), 8);
  file += sha256(text->data(), text->size());
  file += *text;
  for (size_t i = 0; i < blobs.size(); ++i) {
    file.resize(message.blobs(static_cast<int>(i)).offset(), '\0');
    file.append(reinterpret_cast<const char *>(blobs[i].bytes.data()),
                blobs[i].bytes.size());
  }
  return file;
}

absl::Status writeBundle(const std::string &path, bundle::Bundle message,
                         absl::Span<const NamedBlob> blobs) {
  absl::StatusOr<std::string> bytes =
      serializeBundle(std::move(message), blobs);
  if (!bytes.ok())
    return bytes.status();
  TemporaryFile temporary(path);
  if (absl::Status status = temporary.write(*bytes); !status.ok())
    return status;
  if (absl::Status status = temporary.renameTo(path); !status.ok())
    return status;
  return syncFolderOf(path);
}

} // namespace qwen35
