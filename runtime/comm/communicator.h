#ifndef QWEN35_RUNTIME_COMM_COMMUNICATOR_H
#define QWEN35_RUNTIME_COMM_COMMUNICATOR_H

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/comm/types.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

/// Communication between ranks: the same interface over threads of one process
/// (virtual.h), TCP or MPI (start.h) and NCCL (nccl.h).
///
/// How an executor of plans uses it, on every rank alike:
///
///   1. Make a World: comm::start(options) for a process of its own per rank,
///      with what all ranks have to agree on (the digest of the bundle) in
///      options.agree; runVirtualRanks(n, ...) for ranks of one process. With
///      GPUs, NcclWorld::make on top of that world.
///   2. Per communicator of the bundle, in the bundle's order, one split().
///      The order is part of the contract: all ranks split alike.
///   3. Per collective of the plan, in the plan's order, one call on its
///      communicator. Host worlds have finished when the call returns (start
///      does the work and wait has none); NCCL has enqueued it on stream(),
///      and the plan's waits are events of that stream. A plan entry maps to
///      one Call field by field; Site carries its name and number to errors.
///      One call at a time per world: the order is total.
///   4. Any error is final for the world: lastError() keeps it, later calls
///      return it. A rank that fails by itself tells the others by abort().
///   5. finish() at the end: a rank that leaves without it counts as dead.
///
/// Sums are in rank order for every element on the ranks of the communicator,
/// and each result is computed once or from the same operands in the same
/// order, so that all ranks hold the same bits, whatever carries the messages.
/// NCCL chooses its own order: same bits on every rank and in every run on the
/// same machines, but not those of the host.
namespace qwen35::comm {

struct Breadcrumb;

/// Where in a plan a collective stands, for error messages.
struct Site {
  absl::string_view label; // "grads of layer 3"; compared by nobody
  int64_t sequence = -1;   // the plan's number, compared between ranks; -1:
                           // the next of this world
};

/// How a reduction adds up. Without wire: the element type. Without
/// accumulate: f32 for f32 and bf16, else the element type.
struct Reduce {
  Reduction reduction = Reduction::kSum;
  std::optional<Type> wire = std::nullopt;
  std::optional<Type> accumulate = std::nullopt;
};

/// One collective, as plans hold it; see the methods of Communicator.
struct Call {
  Kind kind = Kind::kBarrier;
  Type type = Type::kByte;
  Reduction reduction = Reduction::kSum;
  Type wire = Type::kByte, accumulate = Type::kByte; // of reductions
  const void *send = nullptr;
  void *receive = nullptr;
  int64_t count = 0;        // elements
  int64_t receiveCount = 0; // of send_receive alone
  int root = 0;             // of broadcast; shift: the offset
  bool wrap = false;        // of shift
  int to = -1, from = -1;   // of send_receive; -1: nobody
  Site site;
};

/// A group of ranks that call the same collectives in the same order.
///
/// Shapes  counts are elements of the type; n is size(). Buffers of host
///         worlds are host memory, of NCCL device memory.
/// Memory  send and receive may not overlap, but for the in-place forms: equal
///         pointers, or for all_gather and reduce_scatter send (receive) at
///         this rank's part of receive (send).
/// Errors  InvalidArgument for what this rank alone can see, before anything is
///         sent. FailedPrecondition if ranks call different things; Unavailable
///         if a rank died or stopped; DeadlineExceeded if one does not come;
///         Aborted if one failed by itself. All of these name the rank, and
///         number, kind and label of the collective, and end the world.
class Communicator {
public:
  virtual ~Communicator() = default;

  const std::string &name() const { return title; }
  /// Within this communicator.
  int rank() const { return self; }
  int size() const { return static_cast<int>(group.size()); }
  /// Ranks of the world by rank of this communicator.
  const std::vector<int> &members() const { return group; }

