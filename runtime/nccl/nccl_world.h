#ifndef QWEN35_RUNTIME_NCCL_NCCL_WORLD_H
#define QWEN35_RUNTIME_NCCL_NCCL_WORLD_H

#include "runtime/comm/communicator.h"
#include "runtime/cuda/library.h"
#include "runtime/nccl/nccl.h"

#include <functional>
#include <memory>
#include <string>

namespace qwen35::nccl {

struct NcclOptions {
  /// Where all collectives of this rank go, in one order; not the default
  /// stream.
  cuda::Stream stream = nullptr;
  /// Makes the GPU's context current for the calling thread.
  std::function<absl::Status()> use;
  /// Which GPU of which machine, "node7 GPU 3": two ranks on one GPU are
  /// refused, since NCCL does.
  std::string device;
  double callSeconds = 300; // that a collective may take, once it has begun
  double pollSeconds = 0.1; // of the watchdog
};

/// A world of one GPU per rank over NCCL, on top of a host world that carries
/// ids and brings bad news.
///
/// Buffers are device memory; calls enqueue on options.stream and return, also
/// into a capture. Around each collective a copy of 4 bytes to pinned memory,
/// part of the captured graph as well, says where the GPU is. A thread watches
/// these breadcrumbs, how long NCCL calls take on the host, and NCCL's
/// asynchronous errors. On any failure, here or of the host world, it aborts
/// all communicators at once, a thread for each (one after another may block),
/// and the host world ends the run with the rank, number and name.
///
/// Sums are NCCL's: in a fixed order for the same machines, not in rank order.
/// bf16 is not added here, nor sent for f32, since NCCL would round after each
/// addition: plans send it by all_to_all and add in f32.
class NcclWorld : public comm::World {
public:
  /// Collective over the host world, which has to outlive this.
  ///
  /// Errors  those of Nccl::load; FailedPrecondition if two ranks have one GPU;
  ///         those of NCCL; what ends the host world.
  static absl::StatusOr<std::unique_ptr<NcclWorld>>
  make(comm::World &host, const cuda::Driver &driver,
       const NcclOptions &options);

  /// All ranks have enqueued the same collectives on each communicator, in the
  /// same order: to be called after a capture and before its first launch,
  /// which could only hang otherwise. Collective over the world.
  ///
  /// Errors  FailedPrecondition naming two ranks, the communicator and how many
  ///         calls each has made.
  virtual absl::Status compareCalls() = 0;
  /// Ends all communicators at once. Later calls fail.
  virtual void abortCommunicators() = 0;
};

} // namespace qwen35::nccl

#endif // QWEN35_RUNTIME_NCCL_NCCL_WORLD_H
