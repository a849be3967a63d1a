#ifndef QWEN35_RUNTIME_STEP_DEVICE_EXCHANGE_H
#define QWEN35_RUNTIME_STEP_DEVICE_EXCHANGE_H

#include "runtime/cuda/memory.h"
#include "runtime/step/exchange.h"

namespace qwen35 {

/// The collectives of a plan on memory of a GPU over a world of the host: what
/// is sent is copied to pinned memory, goes through Exchanges, and what is
/// received is copied back. Sums are in rank order, as on the CPU. For ranks
/// that share a GPU, and for tests: the GPU waits in every collective, and no
/// graph can hold one.
class DeviceExchanges {
public:
  using Address = absl::FunctionRef<cuda::DevicePtr(const bundle::Arg &)>;

  /// As Exchanges::init; `stream` orders the copies with the plan's launches.
  absl::Status init(const cuda::Driver &driver, const bundle::Bundle &plan,
                    comm::World *world, cuda::Stream stream);

  /// Whether the plan has any.
  bool any() const { return images.bytes() != 0; }
  /// The collective with its addresses resolved; its number in run().
  uint32_t add(const bundle::Collective &collective, Address address);
  /// Runs it behind what the stream holds. What follows on the stream finds the
  /// result.
  /// Errors  those of Exchanges::run and of the driver.
  absl::Status run(uint32_t index);

  /// The number of this rank in its group of a communicator.
  int coordinate(uint32_t communicator) const {
    return host.coordinate(communicator);
  }

private:
  /// Bytes of a buffer and their image on the host.
  struct Image {
    cuda::DevicePtr device;
    uint8_t *host;
    uint64_t bytes;
    bool received;
  };

  const cuda::Driver *api = nullptr;
  cuda::Stream stream = nullptr;
  Exchanges host;
  cuda::Memory images; // of one collective at a time
  std::vector<std::vector<Image>> collectives;
};

} // namespace qwen35

#endif // QWEN35_RUNTIME_STEP_DEVICE_EXCHANGE_H
