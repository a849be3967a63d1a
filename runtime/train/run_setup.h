#ifndef QWEN35_RUNTIME_TRAIN_RUN_SETUP_H
#define QWEN35_RUNTIME_TRAIN_RUN_SETUP_H

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/api/step.h"
#include "runtime/bundle/bundle_reader.h"
#include "runtime/checkpoint/hf_checkpoint.h"
#include "runtime/checkpoint/param_table.h"
#include "runtime/recipe/recipe.h"
#include "runtime/train/run.h"

namespace qwen35 {

/// Where the weights of a run came from at its beginning; checkpoints carry it,
/// so that a resumed run can still export in the layout of its original.
struct WeightsOrigin {
  std::optional<uint64_t> seed;
  std::string folder; // absolute; used when there is no seed

  std::string toJson(int64_t dataSeed) const;
  static absl::StatusOr<WeightsOrigin> fromJson(const std::string &text);
  std::string text() const; // "seed 7" or the folder
};

/// A run, resolved and checked as far as that needs no arenas.
struct RunSetup {
  std::shared_ptr<const BundleFile> bundle; // of the selected plan
  std::string targetNote; // why a GPU plan was passed over, or empty
  std::vector<ParamSpec> params;
  Recipe recipe;
  int64_t steps = 0; // the run ends after this one
  std::shared_ptr<const HfCheckpoint> original; // of --weights, or null
};

/// Errors  InvalidArgument for options that do not go together; those of the
///         bundle, the recipe and the checkpoint; FailedPrecondition for a
///         recipe that differs from the compiled one.
absl::StatusOr<RunSetup> setUpRun(const RunOptions &options);

/// What the options say about executing a step.
StepOptions stepOptionsOf(const RunOptions &options);

/// The weights of a fresh run.
WeightsOrigin originOf(const RunOptions &options);

} // namespace qwen35

#endif // QWEN35_RUNTIME_TRAIN_RUN_SETUP_H
