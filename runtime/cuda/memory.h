#ifndef QWEN35_RUNTIME_CUDA_MEMORY_H
#define QWEN35_RUNTIME_CUDA_MEMORY_H

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/bundle/format_bytes.h"
#include "runtime/bundle/status_macros.h"
#include "runtime/cuda/library.h"

#include <utility>

namespace qwen35::cuda {

/// Memory of the device or pinned memory of the host, by one owner.
class Memory {
public:
  Memory() = default;
  Memory(Memory &&other) noexcept { swap(other); }
  Memory &operator=(Memory &&other) noexcept {
    swap(other);
    return *this;
  }
  ~Memory() {
    if (address)
      driver->memFree(address);
    if (pinned)
      driver->memFreeHost(pinned);
  }

  absl::Status allocateDevice(const Driver &api, uint64_t bytes,
                              absl::string_view what) {
    driver = &api;
    size = bytes;
    return bytes == 0
               ? absl::OkStatus()
               : api.check(api.memAlloc(&address, bytes),
                           absl::StrCat("cuMemAlloc_v2 of ", formatBytes(bytes),
                                        " for ", what));
  }
  absl::Status allocateHost(const Driver &api, uint64_t bytes,
                            absl::string_view what) {
    driver = &api;
    size = bytes;
    void *memory = nullptr;
    if (bytes != 0)
      QWEN35_RETURN_IF_ERROR(
          api.check(api.memHostAlloc(&memory, bytes, 0),
                    absl::StrCat("cuMemHostAlloc of ", formatBytes(bytes),
                                 " for ", what)));
    pinned = static_cast<uint8_t *>(memory);
    return absl::OkStatus();
  }

  DevicePtr device() const { return address; }
  uint8_t *host() const { return pinned; }
  uint64_t bytes() const { return size; }

private:
  void swap(Memory &other) {
    std::swap(driver, other.driver);
    std::swap(address, other.address);
    std::swap(pinned, other.pinned);
    std::swap(size, other.size);
  }

  const Driver *driver = nullptr;
  DevicePtr address = 0;
  uint8_t *pinned = nullptr;
  uint64_t size = 0;
};

} // namespace qwen35::cuda

#endif // QWEN35_RUNTIME_CUDA_MEMORY_H
