#include "runtime/train/trainer.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "runtime/bundle/format_bytes.h"
#include "runtime/bundle/status_macros.h"
#include "runtime/train/describe.h"
#include "runtime/train/stop_signal.h"

namespace qwen35 {
namespace {

using Clock = std::chrono::steady_clock;

double secondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

} // namespace

Trainer::Trainer(const TrainerParts &parts, int64_t lastStep, int maxSkipped)
    : parts(parts), lastStep(lastStep), maxSkipped(maxSkipped),
      printer(parts.out), device(parts.step.raw().device()) {}

absl::StatusOr<TrainEnd> Trainer::run(TrainState start) {
  state = std::move(start);
  if (state.step > 0)
    savedStep = state.step; // it was resumed from there
  StopSignal stop;
  int signal = 0;
  while (state.step < lastStep) {
    absl::StatusOr<int> asked = prepare();
    if (asked.ok() && *asked != 0) {
      signal = *asked;
      break;
    }
    absl::Status status = asked.ok() ? trainOne() : asked.status();
    if (!status.ok()) {
      // The state is that of the last step; its data may be at fault, not it.
      // A save takes all ranks.
      bool can = !parts.world || isOfAllRanks(status);
      if (can && savedStep != state.step && state.step > 0)
        complain(save());
      return status;
    }
    int64_t every = parts.recipe.train.saveEvery;
    bool due = every > 0 && state.step % every == 0;
    bool last = state.step == lastStep;
    if (due && !last)
      if (absl::Status status = save(); !status.ok()) {
        if (parts.world && !isOfAllRanks(status))
          return status; // the ranks have parted
        absl::FPrintF(parts.out,
                      "error: %s; training goes on, the newest checkpoint is "
                      "%s\n",
                      status.message(),
                      savedStep < 0 ? std::string("none")
                                    : absl::StrCat("step ", savedStep));
        std::fflush(parts.out);
      }
    if (skippedInRow >= maxSkipped) {
      absl::Status saved = savedStep == state.step ? absl::OkStatus() : save();
      return ofAllRanks(absl::AbortedError(absl::StrCat(
          skippedInRow, " steps in a row, up to step ", state.step,
          ", had a gradient norm that is not finite; the weights are those "
          "before them",
          saved.ok() ? "" : "; ", saved.ok() ? "" : saved.message())));
    }
  }
  if (savedStep != state.step && state.step > 0)
    QWEN35_RETURN_IF_ERROR(save());
  if (signal) {
    absl::FPrintF(parts.out,
                  "stopped by %s after step %d of %d; go on with --resume "
                  "auto\n",
                  StopSignal::name(signal), state.step, lastStep);
    std::fflush(parts.out);
  }
  return TrainEnd{state, signal};
}

absl::StatusOr<int> Trainer::prepare() {
  stepStart = Clock::now();
  dataWait = 0;
  absl::Status data = aheadStatus;
  int signal = StopSignal::received();
  if (data.ok() && !signal && !ahead) {
    data = parts.loader.next(batch);
    dataWait = parts.loader.waitedSeconds();
  }
  if (!parts.world) {
    QWEN35_RETURN_IF_ERROR(data);
    return signal;
  }
  constexpr float kTrouble = 1000; // more than any signal
  float mine = data.ok() ? static_cast<float>(signal) : kTrouble, most = 0;
  comm::Reduce largest;
  largest.reduction = comm::Reduction::kMax;
  QWEN35_RETURN_IF_ERROR(parts.world->all().allReduce(
      &mine, &most, 1, comm::Type::kF32, largest, {"whether to go on"}));
  if (most < kTrouble)
    return static_cast<int>(most);
  absl::StatusOr<std::vector<std::string>> all = parts.world->exchange(
      "trouble", data.ok() ? "" : std::string(data.message()));
  QWEN35_RETURN_IF_ERROR(all.status());
  for (size_t rank = 0; rank < all->size(); ++rank)
    if (!(*all)[rank].empty())
      return ofAllRanks(
          absl::Status(data.ok() ? absl::StatusCode::kAborted : data.code(),
                       absl::StrCat("rank ", rank, ": ", (*all)[rank])));
  return absl::InternalError("a rank has trouble and does not say which");
}

absl::Status Trainer::trainOne() {
  Clock::time_point start = stepStart;
  StepRecord record;
  record.dataSeconds = dataWait;
  if (ahead)
    std::swap(batch, next);
  record.ranks = parts.world ? parts.world->size() : 1;
  record.step = state.step + 1;
  StepScalars scalars =
      scalarsOf(parts.recipe, record.step, state.step - state.skipped);
  if (parts.profile)
    parts.profile->beforeStep();
  absl::StatusOr<StepResult> result = runBatch(scalars, record.step < lastStep);
  QWEN35_RETURN_IF_ERROR(result.status());
  record.stepSeconds = secondsSince(start);
  record.dataSeconds += aheadWait;
  if (parts.profile)
    parts.profile->afterStep(record.stepSeconds - record.dataSeconds);

  record.totalSteps = lastStep;
  record.loss = result->loss;
  record.lossTerms = {{"lm", result->lmLoss}};
  if (parts.step.raw().hasOutput("aux_loss"))
    record.lossTerms.push_back({"aux", result->auxLoss});
  record.lr = scalars.lr;
  record.gradNorm = result->gradNorm;
  record.committed = result->committed;
  record.realTokens = batch.realTokens;
  record.slots = batch.slots;
  record.documents = batch.documents;
  record.epoch = batch.epoch;
  record.etaSeconds =
      clock.update(record.step, lastStep, record.stepSeconds);
  if (record.stepSeconds > 0)
    record.flops = parts.step.message().model().flops_per_token() *
                   static_cast<double>(batch.realTokens) / record.stepSeconds;
  record.memoryBytes = residentBytes();
  record.memoryTotalBytes = machineBytes();
  if (device)
    measureDevice(record);

  ++state.step;
  state.realTokens += batch.realTokens;
  state.loader = batch.after.toJson();
  skippedInRow = record.committed ? 0 : skippedInRow + 1;
  state.skipped += record.committed ? 0 : 1;
  report(record);
  return absl::OkStatus();
}

absl::StatusOr<StepResult> Trainer::runBatch(const StepScalars &scalars,
                                             bool more) {
  bool staged = std::exchange(ahead, false);
  aheadWait = 0;
  if (!parts.step.raw().overlaps())
    return parts.step.train(batch, scalars);
  if (!staged || !(scalars == aheadScalars))
    QWEN35_RETURN_IF_ERROR(parts.step.stage(batch, scalars));
  QWEN35_RETURN_IF_ERROR(parts.step.launch());
  double waited = 0;
  if (more) {
    aheadStatus = parts.loader.next(next);
    waited = parts.loader.waitedSeconds();
    aheadScalars =
        scalarsOf(parts.recipe, state.step + 2, state.step + 1 - state.skipped);
    if (aheadStatus.ok())
      aheadStatus = parts.step.stage(next, aheadScalars);
    ahead = aheadStatus.ok();
  }
  Clock::time_point ready = Clock::now();
  absl::StatusOr<StepResult> result = parts.step.finish();
  // A step that is over by then waited for the data, not they for it.
  constexpr double kAtOnce = 50e-6;
  if (secondsSince(ready) < kAtOnce)
    aheadWait = waited;
  return result;
}

void Trainer::measureDevice(StepRecord &record) {
  const Step &step = parts.step.raw();
  StepGraph graph = step.graph();
  // Nothing is allocated between captures.
  if (graph.captures != measuredCaptures)
    memory = step.memory();
  measuredCaptures = graph.captures;
  record.onDevice = true;
  record.peakFlops = device->peakFlops * record.ranks;
  record.devicePlannedBytes = static_cast<int64_t>(memory.planned);
  record.deviceActualBytes = static_cast<int64_t>(memory.device);
  record.deviceTotalBytes = static_cast<int64_t>(memory.deviceTotal);
  record.launches =
      step.launchesPerStep(static_cast<int64_t>(batch.rows.size()));
  record.graphNodes = graph.nodes;
  record.graphCaptures = graph.captures;
  record.graphLaunches = graph.launches;
}

void Trainer::report(StepRecord &record) {
  printer.print(record);
  if (record.onDevice && std::exchange(saidCaptures, record.graphCaptures) !=
                             record.graphCaptures) {
    absl::FPrintF(parts.out, "%s",
                  describeLaunches(record.launches,
                                   parts.step.raw().graph()));
    std::fflush(parts.out);
  }
  if (!record.committed) {
    absl::FPrintF(parts.out,
                  "warning: step %d changed nothing, its gradient norm is not "
                  "finite (%d in a row, %d in all)\n",
                  record.step, skippedInRow, state.skipped);
    std::fflush(parts.out);
  }
  if (parts.metrics)
    complain(parts.metrics->append(record));
  if (parts.events)
    complain(parts.events->append(record));
}

void Trainer::complain(const absl::Status &status) {
  if (status.ok() || status.message() == lastComplaint)
    return;
  lastComplaint = std::string(status.message());
  absl::FPrintF(parts.out, "warning: %s; training goes on\n", lastComplaint);
  std::fflush(parts.out);
}

absl::Status Trainer::save() {
  if (!parts.saves)
    return absl::OkStatus();
  Clock::time_point start = Clock::now();
  if (parts.metrics)
    complain(parts.metrics->sync());
  SaveOptions options;
  options.keepLast = parts.recipe.train.keepLast;
  absl::StatusOr<SaveReport> report = SaveReport();
  QWEN35_RETURN_IF_ERROR(parts.step.onFirst("save", [&] {
    report = parts.store->save(state, parts.step.params(), parts.step.store(),
                               options);
    return report.status();
  }));
  savedStep = state.step;
  absl::FPrintF(parts.out, "saved %s (%s, %.2f s)\n", report->path,
                formatBytes(static_cast<uint64_t>(report->bytes)),
                secondsSince(start));
  if (!report->warning.empty())
    absl::FPrintF(parts.out, "warning: an old checkpoint stays: %s\n",
                  report->warning);
  std::fflush(parts.out);
  return absl::OkStatus();
}

} // namespace qwen35
