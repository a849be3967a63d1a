#include "runtime/records/AppendFile.h"

#include "absl/strings/str_cat.h"

#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

namespace qwen35::impl {

AppendFile::~AppendFile() {
  if (fd >= 0)
    close(fd);
}

absl::Status AppendFile::failed(const char *what) const {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot ", what, " ", name));
}

absl::Status AppendFile::open(const std::string &path, int flags) {
  name = path;
  fd = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | flags, 0644);
  if (fd < 0)
    return failed("open");
  off_t end = lseek(fd, 0, SEEK_END);
  if (end < 0)
    return failed("find the end of");
  size = end;
  return absl::OkStatus();
}

absl::Status AppendFile::cut(int64_t bytes) {
  if (ftruncate(fd, bytes) != 0)
    return failed("truncate");
  size = bytes;
  return absl::OkStatus();
}

absl::Status AppendFile::append(absl::string_view record) {
  size_t done = 0;
  while (done < record.size()) {
    ssize_t n = ::write(fd, record.data() + done, record.size() - done);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0) {
      absl::Status status = failed("write");
      absl::Status undone = cut(size);
      return undone.ok() ? status
                         : absl::Status(status.code(),
                                        absl::StrCat(status.message(), "; ",
                                                     undone.message()));
    }
    done += static_cast<size_t>(n);
  }
  size += static_cast<int64_t>(done);
  return absl::OkStatus();
}

absl::Status AppendFile::sync() {
  return fdatasync(fd) == 0 ? absl::OkStatus() : failed("sync");
}

} // namespace qwen35::impl
