#ifndef QWEN35_RUNTIME_CUDA_LIBRARY_H
#define QWEN35_RUNTIME_CUDA_LIBRARY_H

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/cuda/driver_api.h"

#include <string>

namespace qwen35::cuda {

/// The driver, libcuda.so.1, or what QWEN35_LIBCUDA names; opened once and kept
/// for the life of the process.
struct Driver {
#define X(member, symbol, parameters) Result(*member) parameters = nullptr;
  QWEN35_CUDA_DRIVER_FUNCTIONS(X)
#undef X
  int version = 0; // 13000: CUDA 13.0
  std::string path;

  /// Errors  Unavailable naming what is missing and the oldest version that
  ///         would do.
  static absl::StatusOr<const Driver *> load();

  /// Ok, or one sentence: "cuMemAlloc_v2 of arena act: out of memory
  /// (CUDA_ERROR_OUT_OF_MEMORY)". ResourceExhausted for memory, else Internal.
  absl::Status check(Result result, absl::string_view call) const {
    return result == kSuccess ? absl::OkStatus() : error(result, call);
  }
  absl::Status error(Result result, absl::string_view call) const;
};

/// cuBLASLt, libcublasLt.so.13, or what QWEN35_LIBCUBLASLT names; as above.
struct BlasLt {
#define X(member, symbol, parameters) BlasStatus(*member) parameters = nullptr;
  QWEN35_CUBLASLT_FUNCTIONS(X)
#undef X
  size_t (*getVersion)() = nullptr;
  const char *(*getStatusString)(BlasStatus) = nullptr;
  std::string path;

  static absl::StatusOr<const BlasLt *> load();

  absl::Status check(BlasStatus status, absl::string_view call) const {
    return status == kBlasSuccess ? absl::OkStatus() : error(status, call);
  }
  absl::Status error(BlasStatus status, absl::string_view call) const;
};

} // namespace qwen35::cuda

#endif // QWEN35_RUNTIME_CUDA_LIBRARY_H
