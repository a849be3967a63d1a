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

template <typename Real>
absl::Status lmStats(absl::Span<const Real> h, absl::Span<const Real> weight,
                     absl::Span<const int32_t> labels, int64_t tokens,
                     int64_t vocab, int64_t columns, absl::Span<Real> highest,
                     absl::Span<Real> sum, absl::Span<Real> target) {
  Checks checks("lm_stats");
  checks.positive("vocab", vocab)
      .shape("h", h.size(), {tokens, columns})
      .shape("weight", weight.size(), {vocab, columns})
      .shape("labels", labels.size(), {tokens})
      .shape("highest", highest.size(), {tokens})
      .shape("sum", sum.size(), {tokens})
      .shape("target", target.size(), {tokens})
      .shardLabels("labels", labels, vocab);
  if (!checks.ok())
    return checks.status();
  std::vector<Real> logits(kRows * vocab);
  auto head = matrix(weight.data(), vocab, columns);
  for (int64_t first = 0; first < tokens; first += kRows) {
    int64_t rows = std::min(kRows, tokens - first);
    multiply<Real>(matrix(logits.data(), rows, vocab),
                   matrix(h.data() + first * columns, rows, columns),
                   head.transposed());
    for (int64_t i = 0; i < rows; ++i) {
      const Real *row = &logits[i * vocab];
      int64_t t = first + i;
      highest[t] = *std::max_element(row, row + vocab);
      sum[t] = 0;
      for (int64_t j = 0; j < vocab; ++j)
        sum[t] += std::exp(row[j] - highest[t]);
      target[t] = labels[t] >= 0 ? row[labels[t]] : Real(0);
    }
  }
  return absl::OkStatus();
}

template <typename Real>
absl::Status rescaleSum(absl::Span<const Real> sum, absl::Span<const Real> from,
                        absl::Span<const Real> to, absl::Span<Real> result) {
  Checks checks("rescale_sum");
  int64_t tokens = sum.size();
  checks.shape("from", from.size(), {tokens})
      .shape("to", to.size(), {tokens})
      .shape("result", result.size(), {tokens});
  if (!checks.ok())
    return checks.status();
  for (int64_t t = 0; t < tokens; ++t)
    result[t] = sum[t] * std::exp(from[t] - to[t]);
  return absl::OkStatus();
}

template <typename Real>
absl::Status lmStatsLoss(absl::Span<const int32_t> labels,
                         absl::Span<const Real> invCount,
                         absl::Span<const Real> highest,
                         absl::Span<const Real> sum,
                         absl::Span<const Real> target, int64_t tokens,
                         absl::Span<Real> loss) {
  Checks checks("lm_stats_loss");
  checks.shape("labels", labels.size(), {tokens})
      .shape("inv_count", invCount.size(), {1})
      .shape("highest", highest.size(), {tokens})
      .shape("sum", sum.size(), {tokens})
      .shape("target", target.size(), {tokens})
      .shape("loss", loss.size(), {1});
  if (!checks.ok())
    return checks.status();
  double total = 0;
  for (int64_t t = 0; t < tokens; ++t)
    if (labels[t] != kIgnoredLabel)
      total += std::log(sum[t]) - (target[t] - highest[t]);
  loss[0] = static_cast<Real>(total * invCount[0]);
  return absl::OkStatus();
}

template <typename Real>
absl::Status
lmStatsGrad(absl::Span<const Real> h, absl::Span<const Real> weight,
            absl::Span<const int32_t> labels, absl::Span<const Real> invCount,
            absl::Span<const Real> highest, absl::Span<const Real> sum,
            int64_t tokens, int64_t vocab, int64_t columns, absl::Span<Real> dh,
            absl::Span<Real> dweight) {
  Checks checks("lm_stats_grad");
  checks.positive("vocab", vocab)
      .shape("h", h.size(), {tokens, columns})
      .shape("weight", weight.size(), {vocab, columns})
      .shape("labels", labels.size(), {tokens})
      .shape("inv_count", invCount.size(), {1})
      .shape("highest", highest.size(), {tokens})
      .shape("sum", sum.size(), {tokens})
      .shape("dh", dh.size(), {tokens, columns})
      .shape("dweight", dweight.size(), {vocab, columns})
      .shardLabels("labels", labels, vocab);
  if (!checks.ok())
    return checks.status();
  std::fill(dweight.begin(), dweight.end(), Real(0));
  std::vector<Real> logits(kRows * vocab);
  auto head = matrix(weight.data(), vocab, columns);
  for (int64_t first = 0; first < tokens; first += kRows) {
    int64_t rows = std::min(kRows, tokens - first);
    auto block = matrix(logits.data(), rows, vocab);
    auto hidden = matrix(h.data() + first * columns, rows, columns);
    multiply<Real>(block, hidden, head.transposed());
    for (int64_t i = 0; i < rows; ++i) {
      int64_t t = first + i;
      if (labels[t] == kIgnoredLabel) {
        std::fill_n(block.row(i), vocab, Real(0));
        continue;
      }
      for (int64_t j = 0; j < vocab; ++j)
        block.at(i, j) = std::exp(block.at(i, j) - highest[t]) / sum[t];
      if (labels[t] >= 0)
        block.at(i, labels[t]) -= 1;
      for (int64_t j = 0; j < vocab; ++j)
        block.at(i, j) *= invCount[0];
    }
    multiply<Real>(matrix(dh.data() + first * columns, rows, columns), block,
                   head);
    multiply<Real>(matrix(dweight.data(), vocab, columns), block.transposed(),
                   hidden, /*accumulate=*/true);
  }
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
      int64_t, absl::Span<Real>, absl::Span<Real>, absl::Span<Real>);          \
  template absl::Status lmStats<Real>(                                         \
      absl::Span<const Real>, absl::Span<const Real>,                          \
      absl::Span<const int32_t>, int64_t, int64_t, int64_t, absl::Span<Real>,  \
      absl::Span<Real>, absl::Span<Real>);                                     \
  template absl::Status rescaleSum<Real>(                                      \
      absl::Span<const Real>, absl::Span<const Real>, absl::Span<const Real>,  \
      absl::Span<Real>);                                                       \
  template absl::Status lmStatsLoss<Real>(                                     \
      absl::Span<const int32_t>, absl::Span<const Real>,                       \
      absl::Span<const Real>, absl::Span<const Real>, absl::Span<const Real>,  \
      int64_t, absl::Span<Real>);                                              \
  template absl::Status lmStatsGrad<Real>(                                     \
      absl::Span<const Real>, absl::Span<const Real>,                          \
      absl::Span<const int32_t>, absl::Span<const Real>,                       \
      absl::Span<const Real>, absl::Span<const Real>, int64_t, int64_t,        \
      int64_t, absl::Span<Real>, absl::Span<Real>);
QWEN35_INSTANTIATE(float)
QWEN35_INSTANTIATE(double)
#undef QWEN35_INSTANTIATE

} // namespace qwen35::reference
