#ifndef QWEN35_RUNTIME_STEP_KERNEL_LIBRARY_H
#define QWEN35_RUNTIME_STEP_KERNEL_LIBRARY_H

#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace qwen35 {

/// A kernel of a CPU bundle: does task `task` of a launch.
using CpuKernel = void (*)(void *const *args, int64_t task);

/// The kernels of a bundle, loaded into this process for as long as this lives.
///
/// The image is copied into a memory file and sealed there; what is checked
/// (digest and checkElfImage) is the sealed copy, so nobody can change it
/// between the check and the load. It is loaded with RTLD_LOCAL and RTLD_NOW.
class KernelLibrary {
public:
  /// `sha256` is the digest expected of `image`, 32 bytes; `symbols` are the
  /// kernels to look up.
  ///
  /// Errors  DataLoss if the digest differs, those of checkElfImage,
  /// Unavailable
  ///         with the system's reason if the image cannot be loaded.
  static absl::StatusOr<std::unique_ptr<KernelLibrary>>
  load(absl::Span<const uint8_t> image, const std::string &sha256,
       absl::Span<const std::string> symbols);

  KernelLibrary(const KernelLibrary &) = delete;
  KernelLibrary &operator=(const KernelLibrary &) = delete;
  ~KernelLibrary();

  /// The kernel named `symbols[index]`.
  CpuKernel kernel(size_t index) const { return kernels[index]; }

private:
  KernelLibrary() = default;

  absl::Status seal(absl::Span<const uint8_t> image);
  absl::Status check(const std::string &sha256,
                     absl::Span<const std::string> symbols, size_t size) const;
  absl::Status open(absl::Span<const std::string> symbols);

  // Stays open while the library is loaded: the loader knows it by its number's
  // path, and a reused number would give it back this library for another.
  int fd = -1;
  void *handle = nullptr;
  std::vector<CpuKernel> kernels;
};

} // namespace qwen35

#endif // QWEN35_RUNTIME_STEP_KERNEL_LIBRARY_H
