#include "runtime/train/training_step.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/bundle/status_macros.h"
#include "runtime/init/init.h"
#include "runtime/schedule/schedule.h"

namespace qwen35 {
namespace {

/// Copies a row's array into an input of the step.
absl::Status copyInput(Step &step, const char *name,
                       const std::vector<int32_t> &values) {
  absl::StatusOr<absl::Span<int32_t>> input = step.input(name);
  QWEN35_RETURN_IF_ERROR(input.status());
  if (input->size() != values.size())
    return absl::InvalidArgumentError(
        absl::StrCat("a row brings ", values.size(), " words of ", name,
                     ", the bundle was compiled for ", input->size()));
  std::copy(values.begin(), values.end(), input->begin());
  return absl::OkStatus();
}

} // namespace

StepScalars scalarsOf(const Recipe &recipe, int64_t step, int64_t committed) {
  StepScalars scalars;
  scalars.lr = static_cast<float>(learningRate(recipe, step));
  scalars.biasCorrection1 =
      static_cast<float>(biasCorrection(recipe.optim.betas[0], committed + 1));
  scalars.biasCorrection2 =
      static_cast<float>(biasCorrection(recipe.optim.betas[1], committed + 1));
  return scalars;
}

absl::StatusOr<TrainingStep>
TrainingStep::create(std::shared_ptr<const BundleFile> bundle,
                     const StepOptions &options) {
  TrainingStep result;
  absl::StatusOr<std::vector<ParamSpec>> specs = paramTable(bundle->message());
  QWEN35_RETURN_IF_ERROR(specs.status());
  result.specs = std::move(*specs);
  absl::StatusOr<std::unique_ptr<Step>> step =
      Step::create(std::move(bundle), options);
  QWEN35_RETURN_IF_ERROR(step.status());
  result.step = std::move(*step);
  for (int i = 0; i < result.message().params_size(); ++i) {
    const bundle::Param &param = result.message().params(i);
    ParamArrays<float> state;
    absl::Span<float> grad;
    for (auto [index, span] : {std::pair{param.weight(), &state.weight},
                               std::pair{param.m(), &state.m},
                               std::pair{param.v(), &state.v},
                               std::pair{param.grad(), &grad}}) {
      absl::StatusOr<absl::Span<float>> buffer =
          result.step->buffer<float>(index);
      QWEN35_RETURN_IF_ERROR(buffer.status());
      if (static_cast<int64_t>(buffer->size()) != result.specs[i].elements())
        return absl::InvalidArgumentError(absl::StrCat(
            "a buffer of parameter ", param.name(), " has ", buffer->size(),
            " elements, expected ", result.specs[i].elements()));
      *span = *buffer;
    }
    result.arrays.push_back(state);
    result.grads.push_back(grad);
  }
  return result;
}

SeqTable TrainingStep::rowShape() const {
  return SeqTable{message().io().tokens(), message().io().max_docs()};
}

std::vector<absl::Span<float>> TrainingStep::weights() const {
  std::vector<absl::Span<float>> result;
  for (const ParamArrays<float> &array : arrays)
    result.push_back(array.weight);
  return result;
}

std::vector<absl::Span<const float>> TrainingStep::constWeights() const {
  std::vector<absl::Span<const float>> result;
  for (const ParamArrays<float> &array : arrays)
    result.push_back(array.weight);
  return result;
}

std::vector<absl::Span<const float>> TrainingStep::gradients() const {
  return {grads.begin(), grads.end()};
}

std::vector<ParamArrays<const float>> TrainingStep::constState() const {
  std::vector<ParamArrays<const float>> result;
  for (const ParamArrays<float> &array : arrays)
    result.push_back({array.weight, array.m, array.v});
  return result;
}

void TrainingStep::clearMoments() {
  for (ParamArrays<float> &array : arrays) {
    std::fill(array.m.begin(), array.m.end(), 0.0f);
    std::fill(array.v.begin(), array.v.end(), 0.0f);
  }
}

absl::Status TrainingStep::initialize(uint64_t seed) {
  clearMoments();
  for (size_t i = 0; i < specs.size(); ++i)
    QWEN35_RETURN_IF_ERROR(initParam(seed, specs[i].name, specs[i].init,
                                     arrays[i].weight, step->threads()));
  return absl::OkStatus();
}

absl::Status TrainingStep::fill(const PackedRow &row, const Batch &batch) {
  QWEN35_RETURN_IF_ERROR(copyInput(*step, "ids", row.ids));
  QWEN35_RETURN_IF_ERROR(copyInput(*step, "labels", row.labels));
  QWEN35_RETURN_IF_ERROR(copyInput(*step, "seq", row.seq));
  QWEN35_RETURN_IF_ERROR(step->setScalar("inv_count", batch.invCount()));
  // The auxiliary loss of a step is the mean over its microbatches.
  if (step->hasScalar("aux_scale"))
    QWEN35_RETURN_IF_ERROR(step->setScalar(
        "aux_scale", 1.0f / static_cast<float>(batch.rows.size())));
  return absl::OkStatus();
}

absl::StatusOr<StepResult> TrainingStep::train(const Batch &batch,
                                               const StepScalars &scalars) {
  if (batch.rows.empty())
    return absl::InvalidArgumentError("a step needs at least one row");
  QWEN35_RETURN_IF_ERROR(step->run("begin"));
  for (size_t i = 0; i < batch.rows.size(); ++i) {
    QWEN35_RETURN_IF_ERROR(fill(batch.rows[i], batch));
    if (i + 1 < batch.rows.size()) {
      QWEN35_RETURN_IF_ERROR(step->run("accumulate"));
      continue;
    }
    QWEN35_RETURN_IF_ERROR(step->setScalar("lr", scalars.lr));
    QWEN35_RETURN_IF_ERROR(
        step->setScalar("bias_correction1", scalars.biasCorrection1));
    QWEN35_RETURN_IF_ERROR(
        step->setScalar("bias_correction2", scalars.biasCorrection2));
    QWEN35_RETURN_IF_ERROR(step->run("finish"));
  }
  StepResult result;
  float commit = 0;
  for (auto [name, value] : {std::pair{"loss", &result.loss},
                             std::pair{"lm_loss", &result.lmLoss},
                             std::pair{"aux_loss", &result.auxLoss},
                             std::pair{"grad_norm", &result.gradNorm},
                             std::pair{"commit", &commit}}) {
    // A step without an auxiliary loss has one term and does not split it.
    if ((value == &result.auxLoss || value == &result.lmLoss) &&
        !step->hasOutput(name)) {
      *value = value == &result.lmLoss ? result.loss : 0.0f;
      continue;
    }
    absl::StatusOr<float> output = step->output(name);
    QWEN35_RETURN_IF_ERROR(output.status());
    *value = *output;
  }
  result.committed = commit != 0;
  return result;
}

absl::StatusOr<double> TrainingStep::evaluate(const Batch &batch) {
  double loss = 0;
  for (const PackedRow &row : batch.rows) {
    QWEN35_RETURN_IF_ERROR(step->run("begin"));
    QWEN35_RETURN_IF_ERROR(fill(row, batch));
    QWEN35_RETURN_IF_ERROR(step->run("eval"));
    absl::StatusOr<float> output = step->output("loss");
    QWEN35_RETURN_IF_ERROR(output.status());
    loss += *output;
  }
  return loss;
}

} // namespace qwen35
