#include "dialect/Qwen35/Reference/Loss.h"

#include "dialect/Qwen35/Reference/Gemm.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace qwen35::reference {

/// Rows whose logits are held at once.
static constexpr int64_t kRows = 64;

template <typename Real>
static Checks
checkLoss(absl::string_view op, absl::Span<const Real> h,
          absl::Span<const Real> weight, absl::Span<const int32_t> labels,
          absl::Span<const Real> invCount, int64_t tokens, int64_t vocab,
          int64_t columns, absl::Span<const Real> loss) {
  Checks checks(op);
  checks.positive("vocab", vocab)
      .shape("h", h.size(), {tokens, columns})
      .shape("weight", weight.size(), {vocab, columns})
      .shape("labels", labels.size(), {tokens})
      .shape("inv_count", invCount.size(), {1})
      .shape("loss", loss.size(), {1})
      .labels("labels", labels, vocab);
  return checks;
}

/// The nll of one row; turns its logits into their softmax.
template <typename Real>
static Real softmaxNll(Real *logits, int64_t vocab, int64_t target) {
  Real highest = *std::max_element(logits, logits + vocab);
  Real shifted = logits[target] - highest, sum = 0;
  for (int64_t j = 0; j < vocab; ++j)
    sum += logits[j] = std::exp(logits[j] - highest);
  for (int64_t j = 0; j < vocab; ++j)
    logits[j] /= sum;
  return std::log(sum) - shifted;
}

template <typename Real>
absl::Status lmLoss(absl::Span<const Real> h, absl::Span<const Real> weight,
                    absl::Span<const int32_t> labels,
                    absl::Span<const Real> invCount, int64_t tokens,
                    int64_t vocab, int64_t columns, absl::Span<Real> loss) {
  Checks checks = checkLoss<Real>("lm_loss", h, weight, labels, invCount,
                                  tokens, vocab, columns, loss);
  if (!checks.ok())
    return checks.status();
  std::vector<Real> logits(kRows * vocab);
  auto head = matrix(weight.data(), vocab, columns);
  double sum = 0;
  for (int64_t first = 0; first < tokens; first += kRows) {
    int64_t rows = std::min(kRows, tokens - first);
    multiply<Real>(matrix(logits.data(), rows, vocab),
                   matrix(h.data() + first * columns, rows, columns),
                   head.transposed());
    for (int64_t i = 0; i < rows; ++i)
      if (labels[first + i] != kIgnoredLabel)
        sum += softmaxNll(&logits[i * vocab], vocab, labels[first + i]);
  }
  loss[0] = static_cast<Real>(sum * invCount[0]);
  return absl::OkStatus();
}

template <typename Real>
absl::Status lmLossGrad(absl::Span<const Real> h, absl::Span<const Real> weight,
                        absl::Span<const int32_t> labels,
                        absl::Span<const Real> invCount, int64_t tokens,
                        int64_t vocab, int64_t columns, absl::Span<Real> loss,
                        absl::Span<Real> dh, absl::Span<Real> dweight) {
  Checks checks = checkLoss<Real>("lm_loss_grad", h, weight, labels, invCount,
                                  tokens, vocab, columns, loss);
  checks.shape("dh", dh.size(), {tokens, columns})
      .shape("dweight", dweight.size(), {vocab, columns});
  if (!checks.ok())
    return checks.status();
  std::fill(dweight.begin(), dweight.end(), Real(0));
  std::vector<Real> logits(kRows * vocab);
  auto head = matrix(weight.data(), vocab, columns);
  double sum = 0;
  for (int64_t first = 0; first < tokens; first += kRows) {
    int64_t rows = std::min(kRows, tokens - first);
    auto block = matrix(logits.data(), rows, vocab);
    auto hidden = matrix(h.data() + first * columns, rows, columns);
    multiply<Real>(block, hidden, head.transposed());
    for (int64_t i = 0; i < rows; ++i) {
      int64_t target = labels[first + i];
      if (target == kIgnoredLabel) {
        std::fill_n(block.row(i), vocab, Real(0));
        continue;
      }
      sum += softmaxNll(block.row(i), vocab, target);
      block.at(i, target) -= 1;
      for (int64_t j = 0; j < vocab; ++j)
        block.at(i, j) *= invCount[0];
    }
    multiply<Real>(matrix(dh.data() + first * columns, rows, columns), block,
                   head);
    multiply<Real>(matrix(dweight.data(), vocab, columns), block.transposed(),
                   hidden, /*accumulate=*/true);
  }
  loss[0] = static_cast<Real>(sum * invCount[0]);
  return absl::OkStatus();
}

#define QWEN35_INSTANTIATE(Real)                                               \
  template absl::Status lmLoss<Real>(                                          \
      absl::Span<const Real>, absl::Span<const Real>,                          \
      absl::Span<const int32_t>, absl::Span<const Real>, int64_t, int64_t,     \
      int64_t, absl::Span<Real>);                                              \
  template absl::Status lmLossGrad<Real>(                                      \
      absl::Span<const Real>, absl::Span<const Real>,                          \
      absl::Span<const int32_t>, absl::Span<const Real>, int64_t, int64_t,     \
      int64_t, absl::Span<Real>, absl::Span<Real>, absl::Span<Real>);
QWEN35_INSTANTIATE(float)
QWEN35_INSTANTIATE(double)
#undef QWEN35_INSTANTIATE

} // namespace qwen35::reference
