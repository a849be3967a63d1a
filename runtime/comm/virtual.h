#ifndef QWEN35_RUNTIME_COMM_VIRTUAL_H
#define QWEN35_RUNTIME_COMM_VIRTUAL_H

#include "runtime/comm/communicator.h"

#include <functional>
#include <memory>
#include <vector>

namespace qwen35::comm {

struct VirtualOptions {
  double limitSeconds = 300; // that a rank may keep others waiting
};

/// The worlds of n ranks of one process, by rank; each is for one thread. Bytes
/// are copied once, from the sender's buffer to the receiver's. A rank that is
/// waited for past the limit, that finished already, or that aborts is an error
/// on all ranks.
std::vector<std::unique_ptr<World>>
makeVirtualWorlds(int ranks, const VirtualOptions &options = {});

/// Runs `body` for every rank, each in a thread of its own, and waits for all.
/// An error that a body returns aborts the others; finish() is called for those
/// that return ok.
///
/// Errors  InvalidArgument unless ranks is 1 to 4096; else the cause that ended
///         the world first, which names its rank.
absl::Status runVirtualRanks(int ranks,
                             const std::function<absl::Status(World &)> &body,
                             const VirtualOptions &options = {});

} // namespace qwen35::comm

#endif // QWEN35_RUNTIME_COMM_VIRTUAL_H
