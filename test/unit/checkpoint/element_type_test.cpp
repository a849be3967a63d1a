#include "runtime/checkpoint/element_type.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include <gtest/gtest.h>

namespace qwen35 {
namespace {

float roundTrip(ElementType type, float value) {
  char bytes[8];
  fromFloat(type, &value, 1, bytes);
  float back;
  toFloat(type, bytes, 1, &back);
  return back;
}

/// Every 16-bit pattern, NaN payloads included, survives float32.
void expectEveryPatternReturns(ElementType type) {
  for (uint32_t i = 0; i < 65536; ++i) {
    uint16_t bits = static_cast<uint16_t>(i), back;
    float value;
    toFloat(type, reinterpret_cast<const char *>(&bits), 1, &value);
    fromFloat(type, &value, 1, reinterpret_cast<char *>(&back));
    ASSERT_EQ(bits, back) << nameOf(type);
  }
}

TEST(ElementTypeTest, EveryBf16PatternReturns) {
  expectEveryPatternReturns(ElementType::BF16);
}

TEST(ElementTypeTest, EveryF16PatternReturns) {
  expectEveryPatternReturns(ElementType::F16);
}

TEST(ElementTypeTest, RoundsToNearestEven) {
  // 1 + 2^-8 is halfway between two bf16 values; the even one is 1.
  EXPECT_EQ(roundTrip(ElementType::BF16, 1.0f + 0x1p-8f), 1.0f);
  EXPECT_EQ(roundTrip(ElementType::BF16, 1.0f + 0x1.8p-7f), 1.0f + 0x1p-6f);
  EXPECT_EQ(roundTrip(ElementType::BF16, 1.0f + 0x1.01p-8f),
            1.0f + 0x1p-7f);
  EXPECT_EQ(roundTrip(ElementType::F16, 1.0f + 0x1p-11f), 1.0f);
  EXPECT_EQ(roundTrip(ElementType::F16, 1.0f + 0x1.8p-10f), 1.0f + 0x1p-9f);
  EXPECT_EQ(roundTrip(ElementType::F16, 0x1.8p-24f), 0x1p-23f); // subnormal
  EXPECT_EQ(roundTrip(ElementType::F16, 0x1p-25f), 0.0f);
}

TEST(ElementTypeTest, OverflowsToInfinityAndKeepsNaN) {
  float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(roundTrip(ElementType::F16, 65519.0f), 65504.0f);
  EXPECT_EQ(roundTrip(ElementType::F16, 65520.0f), inf);
  EXPECT_EQ(roundTrip(ElementType::F16, -1e6f), -inf);
  EXPECT_EQ(roundTrip(ElementType::BF16, 3.4e38f), inf);
  // A payload that bf16 cannot keep must not turn into infinity.
  float nan = std::bit_cast<float>(0x7f800001u);
  EXPECT_TRUE(std::isnan(roundTrip(ElementType::BF16, nan)));
  EXPECT_TRUE(std::isnan(roundTrip(ElementType::F16, nan)));
}

TEST(ElementTypeTest, UnknownNamesListTheKnown) {
  EXPECT_TRUE(parseElementType("BF16").ok());
  auto unknown = parseElementType("F8_E4M3");
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.status().message(),
            "dtype F8_E4M3 is not one of F64 F32 F16 BF16 I64 I32 U8 BOOL");
}

} // namespace
} // namespace qwen35
