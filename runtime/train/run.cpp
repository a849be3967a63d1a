#include "runtime/train/run.h"

#include <chrono>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "runtime/bundle/format_bytes.h"
#include "runtime/bundle/status_macros.h"
#include "runtime/checkpoint/run_lock.h"
#include "runtime/train/batch_door.h"
#include "runtime/train/describe.h"
#include "runtime/train/rank_store.h"
#include "runtime/train/rank_world.h"
#include "runtime/train/run_setup.h"
#include "runtime/train/trainer.h"

namespace qwen35 {
namespace {

absl::StatusOr<std::shared_ptr<const Corpus>>
openCorpus(const RunOptions &options, const bundle::Bundle &message) {
  return Corpus::open(options.data, {message.model().vocab_size(),
                                     message.model().byte_vocabulary()});
}

/// One training run, from its folder's lock to the exported model.
class Run {
public:
  Run(RunSetup setup, const RunOptions &options, const RankPlace &place,
      FILE *out)
      : setup(std::move(setup)), options(options), place(place), out(out) {}

  absl::Status execute();

private:
  absl::Status openFolder();
  absl::StatusOr<std::string> findCheckpoint();
  absl::Status beginFrom(const std::string &checkpoint);
  absl::Status openOriginal();
  absl::Status openData();
  absl::Status fillWeights();
  absl::Status writeRecords();
  absl::Status train();
  absl::Status showLoss(const std::string &when);
  absl::Status showProfile(int64_t steps);
  absl::Status exportModel();
  absl::Status writeExport();
  absl::StatusOr<LoaderOptions> loaderOptions() const;
  template <typename... Args>
  void say(const absl::FormatSpec<Args...> &format, const Args &...args) {
    absl::FPrintF(out, format, args...);
    std::fflush(out);
  }

  RunSetup setup;
  const RunOptions &options;
  const RankPlace &place;
  FILE *out; // of ranks but the first: nowhere

  // Of the first rank:
  std::optional<RunLock> lock;
  std::optional<CheckpointStore> store;

