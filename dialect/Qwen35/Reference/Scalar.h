#ifndef QWEN35_DIALECT_QWEN35_REFERENCE_SCALAR_H
#define QWEN35_DIALECT_QWEN35_REFERENCE_SCALAR_H

#include <cmath>
#include <cstdint>

namespace qwen35::reference {

/// 1 / (1 + e^-x), from the exponential of a number that is not positive: no
/// overflow, and full relative precision where the result is tiny.
template <typename Real> Real sigmoid(Real x) {
  Real e = std::exp(-std::abs(x));
  return x >= 0 ? 1 / (1 + e) : e / (1 + e);
}

template <typename Real> Real silu(Real x) { return x * sigmoid(x); }

/// d silu(x) / dx.
template <typename Real> Real siluDerivative(Real x) {
  Real s = sigmoid(x);
  return s * (1 + x * (1 - s));
}

/// log(1 + e^x), the identity above 20 as in torch.
template <typename Real> Real softplus(Real x) {
  if (x > 20)
    return x;
  Real positive = x > 0 ? x : Real(0);
  return positive + std::log1p(std::exp(-std::abs(x)));
}

/// Inner product in eight partial sums, added in order: the compiler can
/// vectorise it and the order of additions is still fixed.
template <typename Real>
Real dot(const Real *a, const Real *b, int64_t elements) {
  constexpr int64_t kLanes = 8;
  Real lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= elements; i += kLanes)
    for (int64_t lane = 0; lane < kLanes; ++lane)
      lanes[lane] += a[i + lane] * b[i + lane];
  Real sum = 0;
  for (Real lane : lanes)
    sum += lane;
  for (; i < elements; ++i)
    sum += a[i] * b[i];
  return sum;
}

/// y = x * r with r = 1 / sqrt(sum of x^2 + eps); returns r.
template <typename Real>
Real l2Normalize(const Real *x, int64_t elements, double eps, Real *y) {
  Real r = 1 / std::sqrt(dot(x, x, elements) + Real(eps));
  for (int64_t i = 0; i < elements; ++i)
    y[i] = x[i] * r;
  return r;
}

/// dx = r * (dy - y * <dy, y>): the gradient through l2Normalize.
template <typename Real>
void l2NormalizeBwd(const Real *dy, const Real *y, Real r, int64_t elements,
                    Real *dx) {
  Real along = dot(dy, y, elements);
  for (int64_t i = 0; i < elements; ++i)
    dx[i] = r * (dy[i] - y[i] * along);
}

} // namespace qwen35::reference

#endif // QWEN35_DIALECT_QWEN35_REFERENCE_SCALAR_H
