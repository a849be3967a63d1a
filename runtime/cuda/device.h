#ifndef QWEN35_RUNTIME_CUDA_DEVICE_H
#define QWEN35_RUNTIME_CUDA_DEVICE_H

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/cuda/library.h"

#include <cstdint>
#include <memory>
#include <string>

namespace qwen35::cuda {

/// What a data sheet says: dense bf16 FLOP/s and bytes/s of device memory.
struct DevicePeaks {
  double flops = 0, bandwidth = 0;
};

/// A GPU with its primary context, which is current for the thread that opened
/// it.
class GpuDevice {
public:
  /// Of the devices that run code for `arch` number `index`: "sm_90a" asks for
  /// compute capability 9.0 exactly, "sm_80" for 8.0 or a later minor.
  ///
  /// Errors  those of Driver::load; FailedPrecondition naming the devices that
  ///         are there.
  static absl::StatusOr<std::shared_ptr<GpuDevice>>
  open(const std::string &arch, int index = 0);
  /// Whether open would succeed, without making a context.
  static absl::Status find(const std::string &arch);

  GpuDevice(const GpuDevice &) = delete;
  GpuDevice &operator=(const GpuDevice &) = delete;
  ~GpuDevice();

  const Driver &driver() const { return *api; }
  const std::string &name() const { return deviceName; }
  /// Which GPU of which machine: "node7 GPU 3".
  std::string place() const;
  int multiprocessors() const { return processors; }
  uint64_t sharedOptin() const { return shared; }
  /// Makes the context current for the calling thread.
  absl::Status use() const;
  /// Bytes free and in all.
  absl::Status memory(uint64_t &free, uint64_t &total) const;
  /// Dense bf16 FLOP/s, and bytes/s of device memory, from the data sheet; 0
  /// for a device that is not known here.
  double peakFlops() const;
  double peakBandwidth() const;
  /// The same by name, "NVIDIA H200".
  static DevicePeaks peaksOf(absl::string_view name);

private:
  GpuDevice() = default;

  const Driver *api = nullptr;
  Device device = 0;
  Context context = nullptr;
  std::string deviceName;
  int processors = 0;
  uint64_t shared = 0;
};

} // namespace qwen35::cuda

#endif // QWEN35_RUNTIME_CUDA_DEVICE_H
