#include "test/unit/cpu/KernelTest.h"

#include "codegen/cpu/KernelBuilder.h"

#include <cmath>
#include <limits>
#include <mutex>

using namespace mlir;

namespace qwen35::codegen::cpu {
namespace {

/// y[i] = f(x[i]) for the function named by the attribute; f32 vectors.
class MathFamily : public KernelFamily {
public:
  StringRef op() const override { return "test_math"; }
  FailureOr<KernelPlan> plan(const KernelSpec &, EmitError) const override {
    KernelPlan plan;
    plan.grids = {1};
    return plan;
  }
  void emit(const KernelSpec &spec, unsigned, KernelBuilder &k) const override {
    StringRef name = spec.text("function");
    View x = k.input(0), y = k.output(0);
    k.forLanes(x.size(0), [&](Lanes l) {
      Val v = x.load({l.i}, l), result;
      if (name == "exp")
        result = exp(v);
      else if (name == "exp64")
        result = cast(exp(cast(v, k.f64())), k.f32());
      else if (name == "log")
        result = log(v);
      else if (name == "log1p")
        result = log1p(v);
      else if (name == "softplus")
        result = softplus(v);
      else if (name == "sigmoid")
        result = sigmoid(v);
      else if (name == "silu")
        result = silu(v);
      else if (name == "rsqrt")
        result = rsqrt(v);
      else {
        Val sine, cosine;
        sinCos(cast(v, k.f64()), sine, cosine);
        result = cast(name == "sin" ? sine : cosine, k.f32());
      }
      y.store(result, {l.i}, l);
    });
  }
};

class MathTest : public KernelTest {
protected:
  MathTest() {
    static std::once_flag once;
    std::call_once(once,
                   [] { registerKernel(std::make_unique<MathFamily>()); });
  }

  /// Largest error relative to max(|want|, floor) over the points.
  void expectClose(const std::string &name, const std::vector<double> &points,
                   double (*want)(double), double tolerance, double floor) {
    Array x = f32({static_cast<int64_t>(points.size())});
    for (size_t i = 0; i < points.size(); ++i)
      x.set(static_cast<int64_t>(i), points[i]);
    run("test_math", "{function = \"" + name + "\"}", {x}, {f32(x.shape())},
        [&](const Arrays &in, const Arrays &out) {
          double worst = 0, at = 0;
          for (int64_t i = 0; i < in[0].size(); ++i) {
            double expected = want(in[0][i]);
            double error = std::fabs(out[0][i] - expected) /
                           std::max(std::fabs(expected), floor);
            if (std::isnan(error) || error > worst)
              worst = error, at = in[0][i];
            if (std::isnan(error))
              break;
          }
          EXPECT_LE(worst, tolerance) << name << " at " << at;
        });
  }

  /// `name` of `x`, alone.
  void expectValue(const std::string &name, double x, double want) {
    Array one = f32({1});
    one.set(0, x);
    run("test_math", "{function = \"" + name + "\"}", {one}, {f32({1})},
        [&](const Arrays &, const Arrays &out) {
          if (std::isnan(want))
            EXPECT_TRUE(std::isnan(out[0][0])) << name << " of " << x;
          else
            EXPECT_EQ(out[0][0], want) << name << " of " << x;
        });
  }
};

std::vector<double> between(double lo, double hi, int count = 200003) {
  std::vector<double> points;
  for (int i = 0; i < count; ++i)
    points.push_back(lo + (hi - lo) * i / (count - 1));
  return points;
}

/// Over many magnitudes, both signs on request.
std::vector<double> logarithmic(double lo, double hi, bool negative) {
  std::vector<double> points;
  for (double x = lo; x < hi; x *= 1.00037) {
    points.push_back(x);
    if (negative)
      points.push_back(-x);
  }
  return points;
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kSmallest = 0x1p-126; // normal f32

TEST_F(MathTest, ExpIsAccurateOverItsRange) {
  auto exact = [](double x) { return std::exp(x); };
  expectClose("exp", between(-87.3, 88.7), exact, 2e-7, kSmallest);
  expectClose("exp", between(-1, 1), exact, 2e-7, kSmallest);
  expectClose("exp", logarithmic(1e-30, 1, true), exact, 2e-7, kSmallest);
  // Denormal results: within one unit of the last place there.
  expectClose("exp", between(-103, -87.3), exact, 2e-7, kSmallest);
  expectClose("exp64", between(-87, 88.7), exact, 6.1e-8, kSmallest);
  for (const char *name : {"exp", "exp64"}) {
    expectValue(name, 0, 1);
    expectValue(name, -200, 0);
    expectValue(name, -kInfinity, 0);
    expectValue(name, 100, kInfinity);
    expectValue(name, kInfinity, kInfinity);
    expectValue(name, kNaN, kNaN);
  }
}

TEST_F(MathTest, LogarithmsAreAccurate) {
  auto logarithm = [](double x) { return std::log(x); };
  expectClose("log", logarithmic(1e-44, 3e38, false), logarithm, 2e-7, 1e-6);
  expectClose("log", between(0.5, 2), logarithm, 2e-7, 1e-30);
  expectValue("log", 1, 0);
  expectValue("log", 0, -kInfinity);
  expectValue("log", kInfinity, kInfinity);
  expectValue("log", -1, kNaN);
  expectValue("log", kNaN, kNaN);
  auto plusOne = [](double x) { return std::log1p(x); };
  expectClose("log1p", logarithmic(1e-30, 1e30, false), plusOne, 3e-7, 1e-35);
  expectClose("log1p", between(-0.99, 2), plusOne, 4e-7, 1e-30);
  expectValue("log1p", 0, 0);
}

TEST_F(MathTest, GatesAreAccurate) {
  expectClose(
      "softplus", between(-80, 80),
      [](double x) {
        return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
      },
      4e-7, kSmallest);
  expectValue("softplus", kNaN, kNaN);
  expectValue("softplus", kInfinity, kInfinity);
  expectClose(
      "sigmoid", between(-87, 87),
      [](double x) { return 1 / (1 + std::exp(-x)); }, 3e-7, kSmallest);
  expectValue("sigmoid", -200, 0);
  expectValue("sigmoid", 200, 1);
  expectClose(
      "silu", between(-80, 80), [](double x) { return x / (1 + std::exp(-x)); },
      3e-7, kSmallest);
  expectClose(
      "rsqrt", logarithmic(1e-30, 1e30, false),
      [](double x) { return 1 / std::sqrt(x); }, 2e-7, 0);
}

TEST_F(MathTest, SineAndCosineAreRoundedFromDouble) {
  auto sine = [](double x) { return std::sin(x); };
  auto cosine = [](double x) { return std::cos(x); };
  for (double reach : {4.0, 1000.0, 300000.0, 1e9}) {
    expectClose("sin", between(-reach, reach), sine, 6.1e-8, 1e-6);
    expectClose("cos", between(-reach, reach), cosine, 6.1e-8, 1e-6);
  }
}

} // namespace
} // namespace qwen35::codegen::cpu
