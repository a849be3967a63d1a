#ifndef QWEN35_DIALECT_QWEN35_REFERENCE_GLUE_H
#define QWEN35_DIALECT_QWEN35_REFERENCE_GLUE_H

#include "absl/status/status.h"
#include "absl/types/span.h"

#include <cstdint>

namespace qwen35::reference {

/// y = silu(gate) * up: the meaning of `qwen35.swiglu`.
///
/// Shapes  gate, up, y: equal.
/// Errors  InvalidArgument if lengths differ.
/// Source  MODEL.md 5.1; arXiv:2002.05202.
template <typename Real>
absl::Status swiglu(absl::Span<const Real> gate, absl::Span<const Real> up,
                    absl::Span<Real> y);

/// dgate = dy * up * silu'(gate), dup = dy * silu(gate): the meaning of
/// `qwen35.swiglu_bwd`.
///
/// Shapes  dy, gate, up, dgate, dup: equal.
/// Errors  InvalidArgument if lengths differ.
/// Source  MODEL.md 13.5.
template <typename Real>
absl::Status swigluBwd(absl::Span<const Real> dy, absl::Span<const Real> gate,
                       absl::Span<const Real> up, absl::Span<Real> dgate,
                       absl::Span<Real> dup);

/// y = a + b: the meaning of `qwen35.add`.
///
/// Shapes  a, b, y: equal; y may be a or b.
/// Errors  InvalidArgument if lengths differ.
template <typename Real>
absl::Status add(absl::Span<const Real> a, absl::Span<const Real> b,
                 absl::Span<Real> y);

/// y = x * factor: the meaning of `qwen35.scale`.
///
/// Shapes  x, y: equal; y may be x.
/// Errors  InvalidArgument if lengths differ.
template <typename Real>
absl::Status scale(absl::Span<const Real> x, double factor, absl::Span<Real> y);

/// y = x * s: the meaning of `qwen35.mul_scalar`.
///
/// Shapes  x, y: equal; y may be x. s: [1].
/// Errors  InvalidArgument if a span's length is not its shape's.
template <typename Real>
absl::Status mulScalar(absl::Span<const Real> x, absl::Span<const Real> s,
                       absl::Span<Real> y);

/// y = x[.., start : start + size, ..] along `axis`: the meaning of
/// `qwen35.slice`.
///
/// Shapes  x: dims; y: dims with dims[axis] replaced by size.
/// Units   start and size count elements along the axis.
/// Errors  InvalidArgument if a span's length is not its shape's, the axis does
///         not exist or the slice leaves it.
template <typename Real>
absl::Status slice(absl::Span<const Real> x, absl::Span<const int64_t> dims,
                   int64_t axis, int64_t start, int64_t size,
                   absl::Span<Real> y);

/// y = the xs one after another along `axis`: the meaning of `qwen35.concat`.
///
/// Shapes  xs[i]: dims with dims[axis] replaced by sizes[i]; y: dims, where
///         dims[axis] is the sum of sizes.
/// Units   sizes count elements along the axis.
/// Errors  InvalidArgument if a span's length is not its shape's, the axis does
///         not exist, or sizes do not add up.
template <typename Real>
absl::Status concat(absl::Span<const absl::Span<const Real>> xs,
                    absl::Span<const int64_t> sizes,
                    absl::Span<const int64_t> dims, int64_t axis,
                    absl::Span<Real> y);

/// y = 0: the meaning of `qwen35.zeros`.
///
/// Shapes  y: any.
template <typename Real> absl::Status zeros(absl::Span<Real> y);

} // namespace qwen35::reference

#endif // QWEN35_DIALECT_QWEN35_REFERENCE_GLUE_H
