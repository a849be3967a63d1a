#ifndef QWEN35_RUNTIME_TRAIN_TRAINING_STEP_H
#define QWEN35_RUNTIME_TRAIN_TRAINING_STEP_H

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/api/step.h"
#include "runtime/checkpoint/param_store.h"
#include "runtime/checkpoint/param_table.h"
#include "runtime/checkpoint/train_checkpoint.h"
#include "runtime/data/loader.h"
#include "runtime/recipe/recipe.h"
#include "runtime/train/rank_store.h"

namespace qwen35 {

/// Scalars of one optimizer step that the host computes.
struct StepScalars {
  float lr = 0, biasCorrection1 = 1, biasCorrection2 = 1;
  bool operator==(const StepScalars &) const = default;
};

/// Those of step `step` (from 1) of a run of which `committed` steps changed
/// the weights: the schedule follows the run, the bias corrections the moments.
StepScalars scalarsOf(const Recipe &recipe, int64_t step, int64_t committed);

/// What one optimizer step says about itself.
struct StepResult {
  float loss = 0;    // all terms, over the valid labels of the whole step
  float lmLoss = 0;  // the part of the next-token loss; `loss` without others
  float auxLoss = 0; // before its coefficient; 0 without such a term
  float gradNorm = 0;
  bool committed = true; // false: the norm was not finite, nothing changed
};

/// A bundle's step with its parameters at hand: one optimizer step per call.
///
/// Shapes  Every span is what this rank has of a parameter, the whole of it
/// with
///         one rank, float32, row-major, in the order of params(), and lives in
///         the step's arenas. Spans are there where that is memory of the host
///         (raw().hostMemory()); the store always is.
/// Ranks   With a world, everything that runs programs, and onFirst, is
///         collective. params() and store() are of whole parameters: reading
///         is for rank 0 within onFirst (rank_store.h).
class TrainingStep {
public:
  /// Errors  those of Step::create and paramTable; InvalidArgument when a
  ///         buffer of a parameter has another size than the parameter.
  static absl::StatusOr<TrainingStep>
  create(std::shared_ptr<const BundleFile> bundle, const StepOptions &options);

  const std::vector<ParamSpec> &params() const { return specs; }
  const bundle::Bundle &message() const { return step->message(); }
  SeqTable rowShape() const;
  Step &raw() { return *step; }

  /// All roles of all parameters. Whoever writes weights calls
  /// raw().weightsChanged() after.
  const ParamStore &store() const {
    if (ranks)
      return *ranks;
    return *params_;
  }
  /// Runs `work` on rank 0 and gives every rank its status; see RankStore.
  absl::Status onFirst(absl::string_view what,
                       absl::FunctionRef<absl::Status()> work) const {
    return ranks ? ranks->onFirst(what, work) : work();
  }
  std::vector<absl::Span<float>> weights() const;
  std::vector<absl::Span<const float>> constWeights() const;
  std::vector<absl::Span<const float>> gradients() const;
  std::vector<ParamArrays<float>> state() const;

  /// Weights from the bundle's init rules, moments zero.
  absl::Status initialize(uint64_t seed);
  absl::Status clearMoments();

  /// begin, accumulate for every row but the last, finish for the last.
  /// Errors  InvalidArgument for a batch without rows or rows of another shape.
  absl::StatusOr<StepResult> train(const Batch &batch,
                                   const StepScalars &scalars);
  /// The same in parts, where raw().overlaps(): see Step::stageStep.
  absl::Status stage(const Batch &batch, const StepScalars &scalars);
  absl::Status launch() { return step->launchStep(); }
  absl::StatusOr<StepResult> finish();
  /// The loss of the eval program over the batch; no state changes.
  absl::StatusOr<double> evaluate(const Batch &batch);

private:
  TrainingStep() = default;
  absl::Status fill(const PackedRow &row, const Batch &batch);
  absl::Status setScalars(const Batch &batch, const StepScalars &scalars);
  absl::StatusOr<StepResult> result() const;

  std::unique_ptr<Step> step;
  std::vector<ParamSpec> specs;
  std::unique_ptr<ParamStore> params_; // of this rank
  std::unique_ptr<RankStore> ranks;    // over it; null: one rank
};

} // namespace qwen35

#endif // QWEN35_RUNTIME_TRAIN_TRAINING_STEP_H
