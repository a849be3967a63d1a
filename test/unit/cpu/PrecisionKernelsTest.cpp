// A15: the decay compounds over thousands of tokens, so its parameters must not
// pass through bf16 on the way.

#include "test/unit/cpu/KernelTest.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>

namespace qwen35::codegen::cpu {
namespace {

double roundedToBf16(double value) {
  float f = static_cast<float>(value);
  uint32_t bits;
  std::memcpy(&bits, &f, 4);
  bits = (bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000;
  std::memcpy(&f, &bits, 4);
  return f;
}

TEST_F(KernelTest, A15DecayOverThousandsOfTokensIsThatOfFp32Parameters) {
  int64_t tokens = 4096, heads = 16;
  Array a = random({tokens, heads}, 1), b = random({tokens, heads}, 2);
  Array aLog = f32({heads}), bias = random({heads}, 3);
  for (int64_t h = 0; h < heads; ++h)
    aLog.set(h, std::log(0.03 + h * 1e-4));
  auto decay = [&](int64_t h, double aLog) {
    double sum = 0;
    for (int64_t t = 0; t < tokens; ++t)
      sum -= std::exp(aLog) * std::log1p(std::exp(a[t * heads + h] + bias[h]));
    return sum;
  };
  run("gdn_gates", "{}", {a, b, aLog, bias},
      {f32({tokens, heads}), f32({tokens, heads})},
      [&](const Arrays &, const Arrays &out) {
        double furthest = 0;
        for (int64_t h = 0; h < heads; ++h) {
          double sum = 0;
          for (int64_t t = 0; t < tokens; ++t)
            sum += out[0][t * heads + h];
          double exact = decay(h, aLog[h]);
          EXPECT_NEAR(sum, exact, 1e-5 * std::fabs(exact)) << h;
          furthest = std::max(
              furthest, std::fabs(decay(h, roundedToBf16(aLog[h])) / exact - 1));
        }
        // The case would notice: bf16 parameters are this far off.
        EXPECT_GT(furthest, 1e-3);
      });
}

} // namespace
} // namespace qwen35::codegen::cpu
