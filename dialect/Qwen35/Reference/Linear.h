#ifndef QWEN35_DIALECT_QWEN35_REFERENCE_LINEAR_H
#define QWEN35_DIALECT_QWEN35_REFERENCE_LINEAR_H

#include "absl/status/status.h"
#include "absl/types/span.h"

#include <cstdint>

namespace qwen35::reference {

/// y = x weight^T: the meaning of `qwen35.linear`.
///
/// Shapes  x: [rows, inputs]; weight: [outputs, inputs]; y: [rows, outputs].
/// Units   All sizes count elements.
/// Errors  InvalidArgument if a span's length is not its shape's.
/// Source  MODEL.md 0: no linear layer of the text model has a bias.
template <typename Real>
absl::Status linear(absl::Span<const Real> x, absl::Span<const Real> weight,
                    int64_t rows, int64_t inputs, int64_t outputs,
                    absl::Span<Real> y);

/// c = op(a) op(b), op transposing on request: the meaning of `qwen35.matmul`.
///
/// Shapes  a: [rows, depth], or [depth, rows] if transposeA; b: [depth,
///         columns], or [columns, depth] if transposeB; c: [rows, columns].
/// Units   All sizes count elements.
/// Errors  InvalidArgument if a span's length is not its shape's.
/// Source  The gradients of linear: dx = dy weight, dweight = dy^T x.
template <typename Real>
absl::Status matmul(absl::Span<const Real> a, absl::Span<const Real> b,
                    int64_t rows, int64_t columns, int64_t depth,
                    bool transposeA, bool transposeB, absl::Span<Real> c);

} // namespace qwen35::reference

#endif // QWEN35_DIALECT_QWEN35_REFERENCE_LINEAR_H
