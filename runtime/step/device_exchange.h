#ifndef QWEN35_RUNTIME_STEP_DEVICE_EXCHANGE_H
#define QWEN35_RUNTIME_STEP_DEVICE_EXCHANGE_H

#include "runtime/cuda/device.h"
#include "runtime/cuda/memory.h"
#include "runtime/nccl/nccl_world.h"
#include "runtime/step/exchange.h"

namespace qwen35 {

/// The collectives of a plan on memory of a GPU.
///
/// Over NCCL: on the stream, in order with the plan's launches, also while it
/// is captured.
///
/// Over the host: what is sent is copied to pinned memory, goes through the
/// world of the host, and what is received is copied back. Sums are in rank
/// order, as on the CPU. For ranks that share a GPU, and for tests: the GPU
/// waits in every collective, and no graph can hold one.
class DeviceExchanges {
public:
  using Address = absl::FunctionRef<cuda::DevicePtr(const bundle::Arg &)>;

  /// As Exchanges::init; `stream` is where the plan's launches go. `gpu` over
  /// NCCL, else none.
  /// Errors  those of NcclWorld::make too.
  absl::Status init(const cuda::Driver &driver, const bundle::Bundle &plan,
                    comm::World *world, cuda::Stream stream,
                    std::shared_ptr<cuda::GpuDevice> gpu);

  /// Whether the plan has any that go over the host.
  bool overHost() const { return images.bytes() != 0; }
  /// Whether the plan has any that go over NCCL.
  bool overNccl() const { return nccl != nullptr; }
  /// All ranks have captured the same collectives: before a graph with them is
  /// launched. Collective over the world.
  absl::Status compare() {
    return nccl ? nccl->compareCalls() : absl::OkStatus();
  }
  /// The collective with its addresses resolved; its number in run().
  uint32_t add(const bundle::Collective &collective, Address address);
  /// Runs it behind what the stream holds; what follows there finds the result.
  /// Errors  those of Exchanges::run and of the driver.
  absl::Status run(uint32_t index);

  /// Ends the communicators, which use the stream.
  void close() {
    exchanges = Exchanges();
    nccl.reset();
  }

  /// The number of this rank in its group of a communicator.
  int coordinate(uint32_t communicator) const {
    return exchanges.coordinate(communicator);
  }

private:
  /// Bytes of a buffer and their image on the host.
  struct Image {
    cuda::DevicePtr device;
    uint8_t *host;
    uint64_t bytes;
    bool received;
  };

  absl::Status copyOnDevice(const Exchanges::Copy &copy);

  const cuda::Driver *api = nullptr;
  cuda::Stream stream = nullptr;
  std::unique_ptr<nccl::NcclWorld> nccl;
  Exchanges exchanges;
  cuda::Memory images; // of one collective at a time
  std::vector<std::vector<Image>> collectives;
};

} // namespace qwen35

#endif // QWEN35_RUNTIME_STEP_DEVICE_EXCHANGE_H
