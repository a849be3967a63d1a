#include "dialect/Qwen35/Reference/Norm.h"

#include "dialect/Qwen35/Reference/Checks.h"
#include "dialect/Qwen35/Reference/Scalar.h"

#include <algorithm>
#include <cmath>

namespace qwen35::reference {

/// 1 / sqrt(mean of squares + eps).
template <typename Real>
static Real reciprocalRms(const Real *row, int64_t columns, double eps) {
  return 1 / std::sqrt(dot(row, row, columns) / columns + Real(eps));
}

template <typename Real>
absl::Status rmsNorm(absl::Span<const Real> x, absl::Span<const Real> weight,
                     int64_t rows, int64_t columns, double eps, double offset,
                     absl::Span<Real> y, absl::Span<Real> rstd) {
  Checks checks("rms_norm");
  checks.positive("columns", columns)
      .positive("eps", eps)
      .shape("x", x.size(), {rows, columns})
      .shape("weight", weight.size(), {columns})
      .shape("y", y.size(), {rows, columns})
      .shape("rstd", rstd.size(), {rows});
  if (!checks.ok())
    return checks.status();
  for (int64_t t = 0; t < rows; ++t) {
    const Real *in = x.data() + t * columns;
    Real *out = y.data() + t * columns;
    Real r = rstd[t] = reciprocalRms(in, columns, eps);
    for (int64_t d = 0; d < columns; ++d)
      out[d] = in[d] * r * (Real(offset) + weight[d]);
  }
  return absl::OkStatus();
}

template <typename Real>
absl::Status rmsNormBwd(absl::Span<const Real> dy, absl::Span<const Real> x,
                        absl::Span<const Real> weight,
                        absl::Span<const Real> rstd, int64_t rows,
                        int64_t columns, double offset, absl::Span<Real> dx,
                        absl::Span<Real> dweight) {
  Checks checks("rms_norm_bwd");
  checks.positive("columns", columns)
      .shape("dy", dy.size(), {rows, columns})
      .shape("x", x.size(), {rows, columns})
      .shape("weight", weight.size(), {columns})
      .shape("rstd", rstd.size(), {rows})
      .shape("dx", dx.size(), {rows, columns})
      .shape("dweight", dweight.size(), {columns});
  if (!checks.ok())
    return checks.status();
  std::fill(dweight.begin(), dweight.end(), Real(0));
  for (int64_t t = 0; t < rows; ++t) {
    const Real *g = dy.data() + t * columns, *in = x.data() + t * columns;
    Real *out = dx.data() + t * columns;
    Real r = rstd[t], mean = 0;
    for (int64_t d = 0; d < columns; ++d) {
      mean += g[d] * (Real(offset) + weight[d]) * in[d] * r;
      dweight[d] += g[d] * in[d] * r;
    }
    mean /= columns;
    for (int64_t d = 0; d < columns; ++d)
      out[d] = r * (g[d] * (Real(offset) + weight[d]) - in[d] * r * mean);
  }
  return absl::OkStatus();
}

template <typename Real>
absl::Status gatedRmsNorm(absl::Span<const Real> o, absl::Span<const Real> z,
                          absl::Span<const Real> weight, int64_t rows,
                          int64_t columns, double eps, absl::Span<Real> y,
                          absl::Span<Real> rstd) {
  Checks checks("gated_rms_norm");
  checks.positive("columns", columns)
      .positive("eps", eps)
      .shape("o", o.size(), {rows, columns})
      .shape("z", z.size(), {rows, columns})
      .shape("weight", weight.size(), {columns})
      .shape("y", y.size(), {rows, columns})
      .shape("rstd", rstd.size(), {rows});
  if (!checks.ok())
    return checks.status();
  for (int64_t t = 0; t < rows; ++t) {
    const Real *in = o.data() + t * columns, *gate = z.data() + t * columns;
    Real *out = y.data() + t * columns;
    Real r = rstd[t] = reciprocalRms(in, columns, eps);
    for (int64_t d = 0; d < columns; ++d)
      out[d] = weight[d] * in[d] * r * silu(gate[d]);
  }
  return absl::OkStatus();
}

template <typename Real>
absl::Status gatedRmsNormBwd(absl::Span<const Real> dy,
                             absl::Span<const Real> o, absl::Span<const Real> z,
                             absl::Span<const Real> weight,
                             absl::Span<const Real> rstd, int64_t rows,
                             int64_t columns, absl::Span<Real> dO,
                             absl::Span<Real> dz, absl::Span<Real> dweight) {
  Checks checks("gated_rms_norm_bwd");
  checks.positive("columns", columns)
      .shape("dy", dy.size(), {rows, columns})
      .shape("o", o.size(), {rows, columns})
      .shape("z", z.size(), {rows, columns})
      .shape("weight", weight.size(), {columns})
      .shape("rstd", rstd.size(), {rows})
      .shape("do", dO.size(), {rows, columns})
      .shape("dz", dz.size(), {rows, columns})
      .shape("dweight", dweight.size(), {columns});
  if (!checks.ok())
    return checks.status();
  std::fill(dweight.begin(), dweight.end(), Real(0));
  for (int64_t t = 0; t < rows; ++t) {
    const Real *g = dy.data() + t * columns, *in = o.data() + t * columns;
    const Real *gate = z.data() + t * columns;
    Real *out = dO.data() + t * columns, *outGate = dz.data() + t * columns;
    Real r = rstd[t], mean = 0;
    for (int64_t d = 0; d < columns; ++d) {
      Real n = in[d] * r, s = silu(gate[d]);
      mean += g[d] * weight[d] * s * n;
      dweight[d] += g[d] * n * s;
      outGate[d] = g[d] * n * weight[d] * siluDerivative(gate[d]);
    }
    mean /= columns;
    for (int64_t d = 0; d < columns; ++d)
      out[d] = r * (g[d] * weight[d] * silu(gate[d]) - in[d] * r * mean);
  }
  return absl::OkStatus();
}

#define QWEN35_INSTANTIATE(Real)                                               \
  template absl::Status rmsNorm<Real>(                                         \
      absl::Span<const Real>, absl::Span<const Real>, int64_t, int64_t,        \
      double, double, absl::Span<Real>, absl::Span<Real>);                     \
  template absl::Status rmsNormBwd<Real>(                                      \
      absl::Span<const Real>, absl::Span<const Real>, absl::Span<const Real>,  \
      absl::Span<const Real>, int64_t, int64_t, double, absl::Span<Real>,      \
      absl::Span<Real>);                                                       \
  template absl::Status gatedRmsNorm<Real>(                                    \
      absl::Span<const Real>, absl::Span<const Real>, absl::Span<const Real>,  \
      int64_t, int64_t, double, absl::Span<Real>, absl::Span<Real>);           \
  template absl::Status gatedRmsNormBwd<Real>(                                 \
      absl::Span<const Real>, absl::Span<const Real>, absl::Span<const Real>,  \
      absl::Span<const Real>, absl::Span<const Real>, int64_t, int64_t,        \
      absl::Span<Real>, absl::Span<Real>, absl::Span<Real>);
QWEN35_INSTANTIATE(float)
QWEN35_INSTANTIATE(double)
#undef QWEN35_INSTANTIATE

} // namespace qwen35::reference
