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

} // namespace qwen35::reference

#endif // QWEN35_DIALECT_QWEN35_REFERENCE_LOSS_H
