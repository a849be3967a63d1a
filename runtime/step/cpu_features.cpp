#include "runtime/step/cpu_features.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include <cpuid.h>

namespace qwen35 {
namespace {

struct Feature {
  const char *name;
  uint32_t CpuidWords::*word;
  int bit;
};

constexpr Feature kLevel2[] = {
    {"sse3", &CpuidWords::leaf1Ecx, 0},
    {"ssse3", &CpuidWords::leaf1Ecx, 9},
    {"cmpxchg16b", &CpuidWords::leaf1Ecx, 13},
    {"sse4.1", &CpuidWords::leaf1Ecx, 19},
    {"sse4.2", &CpuidWords::leaf1Ecx, 20},
    {"popcnt", &CpuidWords::leaf1Ecx, 23},
    {"lahf", &CpuidWords::extended1Ecx, 0},
};
constexpr Feature kLevel3[] = {
    {"fma", &CpuidWords::leaf1Ecx, 12},
    {"movbe", &CpuidWords::leaf1Ecx, 22},
    {"osxsave", &CpuidWords::leaf1Ecx, 27},
    {"avx", &CpuidWords::leaf1Ecx, 28},
    {"f16c", &CpuidWords::leaf1Ecx, 29},
    {"bmi1", &CpuidWords::leaf7Ebx, 3},
    {"avx2", &CpuidWords::leaf7Ebx, 5},
    {"bmi2", &CpuidWords::leaf7Ebx, 8},
    {"lzcnt", &CpuidWords::extended1Ecx, 5},
};
constexpr Feature kLevel4[] = {
    {"avx512f", &CpuidWords::leaf7Ebx, 16},
    {"avx512dq", &CpuidWords::leaf7Ebx, 17},
    {"avx512cd", &CpuidWords::leaf7Ebx, 28},
    {"avx512bw", &CpuidWords::leaf7Ebx, 30},
    {"avx512vl", &CpuidWords::leaf7Ebx, 31},
};
constexpr uint64_t kYmmState = 0x6;  // SSE and AVX registers
constexpr uint64_t kZmmState = 0xe6; // and masks, upper halves, zmm16-31

template <size_t N>
void collect(const Feature (&features)[N], const CpuidWords &cpu,
             std::vector<std::string> &missing) {
  for (const Feature &feature : features)
    if (((cpu.*feature.word) >> feature.bit & 1) == 0)
      missing.push_back(feature.name);
}

} // namespace

CpuidWords readCpuid() {
  CpuidWords words;
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx))
    words.leaf1Ecx = ecx;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx))
    words.leaf7Ebx = ebx;
  if (__get_cpuid(0x80000001, &eax, &ebx, &ecx, &edx))
    words.extended1Ecx = ecx;
  if (words.leaf1Ecx >> 27 & 1) { // osxsave: xgetbv exists
    uint32_t low = 0, high = 0;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    words.xcr0 = uint64_t(high) << 32 | low;
  }
  return words;
}

std::vector<std::string> missingFeatures(const std::string &level,
                                         const CpuidWords &cpu) {
  std::vector<std::string> missing;
  int number = level == "x86-64"      ? 1
               : level == "x86-64-v2" ? 2
               : level == "x86-64-v3" ? 3
               : level == "x86-64-v4" ? 4
                                      : 0;
  if (number == 0)
    missing.push_back(level);
  if (number >= 2)
    collect(kLevel2, cpu, missing);
  if (number >= 3) {
    collect(kLevel3, cpu, missing);
    if ((cpu.xcr0 & kYmmState) != kYmmState)
      missing.push_back("saved ymm registers");
  }
  if (number >= 4) {
    collect(kLevel4, cpu, missing);
    if ((cpu.xcr0 & kZmmState) != kZmmState)
      missing.push_back("saved zmm registers");
  }
  return missing;
}

absl::Status checkCpu(const std::string &level) {
  std::vector<std::string> missing = missingFeatures(level, readCpuid());
  if (missing.empty())
    return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the bundle's kernels need a CPU of level ", level,
                   ", but this one lacks ", absl::StrJoin(missing, ", ")));
}

} // namespace qwen35
