#ifndef QWEN35_RUNTIME_NCCL_NCCL_H
#define QWEN35_RUNTIME_NCCL_NCCL_H

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/nccl/nccl_api.h"

#include <string>

namespace qwen35::nccl {

/// libnccl.so.2, or what QWEN35_LIBNCCL names; opened once and kept for the
/// life of the process.
struct Nccl {
#define X(member, symbol, parameters) Result(*member) parameters = nullptr;
  QWEN35_NCCL_FUNCTIONS(X)
#undef X
  const char *(*getErrorString)(Result) = nullptr;
  const char *(*getLastError)(Comm) = nullptr;
  int version = 0; // 22809: NCCL 2.28.9
  std::string path;

  /// Errors  Unavailable naming what is missing, the version found and the
  ///         oldest that would do.
  static absl::StatusOr<const Nccl *> load();

  /// Ok, or "ncclAllReduce: remote process exited (6): <what the library says
  /// last>".
  absl::Status check(Result result, const std::string &call,
                     Comm comm = nullptr) const;
};

/// "2.28.9"
std::string versionText(int version);

} // namespace qwen35::nccl

#endif // QWEN35_RUNTIME_NCCL_NCCL_H
