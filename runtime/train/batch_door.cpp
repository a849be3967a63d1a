#include "runtime/train/batch_door.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/bundle/status_macros.h"
#include "runtime/dump/batch_file.h"
#include "runtime/dump/dump_file.h"
#include "runtime/train/training_step.h"

namespace qwen35 {
namespace {

/// Leaves of the rows what this rank gets.
absl::Status takeRows(const LoaderOptions &loading, const std::string &path,
                      Batch &batch) {
  int64_t rows = static_cast<int64_t>(batch.rows.size());
  if (rows % loading.dataRanks != 0)
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": has ", rows, " rows of ", loading.shape.tokens,
                     " tokens, expected a multiple of the ", loading.dataRanks,
                     " data ranks (dpr x dps) of the bundle"));
  std::vector<PackedRow> mine;
  for (int64_t r = loading.dataRank; r < rows; r += loading.dataRanks) {
    mine.push_back(std::move(batch.rows[static_cast<size_t>(r)]));
    if (loading.stripeRanks == 1)
      continue;
    QWEN35_RETURN_IF_ERROR(cutRow(loading.shape, loading.stripeRank,
                                  loading.stripeRanks, mine.back()));
  }
  batch.rows = std::move(mine);
  return absl::OkStatus();
}

} // namespace

absl::Status runBatchDoor(const RunSetup &setup, const RunOptions &options,
                          const RankPlace &place, FILE *out) {
  absl::StatusOr<LoaderOptions> loading = rankLoader(setup, place);
  QWEN35_RETURN_IF_ERROR(loading.status());
  const bundle::Bundle &message = setup.bundle->message();
  BatchShape shape{loading->shape, message.model().vocab_size()};
  absl::StatusOr<Batch> batch = readBatch(options.batch, shape);
  QWEN35_RETURN_IF_ERROR(batch.status());
  size_t rows = batch->rows.size();
  QWEN35_RETURN_IF_ERROR(takeRows(*loading, options.batch, *batch));

  StepOptions stepOptions = stepOptionsOf(options, place);
  absl::StatusOr<TrainingStep> step =
      TrainingStep::create(setup.bundle, stepOptions);
  QWEN35_RETURN_IF_ERROR(step.status());
  if (setup.original) {
    QWEN35_RETURN_IF_ERROR(step->clearMoments());
    QWEN35_RETURN_IF_ERROR(setup.original->load(step->store()));
    QWEN35_RETURN_IF_ERROR(step->raw().weightsChanged());
  } else {
    QWEN35_RETURN_IF_ERROR(step->initialize(*options.initSeed));
  }
  absl::FPrintF(out,
                "batch %s: %d documents in %d rows of %d, %d tokens, %d "
                "labels\n",
                options.batch, batch->documents, rows, shape.row.tokens,
                batch->realTokens, batch->validLabels);

  Dump dump;
  int64_t steps = options.steps.value_or(1), skipped = 0;
  for (int64_t i = 1; i <= steps; ++i) {
    StepScalars scalars = scalarsOf(setup.recipe, i, i - 1 - skipped);
    absl::StatusOr<StepResult> result = step->train(*batch, scalars);
    QWEN35_RETURN_IF_ERROR(result.status());
    skipped += result->committed ? 0 : 1;
    dump.loss.push_back(result->loss);
    dump.auxLoss.push_back(result->auxLoss);
    dump.gradNorm.push_back(result->gradNorm);
    absl::FPrintF(out, "step %d/%d | loss %.7g | aux_loss %.7g | lr %.4g | "
                       "grad_norm %.7g%s\n",
                  i, steps, result->loss, result->auxLoss, scalars.lr,
                  result->gradNorm,
                  result->committed
                      ? ""
                      : " | skipped: gradient norm is not finite");
    std::fflush(out);
  }
  QWEN35_RETURN_IF_ERROR(step->onFirst("dump", [&] {
    return writeDump(options.dump, setup.params, dump, step->store(),
                     options.steps.has_value());
  }));
  absl::FPrintF(out, "dump %s\n", options.dump);
  return absl::OkStatus();
}

} // namespace qwen35
