#ifndef QWEN35_RUNTIME_STEP_CPU_FEATURES_H
#define QWEN35_RUNTIME_STEP_CPU_FEATURES_H

#include "absl/status/status.h"

#include <cstdint>
#include <string>
#include <vector>

namespace qwen35 {

/// What CPUID says about one CPU, as far as the x86-64 levels ask.
struct CpuidWords {
  uint32_t leaf1Ecx = 0;
  uint32_t leaf7Ebx = 0;
  uint32_t extended1Ecx = 0; // leaf 0x80000001
  uint64_t xcr0 = 0;         // register state that the system saves
};

CpuidWords readCpuid();

/// Features of `level` (x86-64, x86-64-v2, -v3 or -v4; x86-64 psABI, table 3.1)
/// that the CPU lacks, or that the system does not save. Unknown levels need a
/// feature of their own name, so they are always missing something.
std::vector<std::string> missingFeatures(const std::string &level,
                                         const CpuidWords &cpu);

/// Errors  FailedPrecondition naming the level and what this machine lacks.
absl::Status checkCpu(const std::string &level);

} // namespace qwen35

#endif // QWEN35_RUNTIME_STEP_CPU_FEATURES_H
