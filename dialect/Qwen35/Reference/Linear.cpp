#include "dialect/Qwen35/Reference/Linear.h"

#include "dialect/Qwen35/Reference/Checks.h"
#include "dialect/Qwen35/Reference/Gemm.h"

namespace qwen35::reference {

template <typename Real>
absl::Status linear(absl::Span<const Real> x, absl::Span<const Real> weight,
                    int64_t rows, int64_t inputs, int64_t outputs,
                    absl::Span<Real> y) {
  Checks checks("linear");
  checks.shape("x", x.size(), {rows, inputs})
      .shape("weight", weight.size(), {outputs, inputs})
      .shape("y", y.size(), {rows, outputs});
  if (!checks.ok())
    return checks.status();
  multiply<Real>(matrix(y.data(), rows, outputs),
                 matrix(x.data(), rows, inputs),
                 matrix(weight.data(), outputs, inputs).transposed());
  return absl::OkStatus();
}

template <typename Real>
absl::Status matmul(absl::Span<const Real> a, absl::Span<const Real> b,
                    int64_t rows, int64_t columns, int64_t depth,
                    bool transposeA, bool transposeB, absl::Span<Real> c) {
  Checks checks("matmul");
  checks.shape("a", a.size(), {rows, depth})
      .shape("b", b.size(), {depth, columns})
      .shape("c", c.size(), {rows, columns});
  if (!checks.ok())
    return checks.status();
  auto left = transposeA ? matrix(a.data(), depth, rows).transposed()
                         : matrix(a.data(), rows, depth);
  auto right = transposeB ? matrix(b.data(), columns, depth).transposed()
                          : matrix(b.data(), depth, columns);
  multiply<Real>(matrix(c.data(), rows, columns), left, right);
  return absl::OkStatus();
}

#define QWEN35_INSTANTIATE(Real)                                               \
  template absl::Status linear<Real>(absl::Span<const Real>,                   \
                                     absl::Span<const Real>, int64_t, int64_t, \
                                     int64_t, absl::Span<Real>);               \
  template absl::Status matmul<Real>(absl::Span<const Real>,                   \
                                     absl::Span<const Real>, int64_t, int64_t, \
                                     int64_t, bool, bool, absl::Span<Real>);
QWEN35_INSTANTIATE(float)
QWEN35_INSTANTIATE(double)
#undef QWEN35_INSTANTIATE

} // namespace qwen35::reference
