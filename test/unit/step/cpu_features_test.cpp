#include "runtime/step/cpu_features.h"

#include <gtest/gtest.h>

namespace qwen35 {
namespace {

CpuidWords everything() {
  return {0xffffffff, 0xffffffff, 0xffffffff, ~uint64_t(0)};
}

TEST(CpuFeaturesTest, NamesWhatIsMissing) {
  CpuidWords cpu = everything();
  EXPECT_TRUE(missingFeatures("x86-64-v4", cpu).empty());
  cpu.leaf7Ebx &= ~(uint32_t(1) << 16 | uint32_t(1) << 31);
  EXPECT_EQ(missingFeatures("x86-64-v4", cpu),
            (std::vector<std::string>{"avx512f", "avx512vl"}));
  EXPECT_TRUE(missingFeatures("x86-64-v3", cpu).empty());
  cpu.leaf1Ecx &= ~(uint32_t(1) << 12);
  EXPECT_EQ(missingFeatures("x86-64-v3", cpu), std::vector<std::string>{"fma"});
  EXPECT_TRUE(missingFeatures("x86-64-v2", cpu).empty());
}

// A system may not save the wide registers although the CPU has them.
TEST(CpuFeaturesTest, AsksTheSystemToo) {
  CpuidWords cpu = everything();
  cpu.xcr0 = 6;
  EXPECT_TRUE(missingFeatures("x86-64-v3", cpu).empty());
  EXPECT_EQ(missingFeatures("x86-64-v4", cpu),
            std::vector<std::string>{"saved zmm registers"});
  cpu.xcr0 = 2;
  EXPECT_EQ(missingFeatures("x86-64-v3", cpu),
            std::vector<std::string>{"saved ymm registers"});
}

TEST(CpuFeaturesTest, AgreesWithTheCompilersRuntime) {
  CpuidWords cpu = readCpuid();
  EXPECT_TRUE(missingFeatures("x86-64", cpu).empty());
  EXPECT_EQ(missingFeatures("x86-64-v3", cpu).empty(),
            __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2") &&
                __builtin_cpu_supports("fma"));
  EXPECT_EQ(missingFeatures("x86-64-v4", cpu).empty(),
            __builtin_cpu_supports("avx512bw") &&
                __builtin_cpu_supports("avx512vl") &&
                __builtin_cpu_supports("avx512cd"));
}

TEST(CpuFeaturesTest, KnowsNoOtherLevels) {
  absl::Status status = checkCpu("x86-64-v5");
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(std::string(status.message()),
            "the bundle's kernels need a CPU of level x86-64-v5, but this one "
            "lacks x86-64-v5");
}

} // namespace
} // namespace qwen35
