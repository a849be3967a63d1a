#ifndef QWEN35_DIALECT_QWEN35_REFERENCE_OPTIMIZER_H
#define QWEN35_DIALECT_QWEN35_REFERENCE_OPTIMIZER_H

#include "absl/status/status.h"
#include "absl/types/span.h"

#include <cstdint>

namespace qwen35::reference {

/// sum = acc + sum of x^2: the meaning of `qwen35.norm_sq`.
///
/// Shapes  x: any; acc, sum: [1], may be the same element.
/// Types   Squares and sum in double, whatever Real is.
/// Errors  InvalidArgument if acc or sum is not one element.
template <typename Real>
absl::Status normSq(absl::Span<const Real> x, absl::Span<const double> acc,
                    absl::Span<double> sum);

/// Global-norm clipping: the meaning of `qwen35.clip_factor`.
///
///     norm   = sqrt(norm_sq)
///     factor = min(1, max_norm / (norm + 1e-6)), or 1 if max_norm is 0
///     commit = 1 if norm is finite, else 0, and then factor = 0
///
/// Shapes  normSq, norm, factor, commit: [1].
/// Units   maxNorm in those of norm; 0 never clips.
/// Types   Computed in double; finite means finite once rounded to Real.
/// Errors  InvalidArgument if a span is not one element, or maxNorm < 0.
/// Source  torch.nn.utils.clip_grad_norm_. It has no commit: the factor of a
///         step that is dropped is ours to define.
template <typename Real>
absl::Status clipFactor(absl::Span<const double> normSq, double maxNorm,
                        absl::Span<Real> norm, absl::Span<Real> factor,
                        absl::Span<Real> commit);

/// The constants of AdamW.
struct AdamwOptions {
  double beta1, beta2, eps, weightDecay;
};

/// One step of AdamW: the meaning of `qwen35.adamw`.
///
///     c  = g * factor
///     m' = beta1 m + (1 - beta1) c,  v' = beta2 v + (1 - beta2) c^2
///     p' = p (1 - lr weight_decay) - lr (m' / bc1) / (sqrt(v' / bc2) + eps)
///
/// When commit is 0 the results are p, m and v bit for bit, whatever g holds.
///
/// Shapes  p, m, v, g, newP, newM, newV: [elements]; a result may be the very
///         span of its operand. lr, factor, bc1, bc2, commit: [1].
/// Units   bc1 = 1 - beta1^step and bc2 = 1 - beta2^step, steps from 1.
/// Errors  InvalidArgument if a span's length is not its shape's, a beta is
///         outside [0, 1), eps <= 0 or weightDecay < 0.
/// Source  arXiv:1711.05101; torch.optim.AdamW.
template <typename Real>
absl::Status adamw(absl::Span<const Real> p, absl::Span<const Real> m,
                   absl::Span<const Real> v, absl::Span<const Real> g,
                   absl::Span<const Real> lr, absl::Span<const Real> factor,
                   absl::Span<const Real> bc1, absl::Span<const Real> bc2,
                   absl::Span<const Real> commit, const AdamwOptions &options,
                   absl::Span<Real> newP, absl::Span<Real> newM,
                   absl::Span<Real> newV);

} // namespace qwen35::reference

#endif // QWEN35_DIALECT_QWEN35_REFERENCE_OPTIMIZER_H
