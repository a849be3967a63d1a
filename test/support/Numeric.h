#ifndef QWEN35_TEST_SUPPORT_NUMERIC_H
#define QWEN35_TEST_SUPPORT_NUMERIC_H

#include "runtime/schema/seq_table.h"

#include "gtest/gtest.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

namespace qwen35::test {

/// Reproducible numbers: the same on every machine and library.
class Random {
public:
  explicit Random(uint64_t seed) : state(seed) {}

  /// In [0, 1).
  double uniform() { return (next() >> 11) * 0x1p-53; }

  /// Mean 0, deviation 1.
  double normal() {
    double radius = std::sqrt(-2 * std::log(1 - uniform()));
    return radius * std::cos(6.283185307179586 * uniform());
  }

  int64_t below(int64_t limit) {
    return static_cast<int64_t>(uniform() * limit);
  }

  template <typename Real = double>
  std::vector<Real> normals(int64_t elements, double deviation = 1) {
    std::vector<Real> result(elements);
    for (Real &x : result)
      x = static_cast<Real>(deviation * normal());
    return result;
  }

private:
  uint64_t next() { // splitmix64
    uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  uint64_t state;
};

template <typename Real> Real quietNan() {
  return std::numeric_limits<Real>::quiet_NaN();
}

/// Memory that nobody has written yet: reading it poisons a result.
template <typename Real> std::vector<Real> poison(int64_t elements) {
  return std::vector<Real>(elements, quietNan<Real>());
}

template <typename Real> double norm(const std::vector<Real> &x) {
  double sum = 0;
  for (Real value : x)
    sum += static_cast<double>(value) * value;
  return std::sqrt(sum);
}

/// |actual - expected| / |expected|, Euclidean; NaN if an element is one.
/// `floor` stands in for a smaller |expected|, where the truth is about zero.
template <typename A, typename B>
double relativeError(const std::vector<A> &actual,
                     const std::vector<B> &expected, double floor = 0) {
  EXPECT_EQ(actual.size(), expected.size());
  double sum = 0;
  for (size_t i = 0; i < actual.size() && i < expected.size(); ++i) {
    double difference =
        static_cast<double>(actual[i]) - static_cast<double>(expected[i]);
    sum += difference * difference;
  }
  return std::sqrt(sum) / std::max({norm(expected), floor, 1e-300});
}

template <typename Real> bool allFinite(const std::vector<Real> &x) {
  return std::all_of(x.begin(), x.end(),
                     [](Real value) { return std::isfinite(value); });
}

/// sum of x * y.
template <typename Real>
double inner(const std::vector<Real> &x, const std::vector<Real> &y) {
  EXPECT_EQ(x.size(), y.size());
  return std::inner_product(x.begin(), x.end(), y.begin(), 0.0);
}

/// d loss() / d x by central differences: loss() reads x, which is restored.
template <typename Loss>
std::vector<double> centralDifferences(std::vector<double> &x, Loss loss,
                                       double step = 1e-5) {
  std::vector<double> gradient(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    double kept = x[i];
    x[i] = kept + step;
    double above = loss();
    x[i] = kept - step;
    double below = loss();
    x[i] = kept;
    gradient[i] = (above - below) / (2 * step);
  }
  return gradient;
}

/// A document table with its shape.
struct DocumentTable {
  SeqTable shape;
  std::vector<int32_t> words;

  /// Documents of these lengths in a row of `tokens` (by default no more than
  /// they need) with room for `maxDocs` (by default what they need).
  explicit DocumentTable(const std::vector<int64_t> &lengths,
                         int64_t tokens = 0, int64_t maxDocs = 0) {
    int64_t total = std::accumulate(lengths.begin(), lengths.end(), int64_t(0));
    shape.tokens = std::max(tokens, total);
    int64_t padding = shape.tokens > total ? 1 : 0;
    shape.maxDocs = std::max<int64_t>(maxDocs, lengths.size() + padding);
    words.resize(shape.words());
    EXPECT_TRUE(
        fillSeqTable(shape, lengths.data(), lengths.size(), words.data()));
  }
};

} // namespace qwen35::test

#endif // QWEN35_TEST_SUPPORT_NUMERIC_H
