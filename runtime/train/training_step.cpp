#include "runtime/train/training_step.h"

#include <algorithm>
#include <thread>
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

/// The buffers of a step's parameters.
class StepStore final : public ParamStore {
public:
  explicit StepStore(Step &step) : step(step) {}

  size_t params() const override {
    return static_cast<size_t>(step.message().params_size());
  }
  int64_t elements(ParamRole role, size_t param) const override {
    return static_cast<int64_t>(
        step.message().buffers(static_cast<int>(buffer(role, param))).bytes() /
        sizeof(float));
  }
  absl::Span<float> view(ParamRole role, size_t param) const override {
    absl::Span<uint8_t> bytes = step.bytes(buffer(role, param));
    return absl::MakeSpan(reinterpret_cast<float *>(bytes.data()),
                          bytes.size() / sizeof(float));
  }
  absl::Status copyOut(ParamRole role, size_t param, int64_t first,
                       absl::Span<float> values) const override {
    return step.read(
        buffer(role, param), static_cast<uint64_t>(first) * sizeof(float),
        absl::MakeSpan(reinterpret_cast<uint8_t *>(values.data()),
                       values.size() * sizeof(float)));
  }
  absl::Status copyIn(ParamRole role, size_t param, int64_t first,
                      absl::Span<const float> values) const override {
    return step.write(
        buffer(role, param), static_cast<uint64_t>(first) * sizeof(float),
        absl::MakeSpan(reinterpret_cast<const uint8_t *>(values.data()),
                       values.size() * sizeof(float)));
  }

  uint32_t buffer(ParamRole role, size_t param) const {
    const bundle::Param &entry =
        step.message().params(static_cast<int>(param));
    return role == ParamRole::Weight ? entry.weight()
           : role == ParamRole::M    ? entry.m()
           : role == ParamRole::V    ? entry.v()
                                     : entry.grad();
  }

private:
  Step &step;
};

int hostThreads() {
  unsigned found = std::thread::hardware_concurrency();
  return found ? static_cast<int>(std::min(found, 32u)) : 1;
}

constexpr ParamRole kRoles[] = {ParamRole::Weight, ParamRole::M, ParamRole::V,
                                ParamRole::Gradient};

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
  auto store = std::make_unique<StepStore>(*result.step);
  for (size_t i = 0; i < store->params(); ++i)
    for (ParamRole role : kRoles) {
      const bundle::Buffer &buffer = result.message().buffers(
          static_cast<int>(store->buffer(role, i)));
      // What ranks share has been compared with its shard.
      bool shared = options.world && result.message().has_mesh();
      if (buffer.dtype() != bundle::F32 ||
          (!shared && store->elements(role, i) != result.specs[i].elements()))
        return absl::InvalidArgumentError(absl::StrCat(
            "a buffer of parameter ", result.specs[i].name, " has ",
            store->elements(role, i), " elements of ",
            dtypeName(buffer.dtype()), ", expected ",
            result.specs[i].elements(), " of f32"));
    }
  result.params_ = std::move(store);
  if (options.world && result.message().has_mesh())
    result.ranks = std::make_unique<RankStore>(
        *result.params_, result.message(), result.specs, *options.world);
  return result;
}

SeqTable TrainingStep::rowShape() const {
  return SeqTable{message().io().tokens(), message().io().max_docs()};
}

std::vector<absl::Span<float>> TrainingStep::weights() const {
  std::vector<absl::Span<float>> result;
  for (size_t i = 0; i < specs.size(); ++i)
    result.push_back(params_->view(ParamRole::Weight, i));
  return result;
}

std::vector<absl::Span<const float>> TrainingStep::constWeights() const {
  std::vector<absl::Span<float>> spans = weights();
  return {spans.begin(), spans.end()};
}

std::vector<absl::Span<const float>> TrainingStep::gradients() const {
  std::vector<absl::Span<const float>> result;
  for (size_t i = 0; i < specs.size(); ++i)
    result.push_back(params_->view(ParamRole::Gradient, i));
  return result;
}

