#ifndef QWEN35_RUNTIME_TRAIN_TRAINER_H
#define QWEN35_RUNTIME_TRAIN_TRAINER_H

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/checkpoint/train_checkpoint.h"
#include "runtime/data/loader.h"
#include "runtime/recipe/recipe.h"
#include "runtime/records/event_file.h"
#include "runtime/records/metrics_file.h"
#include "runtime/records/step_record.h"
#include "runtime/train/profile_run.h"
#include "runtime/train/training_step.h"

namespace qwen35 {

/// What the loop works with; all of it outlives the Trainer.
struct TrainerParts {
  TrainingStep &step;
  Loader &loader;
  const Recipe &recipe;
  // Of rank 0 alone, else null:
  const CheckpointStore *store;
  MetricsFile *metrics;
  EventFile *events;
  FILE *out;
  bool saves = true; // false: no checkpoint is written, whatever the recipe says
  ProfileRun *profile = nullptr; // told of every step
  comm::World *world = nullptr;  // of several ranks
};

/// How a run ended.
struct TrainEnd {
  TrainState state;
  int signal = 0; // it was asked to stop, else 0
};

/// The loop of a run: data, step, record, checkpoint, until the last step or a
/// signal.
///
/// Saving  Every train.save_every steps, after the last one and when stopped. A
///         save that fails in between is reported and training goes on, its
///         state being intact; the last one must succeed.
/// Data    Of the next step they go to the device while a step runs. Nothing
///         else is ahead of its time: a record, a checkpoint or a signal finds
///         the state of the step that is finished.
/// Ranks   Before every step they agree whether it takes place: a signal to
/// one,
///         or data that one cannot read, ends all after the same step, with a
///         checkpoint. Losses and norms are the same bits on all, and so is
///         what follows from them.
/// Guard   A step whose gradient norm is not finite changes nothing; it is
///         reported and counted, and after `maxSkipped` in a row the run gives
///         up.
class Trainer {
public:
  Trainer(const TrainerParts &parts, int64_t lastStep, int maxSkipped);

  /// Goes on after `state`, to which step counts, loader state and the texts
  /// that checkpoints carry belong.
  /// Errors  those of the loader and the step; of the last save; Aborted by
  ///         the guard.
  absl::StatusOr<TrainEnd> run(TrainState state);

private:
  /// Brings the data of the next step and returns the signal by which one of
  /// the ranks was told to stop, or 0.
  /// Errors  of any rank, ofAllRanks.
  absl::StatusOr<int> prepare();
  absl::Status trainOne();
  /// Trains on `batch`; meanwhile, if `more` steps follow and the target can,
  /// brings the data of the next one to the device.
  absl::StatusOr<StepResult> runBatch(const StepScalars &scalars, bool more);
  void report(StepRecord &record);
  void measureDevice(StepRecord &record);
  absl::Status save();
  /// Says once what went wrong with a record; the run does not depend on it.
  void complain(const absl::Status &status);

  TrainerParts parts;
  int64_t lastStep;
  int maxSkipped;

  TrainState state;
  Batch batch;
  // The next one, when it was brought to the device ahead of its turn: its
  // scalars follow from all steps before it being committed, which may turn out
  // not to be so.
  Batch next;
  bool ahead = false;
  StepScalars aheadScalars;
  absl::Status aheadStatus; // of next; comes up in its turn
  std::chrono::steady_clock::time_point stepStart;
  double dataWait = 0;  // seconds that prepare() waited for data
  double aheadWait = 0; // seconds that a finished step had to wait for its data
  StepPrinter printer;
  EtaClock clock;
  std::optional<StepDevice> device; // a GPU
  StepMemory memory;                // as it was after the newest capture
  int64_t measuredCaptures = -1, saidCaptures = -1;
  int64_t savedStep = -1; // the newest checkpoint of this run
  int skippedInRow = 0;
  std::string lastComplaint;
};

} // namespace qwen35

#endif // QWEN35_RUNTIME_TRAIN_TRAINER_H
