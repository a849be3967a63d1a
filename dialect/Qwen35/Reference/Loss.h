#ifndef QWEN35_DIALECT_QWEN35_REFERENCE_LOSS_H
#define QWEN35_DIALECT_QWEN35_REFERENCE_LOSS_H

#include "dialect/Qwen35/Reference/Checks.h"

#include "absl/status/status.h"
#include "absl/types/span.h"

#include <cstdint>

namespace qwen35::reference {

/// Head and cross entropy in one: the meaning of `qwen35.lm_loss`.
///
///     l[t] = weight h[t],  nll[t] = logsumexp(l[t]) - l[t, labels[t]]
///     loss = inv_count * sum of nll[t] over labels[t] != kIgnoredLabel
///
/// Shapes  h: [tokens, columns]; weight: [vocab, columns]; labels: [tokens],
///         already shifted: labels[t] is the target of token t;
///         invCount, loss: [1].
/// Units   invCount is 1 / valid labels of the whole step, the loss is in nats.
/// Types   Logits in Real, a few rows at a time; their sum in double.
/// Errors  InvalidArgument if a span's length is not its shape's, or a label is
///         neither in the vocabulary nor kIgnoredLabel.
/// Source  MODEL.md 6.
template <typename Real>
absl::Status lmLoss(absl::Span<const Real> h, absl::Span<const Real> weight,
                    absl::Span<const int32_t> labels,
                    absl::Span<const Real> invCount, int64_t tokens,
                    int64_t vocab, int64_t columns, absl::Span<Real> loss);

/// lmLoss and its gradients for a cotangent of 1: the meaning of
/// `qwen35.lm_loss_grad`.
///
///     dl[t] = (softmax(l[t]) - onehot(labels[t])) * inv_count, or 0 if ignored
///     dh = dl weight,  dweight = dl^T h
///
/// Shapes  As lmLoss; dh: [tokens, columns]; dweight: [vocab, columns].
/// Units   As lmLoss.
/// Types   As lmLoss.
/// Errors  As lmLoss.
/// Source  MODEL.md 13.11.
template <typename Real>
absl::Status lmLossGrad(absl::Span<const Real> h, absl::Span<const Real> weight,
                        absl::Span<const int32_t> labels,
                        absl::Span<const Real> invCount, int64_t tokens,
                        int64_t vocab, int64_t columns, absl::Span<Real> loss,
                        absl::Span<Real> dh, absl::Span<Real> dweight);

/// The head of one rank when the vocabulary is split: the meaning of
/// `qwen35.lm_stats`. With l[t] = weight h[t]:
///
///     highest[t] = max l[t],  sum[t] = sum of exp(l[t] - highest[t])
///     target[t] = l[t, labels[t]], or 0 where the label is not a row here
///
/// Shapes  As lmLoss, for the rank's own rows; highest, sum, target: [tokens].
/// Units   labels count from the rank's first row; kElsewhere is another's.
/// Types   As lmLoss.
/// Errors  As lmLoss.
/// Source  DESIGN.md 4.2.
template <typename Real>
absl::Status lmStats(absl::Span<const Real> h, absl::Span<const Real> weight,
                     absl::Span<const int32_t> labels, int64_t tokens,
                     int64_t vocab, int64_t columns, absl::Span<Real> highest,
                     absl::Span<Real> sum, absl::Span<Real> target);

/// result[t] = sum[t] * exp(from[t] - to[t]): `qwen35.rescale_sum`.
///
/// Shapes  All of one length.
/// Units   None.
/// Errors  InvalidArgument if lengths differ.
/// Source  DESIGN.md 4.2.
template <typename Real>
absl::Status rescaleSum(absl::Span<const Real> sum, absl::Span<const Real> from,
                        absl::Span<const Real> to, absl::Span<Real> result);

/// lmLoss from the statistics of all ranks: `qwen35.lm_stats_loss`.
///
/// Shapes  labels, highest, sum, target: [tokens]; invCount, loss: [1].
/// Units   As lmLoss; labels only say whether there is a target.
/// Errors  InvalidArgument if a span's length is not its shape's.
/// Source  DESIGN.md 4.2.
template <typename Real>
absl::Status lmStatsLoss(absl::Span<const int32_t> labels,
                         absl::Span<const Real> invCount,
                         absl::Span<const Real> highest,
                         absl::Span<const Real> sum,
                         absl::Span<const Real> target, int64_t tokens,
                         absl::Span<Real> loss);

/// The rank's part of the gradients of lmLoss: `qwen35.lm_stats_grad`.
///
/// Shapes  As lmLossGrad, for the rank's own rows; highest, sum: [tokens].
/// Units   As lmStats.
/// Errors  As lmLoss.
/// Source  DESIGN.md 4.2.
template <typename Real>
absl::Status
lmStatsGrad(absl::Span<const Real> h, absl::Span<const Real> weight,
            absl::Span<const int32_t> labels, absl::Span<const Real> invCount,
            absl::Span<const Real> highest, absl::Span<const Real> sum,
            int64_t tokens, int64_t vocab, int64_t columns, absl::Span<Real> dh,
            absl::Span<Real> dweight);

} // namespace qwen35::reference

#endif // QWEN35_DIALECT_QWEN35_REFERENCE_LOSS_H
