#include "dialect/Interpreter/Evaluators.h"

#include "llvm/ADT/bit.h"

#include <cmath>

using namespace mlir;

namespace qwen35::interpreter {

static int64_t bytesOf(const Elements &elements) {
  return std::visit(
      [](const auto &list) {
        return static_cast<int64_t>(list.size() * sizeof(list[0]));
      },
      elements);
}

std::shared_ptr<Elements> Memory::own(Elements elements) {
  int64_t bytes = bytesOf(elements);
  live += bytes;
  peak = std::max(peak, live);
  return std::shared_ptr<Elements>(new Elements(std::move(elements)),
                                   [this, bytes](Elements *owned) {
                                     live -= bytes;
                                     delete owned;
                                   });
}

void roundToBf16(absl::Span<float> values) {
  for (float &value : values) {
    if (std::isnan(value))
      continue;
    uint32_t bits = llvm::bit_cast<uint32_t>(value);
    bits += 0x7fff + ((bits >> 16) & 1);
    value = llvm::bit_cast<float>(bits & 0xffff0000u);
  }
}

template <typename Real>
absl::Status Frame<Real>::finish(absl::Status evaluated) {
  if constexpr (std::is_same_v<Real, float>)
    for (absl::Span<float> elements : toRound)
      roundToBf16(elements);
  toRound.clear();
  absl::Status result = failure.ok() ? std::move(evaluated) : failure;
  failure = absl::OkStatus();
  return result;
}

template <typename Real> void Frame<Real>::refuse(Value value) {
  if (!failure.ok())
    return;
  std::string text;
  llvm::raw_string_ostream(text)
      << "a value of type '" << value.getType()
      << "' does not meet an op that computes in float; interpret in double";
  failure = absl::InvalidArgumentError(text);
}

template class Frame<double>;
template class Frame<float>;

const EvaluatorTable &EvaluatorTable::get() {
  static const EvaluatorTable *table = [] {
    auto *filled = new EvaluatorTable;
    addAttentionOps(*filled);
    addDeltaOps(*filled);
    addGdnOps(*filled);
    addGlueOps(*filled);
    addLossOps(*filled);
    addMoeOps(*filled);
    addNormOps(*filled);
    addOptimizerOps(*filled);
    addStripeOps(*filled);
    return filled;
  }();
  return *table;
}

} // namespace qwen35::interpreter
