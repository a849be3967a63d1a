#include "runtime/checkpoint/run_lock.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "runtime/checkpoint/file_io.h"

namespace qwen35 {
namespace {

std::string holderText() {
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  return absl::StrCat("process ", ::getpid(), " on ", host);
}

/// The holder's own words; only letters that do no harm in a message.
std::string readHolder(const std::string &path) {
  absl::StatusOr<std::string> text = readFile(path, 1024);
  std::string holder = text.ok() ? *text : std::string();
  for (char &c : holder)
    if (!absl::ascii_isprint(static_cast<unsigned char>(c)))
      c = ' ';
  absl::StripAsciiWhitespace(&holder);
  return holder.empty() ? "another process" : holder;
}

} // namespace

absl::StatusOr<RunLock> RunLock::acquire(const std::string &folder) {
  if (absl::Status status = makeFolders(folder); !status.ok())
    return status;
  std::string path = joinPath(folder, "lock");
  int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0)
    return errnoStatus(errno, "opening", path);
  RunLock lock(fd);
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK)
      return errnoStatus(errno, "locking", path);
    return absl::FailedPreconditionError(
        absl::StrCat("run folder ", folder, " is in use by ", readHolder(path),
                     "; stop that run or choose another folder"));
  }
  // For the message of whoever comes next; the lock does not depend on it.
  std::string text = holderText() + "\n";
  if (::ftruncate(fd, 0) == 0)
    (void)!::pwrite(fd, text.data(), text.size(), 0);
  return lock;
}

RunLock::RunLock(RunLock &&other) noexcept
    : fd(std::exchange(other.fd, -1)) {}

RunLock::~RunLock() {
  if (fd >= 0)
    ::close(fd);
}

} // namespace qwen35
