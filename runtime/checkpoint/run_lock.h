#ifndef QWEN35_RUNTIME_CHECKPOINT_RUN_LOCK_H
#define QWEN35_RUNTIME_CHECKPOINT_RUN_LOCK_H

#include <string>

#include "absl/status/statusor.h"

namespace qwen35 {

/// Holds a run folder for one process: FOLDER/lock, under flock. The system
/// lets go of it when the process ends, however it ends.
class RunLock {
public:
  /// Makes the folder when it is not there.
  /// Errors  FailedPrecondition naming the process that holds the folder.
  static absl::StatusOr<RunLock> acquire(const std::string &folder);

  RunLock(RunLock &&other) noexcept;
  RunLock &operator=(RunLock &&) = delete;
  ~RunLock();

private:
  explicit RunLock(int fd) : fd(fd) {}
  int fd;
};

} // namespace qwen35

#endif // QWEN35_RUNTIME_CHECKPOINT_RUN_LOCK_H
