#include "runtime/checkpoint/file_io.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <csignal>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "absl/strings/str_cat.h"

namespace qwen35 {
namespace {

/// Linux moves at most 2 GiB per call; smaller pieces also keep the digest's
/// input in cache.
constexpr int64_t kWriteBytes = 4 << 20;

absl::StatusCode codeOf(int error) {
  switch (error) {
  case ENOENT:
    return absl::StatusCode::kNotFound;
  case EACCES:
  case EPERM:
  case EROFS:
    return absl::StatusCode::kPermissionDenied;
  case EEXIST:
    return absl::StatusCode::kAlreadyExists;
  case ENOSPC:
  case EDQUOT:
  case EFBIG:
  case ENOMEM:
  case EMFILE:
  case ENFILE:
    return absl::StatusCode::kResourceExhausted;
  case ENOTDIR:
  case EISDIR:
  case ENAMETOOLONG:
  case ELOOP:
    return absl::StatusCode::kInvalidArgument;
  default:
    return absl::StatusCode::kUnknown;
  }
}

/// Opens for reading. O_NONBLOCK keeps a pipe without a writer from hanging us.
absl::StatusOr<int> openRegular(const std::string &path, int64_t *size) {
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    return errnoStatus(errno, "opening", path);
  struct stat info;
  if (::fstat(fd, &info) != 0) {
    int error = errno;
    ::close(fd);
    return errnoStatus(error, "reading", path);
  }
  if (!S_ISREG(info.st_mode)) {
    ::close(fd);
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is not a regular file"));
  }
  *size = info.st_size;
  return fd;
}

} // namespace

absl::Status errnoStatus(int error, absl::string_view doing,
                         absl::string_view path) {
  return absl::Status(codeOf(error), absl::StrCat(doing, " ", path, ": ",
                                                  std::strerror(error)));
}

std::string joinPath(absl::string_view folder, absl::string_view name) {
  if (folder.empty())
    return std::string(name);
  return absl::StrCat(folder, folder.back() == '/' ? "" : "/", name);
}

std::string folderOf(const std::string &path) {
  size_t slash = path.rfind('/');
  if (slash == std::string::npos)
    return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

absl::StatusOr<MappedFile> MappedFile::open(const std::string &path) {
  MappedFile file;
  file.name = path;
  absl::StatusOr<int> fd = openRegular(path, &file.length);
  if (!fd.ok())
    return fd.status();
  if (file.length > 0) { // An empty mapping is an error; an empty file is not.
    void *bytes = ::mmap(nullptr, static_cast<size_t>(file.length), PROT_READ,
                         MAP_PRIVATE, *fd, 0);
    if (bytes == MAP_FAILED) {
      int error = errno;
      ::close(*fd);
      return errnoStatus(error, "mapping", path);
    }
    file.bytes = static_cast<const char *>(bytes);
  }
  ::close(*fd);
  return file;
}

MappedFile::MappedFile(MappedFile &&other) noexcept
    : name(std::move(other.name)), bytes(std::exchange(other.bytes, nullptr)),
      length(std::exchange(other.length, 0)) {}

MappedFile &MappedFile::operator=(MappedFile &&other) noexcept {
  std::swap(name, other.name);
  std::swap(bytes, other.bytes);
  std::swap(length, other.length);
  return *this;
}

MappedFile::~MappedFile() {
  if (bytes)
    ::munmap(const_cast<char *>(bytes), static_cast<size_t>(length));
}

FileWriter::FileWriter(std::string path, std::string temporary, int fd)
    : path(std::move(path)), temporary(std::move(temporary)), fd(fd) {}

FileWriter::FileWriter(FileWriter &&other) noexcept
    : path(std::move(other.path)), temporary(std::move(other.temporary)),
      fd(std::exchange(other.fd, -1)), written(other.written),
      hash(other.hash) {}

FileWriter::~FileWriter() {
  if (fd < 0)
    return;
  ::close(fd);
  ::unlink(temporary.c_str());
}

absl::StatusOr<FileWriter> FileWriter::create(const std::string &path) {
  static std::atomic<uint64_t> serial{0};
  std::string temporary = absl::StrCat(path, ".tmp-", ::getpid(), "-",
                                       serial.fetch_add(1));
  // A leftover of a killed process with our number is ours to replace.
  ::unlink(temporary.c_str());
  int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
                  0666);
  if (fd < 0)
    return errnoStatus(errno, "creating", path);
  return FileWriter(path, std::move(temporary), fd);
}

absl::Status FileWriter::append(const char *bytes, int64_t size) {
  int64_t done = 0;
  while (done < size) {
    int64_t piece = std::min(kWriteBytes, size - done);
    ssize_t count = ::write(fd, bytes + done, static_cast<size_t>(piece));
    if (count < 0 && errno == EINTR)
      continue;
    if (count < 0) {
      absl::Status status = errnoStatus(errno, "writing", path);
      return absl::Status(status.code(),
                          absl::StrCat(status.message(), " (", written,
                                       " bytes written, ", size - done,
                                       " more did not fit)"));
    }
    hash.add(bytes + done, static_cast<size_t>(count));
    written += count;
    done += count; // A short count is retried; the retry says why it was short.
  }
  return absl::OkStatus();
}

absl::StatusOr<FileDigest> FileWriter::commit() {
  // Delayed allocation may report a full disk only here.
  if (::fsync(fd) != 0)
    return errnoStatus(errno, "syncing", path);
  int closed = ::close(std::exchange(fd, -1));
  if (closed != 0 || ::rename(temporary.c_str(), path.c_str()) != 0) {
    int error = errno;
    ::unlink(temporary.c_str());
    return errnoStatus(error, "writing", path);
  }
  absl::Status synced = syncFolder(folderOf(path));
  if (!synced.ok())
    return synced;
  return FileDigest{written, hash.hex()};
}

absl::Status writeFile(const std::string &path, absl::string_view text) {
  absl::StatusOr<FileWriter> writer = FileWriter::create(path);
  if (!writer.ok())
    return writer.status();
  if (absl::Status status = writer->append(text); !status.ok())
    return status;
  return writer->commit().status();
}

absl::StatusOr<std::string> readFile(const std::string &path, int64_t limit) {
  int64_t size = 0;
  absl::StatusOr<int> fd = openRegular(path, &size);
  if (!fd.ok())
    return fd.status();
  if (size > limit) {
    ::close(*fd);
    return absl::InvalidArgumentError(
        absl::StrCat(path, " has ", size, " bytes; at most ", limit,
                     " are read from a file of its kind"));
  }
  std::string text;
  char buffer[1 << 16];
  while (true) {
    ssize_t count = ::read(*fd, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR)
      continue;
    if (count < 0) {
      int error = errno;
      ::close(*fd);
      return errnoStatus(error, "reading", path);
    }
    // A file under /proc says it is empty, and one may grow meanwhile.
    if (count == 0 || static_cast<int64_t>(text.size()) > limit)
      break;
    text.append(buffer, static_cast<size_t>(count));
  }
  ::close(*fd);
  return text;
}

absl::Status copyFile(const std::string &from, const std::string &to) {
  absl::StatusOr<MappedFile> source = MappedFile::open(from);
  if (!source.ok())
    return source.status();
  return writeFile(to, source->text());
}

absl::Status makeFolders(const std::string &path) {
  for (size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    std::string folder = path.substr(0, slash);
    if (!folder.empty() && ::mkdir(folder.c_str(), 0777) != 0 &&
        errno != EEXIST)
      return errnoStatus(errno, "creating folder", folder);
    if (slash == std::string::npos)
      break;
  }
  if (!isFolder(path))
    return errnoStatus(ENOTDIR, "creating folder", path);
  return absl::OkStatus();
}

absl::Status syncFolder(const std::string &path) {
  int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0)
    return errnoStatus(errno, "opening folder", path);
  int result = ::fsync(fd);
  int error = errno;
  ::close(fd);
  // Some network file systems cannot sync a folder and say so with EINVAL.
  if (result != 0 && error != EINVAL)
    return errnoStatus(error, "syncing folder", path);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> listFolder(const std::string &path) {
  DIR *folder = ::opendir(path.c_str());
  if (!folder)
    return errnoStatus(errno, "listing", path);
  std::vector<std::string> names;
  while (true) {
    errno = 0;
    struct dirent *entry = ::readdir(folder);
    if (!entry)
      break;
    std::string name = entry->d_name;
    if (name != "." && name != "..")
      names.push_back(std::move(name));
  }
  int error = errno;
  ::closedir(folder);
  if (error != 0)
    return errnoStatus(error, "listing", path);
  std::sort(names.begin(), names.end());
  return names;
}

absl::Status removeAll(const std::string &path) {
  struct stat info;
  if (::lstat(path.c_str(), &info) != 0)
    return errno == ENOENT ? absl::OkStatus()
                           : errnoStatus(errno, "removing", path);
  if (!S_ISDIR(info.st_mode)) {
    if (::unlink(path.c_str()) != 0 && errno != ENOENT)
      return errnoStatus(errno, "removing", path);
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<std::string>> names = listFolder(path);
  if (!names.ok())
    return names.status();
  for (const std::string &name : *names)
    if (absl::Status status = removeAll(joinPath(path, name)); !status.ok())
      return status;
  if (::rmdir(path.c_str()) != 0 && errno != ENOENT)
    return errnoStatus(errno, "removing", path);
  return absl::OkStatus();
}

absl::Status replaceFolder(const std::string &from, const std::string &to) {
  bool exchanged = false;
  if (exists(to)) {
    exchanged = ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(),
                            RENAME_EXCHANGE) == 0;
    if (!exchanged && errno != EINVAL && errno != ENOSYS)
      return errnoStatus(errno, "replacing folder", to);
    // A file system without exchange: the name is free for a moment.
    if (!exchanged)
      if (absl::Status status = removeAll(to); !status.ok())
        return status;
  }
  if (!exchanged && ::rename(from.c_str(), to.c_str()) != 0)
    return errnoStatus(errno, "writing folder", to);
  if (absl::Status status = syncFolder(folderOf(to)); !status.ok())
    return status;
  return exchanged ? removeAll(from) : absl::OkStatus();
}

bool isFolder(const std::string &path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

bool exists(const std::string &path) {
  struct stat info;
  return ::lstat(path.c_str(), &info) == 0;
}

void ignoreFileSizeSignal() { std::signal(SIGXFSZ, SIG_IGN); }

} // namespace qwen35
