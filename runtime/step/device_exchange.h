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
/// is captured. If the plan starts any that it waits for later, all go on a
/// stream of their own, in the order of the plan: each begins behind what the
/// launches' stream holds at its start, and that stream goes on behind it at
/// its wait. A capture of the one stream becomes one of both.
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
  /// Whether they run beside launches.
  bool beside() const { return ownStream != nullptr; }
  /// All ranks have captured the same collectives: before a graph with them is
  /// launched. Collective over the world.
  absl::Status compare() {
    return nccl ? nccl->compareCalls() : absl::OkStatus();
  }
  /// The collective with its addresses resolved; its number in run().
  uint32_t add(const bundle::Collective &collective, Address address);
  /// Runs it behind what the stream holds. What follows there finds the result
  /// after wait(); at once, if it is not beside launches.
  /// Errors  those of Exchanges::run and of the driver.
  absl::Status start(uint32_t index);
  /// Holds the stream until a started collective has ended.
  absl::Status wait(uint32_t index);

  /// Waits for all that was started, then ends the communicators and with them
  /// the stream of their own.
  void close();

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
  absl::Status record(cuda::Event &event, cuda::Stream on);

  const cuda::Driver *api = nullptr;
  cuda::Stream stream = nullptr;    // of launches
  cuda::Stream ownStream = nullptr; // of collectives, if not the same
  cuda::Stream copies = nullptr;    // the one of the two that copies go to
  cuda::Event ready = nullptr;
  std::vector<cuda::Event> ended; // by collective
  std::vector<bool> flying;       // by collective
  std::unique_ptr<nccl::NcclWorld> nccl;
  Exchanges exchanges;
  cuda::Memory images; // of one collective at a time
  std::vector<std::vector<Image>> collectives;
};

} // namespace qwen35

#endif // QWEN35_RUNTIME_STEP_DEVICE_EXCHANGE_H
