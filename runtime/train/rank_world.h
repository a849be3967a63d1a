#ifndef QWEN35_RUNTIME_TRAIN_RANK_WORLD_H
#define QWEN35_RUNTIME_TRAIN_RANK_WORLD_H

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "runtime/comm/communicator.h"
#include "runtime/data/loader.h"
#include "runtime/train/run_setup.h"

namespace qwen35 {

/// One rank of a run: nothing, with a single rank.
struct RankPlace {
  comm::World *world = nullptr;
  int onMachine = 1;     // ranks that share this machine
  int onDevice = 0;      // the GPU of this rank, if it has one
  bool together = false; // ranks share one process, and its GPU
  std::string how;       // "virtual ranks", "mpirun", "torchrun's variables"

  bool first() const { return !world || world->rank() == 0; }
};

/// Calls `body` for every rank of the run that lives in this process: once, or
/// with --virtual-ranks once per rank, each in a thread of its own. Ranks that
/// are processes come together first and compare their bundles and recipes.
///
/// `setup` is that of this process or why it has none: then ranks still come
/// together, so that all of them say which one could not begin.
///
/// Errors  FailedPrecondition unless as many ranks were started as the bundle
/// is
///         for; those of comm::start and of `body`. An error of one rank ends
///         the others, in their own processes with comm::kFailureExit.
absl::Status runRanks(const RunOptions &options,
                      const absl::StatusOr<RunSetup> &setup,
                      absl::FunctionRef<absl::Status(const RankPlace &)> body);

/// What the loader of a rank gives it: the rows of its data rank, with
/// context parallelism its stripes of them.
absl::StatusOr<LoaderOptions> rankLoader(const RunSetup &setup,
                                         const RankPlace &place);

/// What the options say about executing a step, for a rank: threads are shared
/// with the ranks of the same machine.
StepOptions stepOptionsOf(const RunOptions &options, const RankPlace &place);

} // namespace qwen35

#endif // QWEN35_RUNTIME_TRAIN_RANK_WORLD_H