std::vector<ParamArrays<float>> TrainingStep::state() const {
  std::vector<ParamArrays<float>> result;
  for (size_t i = 0; i < specs.size(); ++i)
    result.push_back({params_->view(ParamRole::Weight, i),
                      params_->view(ParamRole::M, i),
                      params_->view(ParamRole::V, i)});
  return result;
}

absl::Status TrainingStep::clearMoments() {
  for (const bundle::Param &param : message().params())
    for (uint32_t buffer : {param.m(), param.v()})
      QWEN35_RETURN_IF_ERROR(step->fillBuffer(buffer, 0));
  return absl::OkStatus();
}

absl::Status TrainingStep::initialize(uint64_t seed) {
  QWEN35_RETURN_IF_ERROR(clearMoments());
  int threads = step->hostMemory() ? step->threads() : hostThreads();
  for (size_t i = 0; i < specs.size(); ++i) {
    absl::Status made;
    QWEN35_RETURN_IF_ERROR(store().write(
        ParamRole::Weight, i, 0, specs[i].elements(),
        [&](int64_t at, absl::Span<float> out) {
          made.Update(initParamSlice(seed, specs[i].name, specs[i].init, at,
                                     out, threads));
        }));
    QWEN35_RETURN_IF_ERROR(made);
  }
  return step->weightsChanged();
}

absl::Status TrainingStep::fill(const PackedRow &row, const Batch &batch) {
  QWEN35_RETURN_IF_ERROR(copyInput(*step, "ids", row.ids));
  QWEN35_RETURN_IF_ERROR(copyInput(*step, "labels", row.labels));
  if (!row.stripes.empty())
    QWEN35_RETURN_IF_ERROR(copyInput(*step, "stripes", row.stripes));
  QWEN35_RETURN_IF_ERROR(copyInput(*step, "seq", row.seq));
  QWEN35_RETURN_IF_ERROR(step->setScalar("inv_count", batch.invCount()));
  // The auxiliary loss of a step is the mean over its microbatches.
  if (step->hasScalar("aux_scale"))
    QWEN35_RETURN_IF_ERROR(step->setScalar(
        "aux_scale", 1.0f / static_cast<float>(batch.rows.size())));
  return absl::OkStatus();
}

absl::Status TrainingStep::setScalars(const Batch &batch,
                                      const StepScalars &scalars) {
  if (batch.rows.empty())
    return absl::InvalidArgumentError("a step needs at least one row");
  QWEN35_RETURN_IF_ERROR(step->setScalar("lr", scalars.lr));
  QWEN35_RETURN_IF_ERROR(
      step->setScalar("bias_correction1", scalars.biasCorrection1));
  return step->setScalar("bias_correction2", scalars.biasCorrection2);
}

absl::StatusOr<StepResult> TrainingStep::train(const Batch &batch,
                                               const StepScalars &scalars) {
  QWEN35_RETURN_IF_ERROR(setScalars(batch, scalars));
  QWEN35_RETURN_IF_ERROR(step->runStep(
      static_cast<int64_t>(batch.rows.size()), [&](int64_t row) {
        return fill(batch.rows[static_cast<size_t>(row)], batch);
      }));
  return result();
}

absl::Status TrainingStep::stage(const Batch &batch,
                                 const StepScalars &scalars) {
  QWEN35_RETURN_IF_ERROR(setScalars(batch, scalars));
  return step->stageStep(
      static_cast<int64_t>(batch.rows.size()), [&](int64_t row) {
        return fill(batch.rows[static_cast<size_t>(row)], batch);
      });
}

absl::StatusOr<StepResult> TrainingStep::finish() {
  QWEN35_RETURN_IF_ERROR(step->finishStep());
  return result();
}

absl::StatusOr<StepResult> TrainingStep::result() const {
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
