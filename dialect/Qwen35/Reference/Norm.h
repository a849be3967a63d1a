#ifndef QWEN35_DIALECT_QWEN35_REFERENCE_NORM_H
#define QWEN35_DIALECT_QWEN35_REFERENCE_NORM_H

#include "absl/status/status.h"
#include "absl/types/span.h"

#include <cstdint>

// Every function of this library is defined for Real = float and double, works
// in Real from start to end, and takes dense row-major tensors. Results must
// not overlap operands unless a comment allows it. A scalar tensor is a span of
// one element.

namespace qwen35::reference {

/// RMS norm of rows: the meaning of `qwen35.rms_norm`.
///
///     rstd[t] = 1 / sqrt(mean_d(x[t,d]^2) + eps)
///     y[t,d]  = x[t,d] * rstd[t] * (offset + weight[d])
///
/// Shapes  x, y: [rows, columns]; weight: [columns]; rstd: [rows].
/// Units   rows and columns count elements.
/// Errors  InvalidArgument if a span's length is not its shape's, columns or
///         eps <= 0.
/// Source  arXiv:1910.07467; offset 1 is that of `Qwen3_5RMSNorm`.
template <typename Real>
absl::Status rmsNorm(absl::Span<const Real> x, absl::Span<const Real> weight,
                     int64_t rows, int64_t columns, double eps, double offset,
                     absl::Span<Real> y, absl::Span<Real> rstd);

/// Gradient of rmsNorm: the meaning of `qwen35.rms_norm_bwd`.
///
///     n = x * rstd,  u = dy * (offset + weight)
///     dx = rstd * (u - n * mean(u * n)),  dweight = sum of rows of dy * n
///
/// Shapes  dy, x, dx: [rows, columns]; weight, dweight: [columns];
///         rstd: [rows], the forward result.
/// Units   rows and columns count elements.
/// Errors  InvalidArgument if a span's length is not its shape's, or
///         columns <= 0.
/// Source  MODEL.md 13.1.
template <typename Real>
absl::Status rmsNormBwd(absl::Span<const Real> dy, absl::Span<const Real> x,
                        absl::Span<const Real> weight,
                        absl::Span<const Real> rstd, int64_t rows,
                        int64_t columns, double offset, absl::Span<Real> dx,
                        absl::Span<Real> dweight);

/// The output norm of GatedDeltaNet: the meaning of `qwen35.gated_rms_norm`.
///
///     rstd[r] = 1 / sqrt(mean_d(o[r,d]^2) + eps)
///     y[r,d]  = weight[d] * o[r,d] * rstd[r] * silu(z[r,d])
///
/// Shapes  o, z, y: [rows, columns], where a row is one head of one token;
///         weight: [columns], shared by the heads; rstd: [rows].
/// Units   rows and columns count elements.
/// Errors  InvalidArgument if a span's length is not its shape's, columns or
///         eps <= 0.
/// Source  MODEL.md 2.3, the form that rounds once.
template <typename Real>
absl::Status gatedRmsNorm(absl::Span<const Real> o, absl::Span<const Real> z,
                          absl::Span<const Real> weight, int64_t rows,
                          int64_t columns, double eps, absl::Span<Real> y,
                          absl::Span<Real> rstd);

/// Gradient of gatedRmsNorm: the meaning of `qwen35.gated_rms_norm_bwd`.
///
/// Shapes  dy, o, z, dO, dz: [rows, columns]; weight, dweight: [columns],
/// summed
///         over tokens and heads; rstd: [rows], the forward result.
/// Units   rows and columns count elements.
/// Errors  InvalidArgument if a span's length is not its shape's, or
///         columns <= 0.
/// Source  MODEL.md 13.2.
template <typename Real>
absl::Status gatedRmsNormBwd(absl::Span<const Real> dy,
                             absl::Span<const Real> o, absl::Span<const Real> z,
                             absl::Span<const Real> weight,
                             absl::Span<const Real> rstd, int64_t rows,
                             int64_t columns, absl::Span<Real> dO,
                             absl::Span<Real> dz, absl::Span<Real> dweight);

} // namespace qwen35::reference

#endif // QWEN35_DIALECT_QWEN35_REFERENCE_NORM_H
