#include "runtime/init/init.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/checkpoint/element_type.h"
#include "runtime/init/counter_random.h"

namespace qwen35 {
namespace {

std::vector<float> fill(uint64_t seed, const std::string &name,
                        const std::string &init, int64_t count,
                        int threads = 1) {
  std::vector<float> values(count, -7);
  EXPECT_TRUE(
      initParam(seed, name, init, absl::MakeSpan(values), threads).ok());
  return values;
}

// Known answers of Random123 1.09, kat_vectors, philox 4x32 10.
TEST(CounterRandomTest, PhiloxMatchesItsKnownAnswers) {
  using Counter = std::array<uint32_t, 4>;
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (Counter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
                       {0xffffffff, 0xffffffff}),
            (Counter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                       {0xa4093822, 0x299f31d0}),
            (Counter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(CounterRandomTest, InverseNormalInvertsTheDistribution) {
  EXPECT_EQ(inverseNormal(0.5), 0.0);
  for (double x = -8; x <= 8; x += 0.0625) {
    double p = 0.5 * std::erfc(-x / std::sqrt(2.0));
    // In the upper tail p itself loses the digits, so compare the lower one.
    if (x > 0)
      p = 0.5 * std::erfc(x / std::sqrt(2.0));
    EXPECT_NEAR(inverseNormal(p), -std::fabs(x), 1e-12) << x;
  }
  EXPECT_NEAR(inverseNormal(0.975), 1.959963984540054, 1e-14);
}

TEST(CounterRandomTest, UniformNumbersAreNeverZeroOrOne) {
  CounterRandom random(1, "a");
  double least = 1, most = 0, sum = 0;
  for (uint64_t i = 0; i < 100000; ++i)
    for (double u : random.uniformPair(i)) {
      least = std::min(least, u);
      most = std::max(most, u);
      sum += u;
    }
  EXPECT_GT(least, 0);
  EXPECT_LT(most, 1);
  EXPECT_NEAR(sum / 200000, 0.5, 0.002);
}

TEST(InitTest, ElementsDoNotDependOnSlicesOrThreads) {
  constexpr int64_t kCount = 300001;
  const std::string name = "model.layers.3.mlp.up_proj.weight";
  std::vector<float> whole = fill(7, name, "normal(0.02)", kCount);
  EXPECT_EQ(fill(7, name, "normal(0.02)", kCount, 4), whole);
  ParamInit init = *parseParamInit("normal(0.02)");
  std::vector<float> sliced(kCount);
  for (int64_t first = 0, size = 1; first < kCount; first += size, size += 13) {
    size = std::min(size, kCount - first);
    initSlice(7, name, init, first,
              absl::MakeSpan(sliced).subspan(first, size));
  }
  EXPECT_EQ(sliced, whole);
}

TEST(InitTest, NormalHasItsMoments) {
  std::vector<float> values = fill(1, "w", "normal(0.02)", 400000);
  double mean = 0, square = 0, fourth = 0;
  for (double v : values) {
    mean += v;
    square += v * v;
    fourth += v * v * v * v;
  }
  mean /= values.size();
  square /= values.size();
  fourth /= values.size();
  EXPECT_NEAR(mean, 0, 2e-4);
  EXPECT_NEAR(std::sqrt(square), 0.02, 1e-4);
  EXPECT_NEAR(fourth / (square * square), 3, 0.05);
}

TEST(InitTest, NamesAndSeedsGiveOtherNumbers) {
  auto a = fill(1, "model.layers.0.linear_attn.A_log", "normal(1)", 64);
  EXPECT_NE(fill(2, "model.layers.0.linear_attn.A_log", "normal(1)", 64), a);
  EXPECT_NE(fill(1, "model.layers.1.linear_attn.A_log", "normal(1)", 64), a);
  EXPECT_EQ(fill(1, "model.layers.0.linear_attn.A_log", "normal(1)", 64), a);
}

// HF 47831: the log of U(0, 16) can be -inf; ours is bounded and finite, also
// when a file stores it as bf16.
TEST(InitTest, DecayIsLogUniformAndFinite) {
  std::vector<float> values =
      fill(3, "model.layers.0.linear_attn.A_log", "log_uniform(0.01,16)",
           200000);
  double sum = 0;
  for (float value : values) {
    ASSERT_TRUE(std::isfinite(value));
    EXPECT_GE(value, std::log(0.01f) - 1e-6f);
    EXPECT_LE(value, std::log(16.0f) + 1e-6f);
    char bytes[2];
    float rounded;
    fromFloat(ElementType::BF16, &value, 1, bytes);
    toFloat(ElementType::BF16, bytes, 1, &rounded);
    ASSERT_TRUE(std::isfinite(rounded));
    sum += std::exp(value);
  }
  EXPECT_NEAR(sum / values.size(), 8.005, 0.05); // uniform before the log
}

TEST(InitTest, ConstantsAndBadForms) {
  EXPECT_EQ(fill(1, "a", "zeros", 3), (std::vector<float>{0, 0, 0}));
  EXPECT_EQ(fill(1, "a", "ones", 3), (std::vector<float>{1, 1, 1}));
  std::vector<float> out(1);
  absl::Status status =
      initParam(1, "model.norm.weight", "uniform", absl::MakeSpan(out));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()).find("parameter model.norm.weight"),
            0u);
}

} // namespace
} // namespace qwen35
