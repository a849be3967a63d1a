#include "dialect/Qwen35/Reference/Optimizer.h"

#include "dialect/Qwen35/Reference/Checks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace qwen35::reference {

template <typename Real>
absl::Status normSq(absl::Span<const Real> x, absl::Span<const double> acc,
                    absl::Span<double> sum) {
  Checks checks("norm_sq");
  checks.shape("acc", acc.size(), {1}).shape("sum", sum.size(), {1});
  if (!checks.ok())
    return checks.status();
  double squares = 0;
  for (Real value : x)
    squares += static_cast<double>(value) * value;
  sum[0] = acc[0] + squares;
  return absl::OkStatus();
}

template <typename Real>
absl::Status clipFactor(absl::Span<const double> normSq, double maxNorm,
                        absl::Span<Real> norm, absl::Span<Real> factor,
                        absl::Span<Real> commit) {
  Checks checks("clip_factor");
  checks.notNegative("max_norm", maxNorm)
      .shape("norm_sq", normSq.size(), {1})
      .shape("norm", norm.size(), {1})
      .shape("factor", factor.size(), {1})
      .shape("commit", commit.size(), {1});
  if (!checks.ok())
    return checks.status();
  double exact = std::sqrt(normSq[0]);
  norm[0] = static_cast<Real>(exact);
  bool finite = std::isfinite(norm[0]);
  commit[0] = finite ? 1 : 0;
  double clip = maxNorm > 0 ? maxNorm / (exact + 1e-6) : 1;
  factor[0] = finite ? static_cast<Real>(std::min(1.0, clip)) : Real(0);
  return absl::OkStatus();
}

template <typename Real>
absl::Status adamw(absl::Span<const Real> p, absl::Span<const Real> m,
                   absl::Span<const Real> v, absl::Span<const Real> g,
                   absl::Span<const Real> lr, absl::Span<const Real> factor,
                   absl::Span<const Real> bc1, absl::Span<const Real> bc2,
                   absl::Span<const Real> commit, const AdamwOptions &options,
                   absl::Span<Real> newP, absl::Span<Real> newM,
                   absl::Span<Real> newV) {
  int64_t elements = p.size();
  Checks checks("adamw");
  checks.shape("m", m.size(), {elements})
      .shape("v", v.size(), {elements})
      .shape("g", g.size(), {elements})
      .shape("lr", lr.size(), {1})
      .shape("factor", factor.size(), {1})
      .shape("bc1", bc1.size(), {1})
      .shape("bc2", bc2.size(), {1})
      .shape("commit", commit.size(), {1})
      .positive("eps", options.eps)
      .fraction("beta1", options.beta1)
      .fraction("beta2", options.beta2)
      .notNegative("weight_decay", options.weightDecay)
      .shape("new p", newP.size(), {elements})
      .shape("new m", newM.size(), {elements})
      .shape("new v", newV.size(), {elements});
  if (!checks.ok())
    return checks.status();
  if (commit[0] == 0) { // memmove: the operand may be the result.
    std::memmove(newP.data(), p.data(), elements * sizeof(Real));
    std::memmove(newM.data(), m.data(), elements * sizeof(Real));
    std::memmove(newV.data(), v.data(), elements * sizeof(Real));
    return absl::OkStatus();
  }
  Real beta1 = options.beta1, beta2 = options.beta2, eps = options.eps;
  Real keep = 1 - lr[0] * Real(options.weightDecay);
  for (int64_t i = 0; i < elements; ++i) {
    Real clipped = g[i] * factor[0];
    Real first = beta1 * m[i] + (1 - beta1) * clipped;
    Real second = beta2 * v[i] + (1 - beta2) * clipped * clipped;
    newP[i] = p[i] * keep -
              lr[0] * (first / bc1[0]) / (std::sqrt(second / bc2[0]) + eps);
    newM[i] = first;
    newV[i] = second;
  }
  return absl::OkStatus();
}

#define QWEN35_INSTANTIATE(Real)                                               \
  template absl::Status normSq<Real>(                                          \
      absl::Span<const Real>, absl::Span<const double>, absl::Span<double>);   \
  template absl::Status clipFactor<Real>(absl::Span<const double>, double,     \
                                         absl::Span<Real>, absl::Span<Real>,   \
                                         absl::Span<Real>);                    \
  template absl::Status adamw<Real>(                                           \
      absl::Span<const Real>, absl::Span<const Real>, absl::Span<const Real>,  \
      absl::Span<const Real>, absl::Span<const Real>, absl::Span<const Real>,  \
      absl::Span<const Real>, absl::Span<const Real>, absl::Span<const Real>,  \
      const AdamwOptions &, absl::Span<Real>, absl::Span<Real>,                \
      absl::Span<Real>);
QWEN35_INSTANTIATE(float)
QWEN35_INSTANTIATE(double)
#undef QWEN35_INSTANTIATE

} // namespace qwen35::reference
