#include "dialect/Qwen35/Reference/Glue.h"

#include "dialect/Qwen35/Reference/Checks.h"
#include "dialect/Qwen35/Reference/Scalar.h"

#include "absl/strings/str_cat.h"

#include <algorithm>
#include <vector>

namespace qwen35::reference {

template <typename Real>
absl::Status swiglu(absl::Span<const Real> gate, absl::Span<const Real> up,
                    absl::Span<Real> y) {
  int64_t elements = gate.size();
  Checks checks("swiglu");
  checks.shape("up", up.size(), {elements}).shape("y", y.size(), {elements});
  if (!checks.ok())
    return checks.status();
  for (int64_t i = 0; i < elements; ++i)
    y[i] = silu(gate[i]) * up[i];
  return absl::OkStatus();
}

template <typename Real>
absl::Status swigluBwd(absl::Span<const Real> dy, absl::Span<const Real> gate,
                       absl::Span<const Real> up, absl::Span<Real> dgate,
                       absl::Span<Real> dup) {
  int64_t elements = dy.size();
  Checks checks("swiglu_bwd");
  checks.shape("gate", gate.size(), {elements})
      .shape("up", up.size(), {elements})
      .shape("dgate", dgate.size(), {elements})
      .shape("dup", dup.size(), {elements});
  if (!checks.ok())
    return checks.status();
  for (int64_t i = 0; i < elements; ++i) {
    dgate[i] = dy[i] * up[i] * siluDerivative(gate[i]);
    dup[i] = dy[i] * silu(gate[i]);
  }
  return absl::OkStatus();
}

template <typename Real>
absl::Status add(absl::Span<const Real> a, absl::Span<const Real> b,
                 absl::Span<Real> y) {
  int64_t elements = a.size();
  Checks checks("add");
  checks.shape("b", b.size(), {elements}).shape("y", y.size(), {elements});
  if (!checks.ok())
    return checks.status();
  for (int64_t i = 0; i < elements; ++i)
    y[i] = a[i] + b[i];
  return absl::OkStatus();
}

template <typename Real>
absl::Status scale(absl::Span<const Real> x, double factor,
                   absl::Span<Real> y) {
  int64_t elements = x.size();
  Checks checks("scale");
  checks.shape("y", y.size(), {elements});
  if (!checks.ok())
    return checks.status();
  for (int64_t i = 0; i < elements; ++i)
    y[i] = x[i] * Real(factor);
  return absl::OkStatus();
}

template <typename Real>
absl::Status mulScalar(absl::Span<const Real> x, absl::Span<const Real> s,
                       absl::Span<Real> y) {
  int64_t elements = x.size();
  Checks checks("mul_scalar");
  checks.shape("s", s.size(), {1}).shape("y", y.size(), {elements});
  if (!checks.ok())
    return checks.status();
  for (int64_t i = 0; i < elements; ++i)
    y[i] = x[i] * s[0];
  return absl::OkStatus();
}

/// Product of dims[first, last).
static int64_t product(absl::Span<const int64_t> dims, int64_t first,
                       int64_t last) {
  int64_t result = 1;
  for (int64_t i = first; i < last; ++i)
    result *= dims[i];
  return result;
}

template <typename Real>
absl::Status slice(absl::Span<const Real> x, absl::Span<const int64_t> dims,
                   int64_t axis, int64_t start, int64_t size,
                   absl::Span<Real> y) {
  int64_t rank = dims.size();
  Checks checks("slice");
  checks.range("axis", axis, 0, rank - 1).shape("x", x.size(), dims);
  if (!checks.ok())
    return checks.status();
  std::vector<int64_t> result(dims.begin(), dims.end());
  result[axis] = size;
  checks.range("start", start, 0, dims[axis])
      .range("size", size, 0, dims[axis] - start)
      .shape("y", y.size(), result);
  if (!checks.ok())
    return checks.status();
  int64_t outer = product(dims, 0, axis);
  int64_t inner = product(dims, axis + 1, rank);
  for (int64_t i = 0; i < outer; ++i)
    std::copy_n(x.data() + (i * dims[axis] + start) * inner, size * inner,
                y.data() + i * size * inner);
  return absl::OkStatus();
}

template <typename Real>
absl::Status concat(absl::Span<const absl::Span<const Real>> xs,
                    absl::Span<const int64_t> sizes,
                    absl::Span<const int64_t> dims, int64_t axis,
                    absl::Span<Real> y) {
  int64_t rank = dims.size(), operands = xs.size();
  Checks checks("concat");
  checks.range("axis", axis, 0, rank - 1)
      .shape("sizes", sizes.size(), {operands})
      .shape("y", y.size(), dims);
  if (!checks.ok())
    return checks.status();
  std::vector<int64_t> part(dims.begin(), dims.end());
  int64_t total = 0;
  for (int64_t i = 0; i < operands; ++i) {
    part[axis] = sizes[i];
    checks.shape(absl::StrCat("operand ", i), xs[i].size(), part);
    total += sizes[i];
  }
  checks.require(total == dims[axis],
                 absl::StrCat("sizes add up to ", total, ", expected ",
                              dims[axis], " along axis ", axis));
  if (!checks.ok())
    return checks.status();
  int64_t outer = product(dims, 0, axis);
  int64_t inner = product(dims, axis + 1, rank);
  Real *out = y.data();
  for (int64_t i = 0; i < outer; ++i)
    for (int64_t part = 0; part < operands; ++part) {
      int64_t run = sizes[part] * inner;
      out = std::copy_n(xs[part].data() + i * run, run, out);
    }
  return absl::OkStatus();
}

template <typename Real> absl::Status zeros(absl::Span<Real> y) {
  std::fill(y.begin(), y.end(), Real(0));
  return absl::OkStatus();
}

#define QWEN35_INSTANTIATE(Real)                                               \
  template absl::Status swiglu<Real>(                                          \
      absl::Span<const Real>, absl::Span<const Real>, absl::Span<Real>);       \
  template absl::Status swigluBwd<Real>(                                       \
      absl::Span<const Real>, absl::Span<const Real>, absl::Span<const Real>,  \
      absl::Span<Real>, absl::Span<Real>);                                     \
  template absl::Status add<Real>(absl::Span<const Real>,                      \
                                  absl::Span<const Real>, absl::Span<Real>);   \
  template absl::Status scale<Real>(absl::Span<const Real>, double,            \
                                    absl::Span<Real>);                         \
  template absl::Status mulScalar<Real>(                                       \
      absl::Span<const Real>, absl::Span<const Real>, absl::Span<Real>);       \
  template absl::Status slice<Real>(absl::Span<const Real>,                    \
                                    absl::Span<const int64_t>, int64_t,        \
                                    int64_t, int64_t, absl::Span<Real>);       \
  template absl::Status concat<Real>(                                          \
      absl::Span<const absl::Span<const Real>>, absl::Span<const int64_t>,     \
      absl::Span<const int64_t>, int64_t, absl::Span<Real>);                   \
  template absl::Status zeros<Real>(absl::Span<Real>);
QWEN35_INSTANTIATE(float)
QWEN35_INSTANTIATE(double)
#undef QWEN35_INSTANTIATE

} // namespace qwen35::reference