  std::optional<Checkpoint> resumed;
  WeightsOrigin origin;
  TrainState state;
  std::shared_ptr<const Corpus> corpus;
  std::optional<TrainingStep> step;
  std::optional<Batch> firstBatch; // for --eval-loss
  std::optional<ProfileRun> profile;
  bool stopped = false;
};

absl::Status Run::openFolder() {
  absl::StatusOr<RunLock> locked = RunLock::acquire(options.out);
  QWEN35_RETURN_IF_ERROR(locked.status());
  lock.emplace(std::move(*locked));
  absl::StatusOr<CheckpointStore> opened = CheckpointStore::open(options.out);
  QWEN35_RETURN_IF_ERROR(opened.status());
  store.emplace(std::move(*opened));
  return absl::OkStatus();
}

absl::Status Run::execute() {
  absl::StatusOr<std::string> checkpoint = fromFirst(
      place.world, "checkpoint", [&]() -> absl::StatusOr<std::string> {
        QWEN35_RETURN_IF_ERROR(openFolder());
        return findCheckpoint();
      });
  QWEN35_RETURN_IF_ERROR(checkpoint.status());
  QWEN35_RETURN_IF_ERROR(beginFrom(*checkpoint));
  QWEN35_RETURN_IF_ERROR(openOriginal());
  QWEN35_RETURN_IF_ERROR(openData());

  StepOptions stepOptions = stepOptionsOf(options, place);
  absl::StatusOr<TrainingStep> created =
      TrainingStep::create(setup.bundle, stepOptions);
  QWEN35_RETURN_IF_ERROR(created.status());
  step.emplace(std::move(*created));
  say("%s", describeRun(setup, step->raw().threads(), &step->raw()));
  if (place.world)
    say("ranks   %d, %s\n", place.world->size(), place.how);
  if (corpus)
    say("data    %s\n",
        formatReport(reportCorpus(*corpus, setup.recipe.data.tokens),
                     setup.recipe.data.tokens));
  QWEN35_RETURN_IF_ERROR(fillWeights());
  QWEN35_RETURN_IF_ERROR(writeRecords());

  QWEN35_RETURN_IF_ERROR(
      showLoss(state.step > 0 ? absl::StrCat("resumed, step ", state.step)
                              : "start"));
  if (state.step < setup.steps) {
    int64_t before = state.step;
    step->raw().resetProfile();
    auto start = std::chrono::steady_clock::now();
    QWEN35_RETURN_IF_ERROR(train());
    double seconds = std::chrono::duration<double>(
                         std::chrono::steady_clock::now() - start)
                         .count();
    if (step->raw().device())
      say("%s", describeMemory(step->raw().memory()));
    if (place.first())
      QWEN35_RETURN_IF_ERROR(
          writeFile(joinPath(options.out, "summary.json"),
                    summaryRecord(step->raw(), before, state.step, seconds,
                                  setup.recipe.train.rows)));
    if (options.profile)
      QWEN35_RETURN_IF_ERROR(showProfile(state.step - before));
    if (state.step > before && !stopped)
      QWEN35_RETURN_IF_ERROR(showLoss(absl::StrCat("step ", state.step)));
  } else if (setup.steps > 0) {
    say("nothing to do: step %d of %d is done\n", state.step, setup.steps);
  }
  if (options.exportHf.empty())
    return absl::OkStatus();
  if (stopped) {
    say("not exported to %s: the run is not finished\n", options.exportHf);
    return absl::OkStatus();
  }
  return exportModel();
}

/// The folder of the checkpoint to go on from, or nothing to start.
absl::StatusOr<std::string> Run::findCheckpoint() {
  WeightsOrigin origin = originOf(options);
  if (!options.resume) {
    absl::StatusOr<std::vector<int64_t>> steps = store->steps();
    QWEN35_RETURN_IF_ERROR(steps.status());
    if (!steps->empty())
      return absl::AlreadyExistsError(absl::StrCat(
          "run folder ", options.out, " has checkpoints up to step ",
          steps->back(),
          "; go on with --resume auto or choose another folder"));
    return std::string();
  }
  std::vector<std::string> refused;
  absl::StatusOr<std::optional<Checkpoint>> newest =
      store->findNewest(&refused);
  QWEN35_RETURN_IF_ERROR(newest.status());
  for (const std::string &reason : refused)
    say("warning: passed over a damaged checkpoint: %s\n", reason);
  if (!newest->has_value()) {
    if (!origin.seed && origin.folder.empty())
      return absl::NotFoundError(absl::StrCat(
          store->path(), " has no valid checkpoint to resume from; give "
                         "--weights DIR or --init SEED to start"));
    say("resume  no checkpoint in %s yet: a fresh start\n", store->path());
    return std::string();
  }
  return (*newest)->path;
}

absl::Status Run::beginFrom(const std::string &checkpoint) {
  origin = originOf(options);
  if (checkpoint.empty())
    return absl::OkStatus();
  absl::StatusOr<Checkpoint> read = CheckpointStore::read(checkpoint);
  QWEN35_RETURN_IF_ERROR(read.status());
  resumed = std::move(*read);
  state = resumed->state;
  absl::StatusOr<WeightsOrigin> recorded =
      WeightsOrigin::fromJson(state.rng);
  if (!recorded.ok())
    return absl::Status(recorded.status().code(),
                        absl::StrCat(resumed->path, ": ",
                                     recorded.status().message()));
  if (origin.seed && origin.seed != recorded->seed)
    return absl::FailedPreconditionError(absl::StrCat(
        "--init ", *origin.seed, ", but the run in ", options.out,
        " started from ", recorded->text()));
  // A folder may have moved since; the one given now is taken.
  if (origin.folder.empty())
    origin = *recorded;
  say("resume  step %d of %d from %s\n", state.step, setup.steps,
      resumed->path);
  if (state.bundleSha256 != setup.bundle->digest())
    say("note: that checkpoint was made with another bundle (%s); its "
        "parameters fit, but the next steps may differ in rounding\n",
        state.bundleSha256.substr(0, 12));
  return absl::OkStatus();
}

/// A resumed run exports in the layout of the weights it once started from.
absl::Status Run::openOriginal() {
  if (setup.original || options.exportHf.empty() || origin.seed)
    return absl::OkStatus();
  absl::StatusOr<HfCheckpoint> original =
      HfCheckpoint::open(origin.folder, setup.params);
  if (!original.ok())
    return absl::Status(
        original.status().code(),
        absl::StrCat(original.status().message(),
                     " (the run started from it and exports in its layout; "
                     "give its new place with --weights)"));
  setup.original = std::make_shared<HfCheckpoint>(std::move(*original));
  return absl::OkStatus();
}

absl::StatusOr<LoaderOptions> Run::loaderOptions() const {
  return rankLoader(setup, place);
}

absl::Status Run::openData() {
  if (options.data.empty())
    return absl::OkStatus();
  absl::StatusOr<std::shared_ptr<const Corpus>> opened =
      openCorpus(options, setup.bundle->message());
  QWEN35_RETURN_IF_ERROR(opened.status());
  corpus = std::move(*opened);
  if (!options.evalLoss)
    return absl::OkStatus();
  absl::StatusOr<LoaderOptions> loading = loaderOptions();
  QWEN35_RETURN_IF_ERROR(loading.status());
  absl::StatusOr<Packer> packer = Packer::create(corpus, *loading);
  QWEN35_RETURN_IF_ERROR(packer.status());
  firstBatch.emplace();
  return packer->next(*firstBatch);
}

absl::Status Run::fillWeights() {
  if (resumed) {
    QWEN35_RETURN_IF_ERROR(
        CheckpointStore::load(*resumed, setup.params, step->store()));
    return step->raw().weightsChanged();
  }
  state.rng = origin.toJson(setup.recipe.train.seed);
  if (origin.seed) {
    say("weights seed %d\n", *origin.seed);
    return step->initialize(*origin.seed);
  }
  say("weights %s: %s\n", options.weights, setup.original->summary());
  QWEN35_RETURN_IF_ERROR(step->clearMoments());
  QWEN35_RETURN_IF_ERROR(setup.original->load(step->store()));
  return step->raw().weightsChanged();
}

absl::Status Run::writeRecords() {
  state.bundleSha256 = setup.bundle->digest();
  state.recipe = printRecipe(setup.recipe);
  if (!place.first())
    return absl::OkStatus();
  QWEN35_RETURN_IF_ERROR(
      writeFile(joinPath(options.out, "recipe.toml"), state.recipe));
  return writeFile(joinPath(options.out, "run.json"),
                   runRecord(setup, options, step->raw().threads(),
                             state.step, &step->raw()));
}

absl::Status Run::train() {
  std::optional<LoaderState> position;
  if (resumed) {
    absl::StatusOr<LoaderState> read = LoaderState::fromJson(state.loader);
    QWEN35_RETURN_IF_ERROR(read.status());
    position = std::move(*read);
  }
  absl::StatusOr<LoaderOptions> loading = loaderOptions();
  QWEN35_RETURN_IF_ERROR(loading.status());
  absl::StatusOr<std::unique_ptr<Loader>> loader =
      Loader::create(corpus, *loading, position ? &*position : nullptr);
  QWEN35_RETURN_IF_ERROR(loader.status());
  absl::StatusOr<std::unique_ptr<MetricsFile>> metrics =
      std::unique_ptr<MetricsFile>();
  absl::StatusOr<std::unique_ptr<EventFile>> events =
      std::unique_ptr<EventFile>();
  if (place.first()) {
    metrics =
        MetricsFile::open(joinPath(options.out, "metrics.jsonl"), state.step);
    QWEN35_RETURN_IF_ERROR(metrics.status());
    std::string tensorboard = joinPath(options.out, "tensorboard");
    QWEN35_RETURN_IF_ERROR(makeFolders(tensorboard));
    events = EventFile::create(tensorboard, state.step);
    QWEN35_RETURN_IF_ERROR(events.status());
  }

  if (options.profile)
    profile.emplace(step->raw(), setup.steps - state.step);
  Trainer trainer({*step, **loader, setup.recipe, store ? &*store : nullptr,
                   metrics->get(), events->get(), out, !options.noSave,
                   profile ? &*profile : nullptr, place.world},
                  setup.steps, options.maxSkipped);
  absl::StatusOr<TrainEnd> end = trainer.run(state);
  QWEN35_RETURN_IF_ERROR(end.status());
  state = end->state;
  stopped = end->signal != 0;
  return absl::OkStatus();
}

absl::Status Run::showLoss(const std::string &when) {
  if (!firstBatch)
    return absl::OkStatus();
  absl::StatusOr<double> loss = step->evaluate(*firstBatch);
  QWEN35_RETURN_IF_ERROR(loss.status());
  say("eval loss %.7f on the first batch (%s)\n", *loss, when);
  return absl::OkStatus();
}

absl::Status Run::showProfile(int64_t steps) {
  std::optional<StepDevice> device = step->raw().device();
  if (!device) {
    say("%s", describeProfile(step->raw().profile(), steps));
    return absl::OkStatus();
  }
  constexpr size_t kKernels = 30;
  say("%s", profile->report(kKernels));
  std::string table = joinPath(options.out, "profile.txt");
  std::string trace = joinPath(options.out, "trace.json");
  QWEN35_RETURN_IF_ERROR(writeFile(table, profile->report(0)));
  QWEN35_RETURN_IF_ERROR(
      writeFile(trace, chromeTrace(step->raw().trace(), device->name)));
  say("profile %s has every kernel, %s the launches of one step (Perfetto, "
      "chrome://tracing)\n",
      table, trace);
  return absl::OkStatus();
}

absl::Status Run::writeExport() {
  ExportOrigin made{state.step, setup.bundle->digest(), origin.text()};
  NewExport fresh;
  fresh.configJson = setup.bundle->message().model().config_json();
  absl::StatusOr<ExportReport> report =
      setup.original
          ? setup.original->exportTo(options.exportHf, step->store(),
                                     made)
          : exportNewHf(options.exportHf, setup.params, step->store(),
                        fresh, made);
  QWEN35_RETURN_IF_ERROR(report.status());
  say("exported %s: %d tensors, %s in %d %s%s%s\n", options.exportHf,
      report->tensors, formatBytes(static_cast<uint64_t>(report->bytes)),
      report->files.size(), report->files.size() == 1 ? "file" : "files",
      report->copied.empty() ? "" : "; copied ",
      absl::StrJoin(report->copied, ", "));
  for (const std::string &skipped : report->skipped)
    say("note: not copied: %s\n", skipped);
  return absl::OkStatus();
}

absl::Status Run::exportModel() {
  QWEN35_RETURN_IF_ERROR(
      step->onFirst("export", [&] { return writeExport(); }));
  if (!firstBatch)
    return absl::OkStatus();
  // What a reader of the folder will get, rounding to its dtypes included.
  absl::StatusOr<HfCheckpoint> written =
      HfCheckpoint::open(options.exportHf, setup.params);
  QWEN35_RETURN_IF_ERROR(written.status());
  QWEN35_RETURN_IF_ERROR(written->load(step->store()));
  QWEN35_RETURN_IF_ERROR(step->raw().weightsChanged());
  bool rounded = false;
  for (const auto &[name, tensor] : written->folder().tensors())
    rounded |= tensor.info->type == ElementType::BF16 ||
               tensor.info->type == ElementType::F16;
  return showLoss(absl::StrCat("reloaded from ", options.exportHf,
                               rounded ? ", whose 16-bit tensors are rounded"
                                       : ""));
}

} // namespace

absl::Status runBundle(const RunOptions &options, FILE *out) {
  absl::StatusOr<RunSetup> setup = setUpRun(options);
  if (options.dryRun) {
    QWEN35_RETURN_IF_ERROR(setup.status());
    absl::FPrintF(out, "%s\n%s", describeRun(*setup, options.threads, nullptr),
                  describePlan(*setup));
    if (setup->original)
      absl::FPrintF(out, "weights %s: %s\n", options.weights,
                    setup->original->summary());
    if (options.data.empty())
      return absl::OkStatus();
    const bundle::Bundle &message = setup->bundle->message();
    absl::StatusOr<std::shared_ptr<const Corpus>> corpus =
        openCorpus(options, message);
    QWEN35_RETURN_IF_ERROR(corpus.status());
    absl::FPrintF(
        out, "data    %s\n",
        formatReport(reportCorpus(**corpus, setup->recipe.data.tokens),
                     setup->recipe.data.tokens));
    return absl::OkStatus();
  }
  std::unique_ptr<FILE, int (*)(FILE *)> nowhere(
      std::fopen("/dev/null", "w"),
      [](FILE *file) { return file ? std::fclose(file) : 0; });
  return runRanks(options, setup, [&](const RankPlace &place) -> absl::Status {
    FILE *mine = place.first() ? out : nowhere.get();
    if (!mine)
      return absl::UnavailableError("cannot open /dev/null");
    if (!options.batch.empty())
      return runBatchDoor(*setup, options, place, mine);
    return Run(*setup, options, place, mine).execute();
  });
}

} // namespace qwen35
