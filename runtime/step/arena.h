#ifndef QWEN35_RUNTIME_STEP_ARENA_H
#define QWEN35_RUNTIME_STEP_ARENA_H

#include "absl/status/statusor.h"

#include <cstdint>
#include <string>

namespace qwen35 {

/// Zeroed memory for one arena: 2 MiB aligned (huge pages where the system has
/// them), an inaccessible page on either side, so that a kernel that runs out
/// of its arena stops there.
class Arena {
public:
  static constexpr uint64_t kAlign = uint64_t(2) << 20;

  /// Errors  ResourceExhausted naming the arena, its size and the system's
  /// reason.
  static absl::StatusOr<Arena> allocate(const std::string &name,
                                        uint64_t bytes);

  Arena() = default;
  Arena(Arena &&other) noexcept { swap(other); }
  Arena &operator=(Arena &&other) noexcept {
    swap(other);
    return *this;
  }
  ~Arena();

  uint8_t *data() const { return base; }
  uint64_t bytes() const { return size; }
  /// Address space taken, guard pages included.
  uint64_t mapped() const { return mappedBytes; }

private:
  void swap(Arena &other);

  uint8_t *base = nullptr;
  uint64_t size = 0;
  void *mapping = nullptr;
  uint64_t mappedBytes = 0;
};

/// Bytes that this process could still get without swapping: what the system
/// calls available, or the limit of its control group where that is less.
/// UINT64_MAX if the system does not say.
uint64_t availableMemory();

} // namespace qwen35

#endif // QWEN35_RUNTIME_STEP_ARENA_H
