#ifndef QWEN35_RUNTIME_TRAIN_BATCH_DOOR_H
#define QWEN35_RUNTIME_TRAIN_BATCH_DOOR_H

#include <cstdio>

#include "absl/status/status.h"
#include "runtime/train/rank_world.h"
#include "runtime/train/run_setup.h"

namespace qwen35 {

/// The black-box door: runs optimizer steps on the batch of --batch, again and
/// again for --steps, and writes what they say and leave behind to --dump
/// (dump_file.h). Without --steps it is one step and the scalars have no axis.
///
/// Errors  those of readBatch, of the step, of writeDump. A gradient norm that
///         is not finite is dumped and said, not an error.
/// Ranks   The rows of the batch go to the data ranks in turn, so there have to
///         be as many or a multiple; rank 0 writes the dump, which is of whole
///         parameters.
absl::Status runBatchDoor(const RunSetup &setup, const RunOptions &options,
                          const RankPlace &place, FILE *out);

} // namespace qwen35

#endif // QWEN35_RUNTIME_TRAIN_BATCH_DOOR_H