  /// receive[r * count + i] = send of rank r [i]
  absl::Status allGather(const void *send, void *receive, int64_t count,
                         Type type, const Site &site = {});
  /// receive[i] = sum over r of send of rank r [i]. With a narrower wire both
  /// what is added and the result are rounded to it, on every rank alike.
  absl::Status allReduce(const void *send, void *receive, int64_t count,
                         Type type, const Reduce &reduce = {},
                         const Site &site = {});
  /// receive[i] = sum over r of send of rank r [rank() * count + i]. With a
  /// narrower wire what is added is rounded to it (this rank's part too), and
  /// the sum is not.
  absl::Status reduceScatter(const void *send, void *receive, int64_t count,
                             Type type, const Reduce &reduce = {},
                             const Site &site = {});
  /// receive[r * count + i] = send of rank r [rank() * count + i]
  absl::Status allToAll(const void *send, void *receive, int64_t count,
                        Type type, const Site &site = {});
  /// receive of rank r + offset = send of rank r. Without wrap, receive is
  /// zeros where no such rank is.
  absl::Status shift(const void *send, void *receive, int64_t count, Type type,
                     int offset, bool wrap = false, const Site &site = {});
  /// Sends to one rank and receives from one; -1 for neither. Ranks that do
  /// neither need not call. The other side's counts have to be the same.
  absl::Status sendReceive(int to, const void *send, int64_t sendCount,
                           int from, void *receive, int64_t receiveCount,
                           Type type, const Site &site = {});
  /// data of root, on every rank
  absl::Status broadcast(void *data, int64_t count, Type type, int root,
                         const Site &site = {});
  /// Returns when every rank has called it.
  absl::Status barrier(const Site &site = {});

  /// Any of the above; checks it and runs it.
  absl::Status run(const Call &call);

protected:
  Communicator(std::string name, int rank, std::vector<int> members)
      : title(std::move(name)), self(rank), group(std::move(members)) {}

  /// Of a call that check() has accepted.
  virtual absl::Status execute(const Call &call) = 0;

private:
  absl::Status check(const Call &call) const;

  std::string title;
  int self;
  std::vector<int> group;
};

/// All ranks of a run, and this one among them.
class World {
public:
  virtual ~World() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Every rank, by rank; named "world".
  virtual Communicator &all() = 0;

  /// A communicator of the group that holds this rank; null if none does. The
  /// list is the same on all ranks and the ranks of a group are in their order
  /// there. Collective over the world.
  ///
  /// Errors  InvalidArgument for an empty or overlapping group or a rank that
  ///         is not there; FailedPrecondition if ranks give different lists.
  virtual absl::StatusOr<std::shared_ptr<Communicator>>
  split(const std::string &name,
        const std::vector<std::vector<int>> &groups) = 0;

  /// What every rank gives, by rank: ids, handles, counts; beside the data, in
  /// host memory. Collective over the world; at most 16 MB per rank.
  virtual absl::StatusOr<std::vector<std::string>>
  exchange(absl::string_view what, const std::string &mine) = 0;

  /// This rank cannot go on: every other rank's present and later calls fail
  /// with "rank 2 failed: ...".
  virtual void abort(const absl::Status &why) = 0;
  /// The world cannot go on, for a reason that is nobody's own; every rank gets
  /// it, this one too. Returns the cause that counts.
  virtual absl::Status fail(const absl::Status &cause) = 0;
  /// This rank has waited too long at `where` (progress.h), which somebody else
  /// watches. Finds the rank that is to blame; returns the cause.
  virtual absl::Status late(const Breadcrumb &where) = 0;
  /// What somebody else than this world's own collectives sees this rank do.
  virtual void note(const Breadcrumb &where) = 0;
  /// Run when the world has failed, before the process ends; by a thread of
  /// the world. Worlds of virtual ranks have none and run nothing.
  virtual void onFailure(std::function<void(const absl::Status &)> action) = 0;
  /// The error that ended the world, or ok. Returns at once.
  virtual absl::Status lastError() const = 0;
  /// The orderly end; waits for all ranks. Collective over the world.
  virtual absl::Status finish() = 0;
};

/// The member list of the group that holds `rank`, checked as split() says;
/// empty if none does.
absl::StatusOr<std::vector<int>>
groupOf(int rank, int ranks, const std::string &name,
        const std::vector<std::vector<int>> &groups);

/// "all_reduce 'grads' of 4096 f32 (wire bf16)"
std::string describe(const Call &call);

} // namespace qwen35::comm

#endif // QWEN35_RUNTIME_COMM_COMMUNICATOR_H
