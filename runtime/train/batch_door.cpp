#include "runtime/train/batch_door.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "runtime/bundle/status_macros.h"
#include "runtime/dump/batch_file.h"
#include "runtime/dump/dump_file.h"
#include "runtime/train/training_step.h"

namespace qwen35 {

absl::Status runBatchDoor(const RunSetup &setup, const RunOptions &options,
                          FILE *out) {
  const bundle::Bundle &message = setup.bundle->message();
  BatchShape shape{{message.io().tokens(), message.io().max_docs()},
                   message.model().vocab_size()};
  absl::StatusOr<Batch> batch = readBatch(options.batch, shape);
  QWEN35_RETURN_IF_ERROR(batch.status());

  StepOptions stepOptions = stepOptionsOf(options);
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
                options.batch, batch->documents, batch->rows.size(),
                message.io().tokens(), batch->realTokens, batch->validLabels);

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
  QWEN35_RETURN_IF_ERROR(writeDump(options.dump, setup.params, dump,
                                   step->store(), options.steps.has_value()));
  absl::FPrintF(out, "dump %s\n", options.dump);
  return absl::OkStatus();
}

} // namespace qwen35
