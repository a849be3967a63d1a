#ifndef QWEN35_RUNTIME_INIT_COUNTER_RANDOM_H
#define QWEN35_RUNTIME_INIT_COUNTER_RANDOM_H

#include <array>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace qwen35 {

/// Ten rounds of Philox 4x32: a bijection of the counter, one per key.
///
/// Source  Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (SC 2011).
std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter,
                                   std::array<uint32_t, 2> key);

/// Random numbers addressed by place instead of drawn in order: number i of a
/// stream is a function of (seed, name, i) alone, so any slice of a tensor can
/// be filled by any thread or rank and the values are the same.
class CounterRandom {
public:
  CounterRandom(uint64_t seed, absl::string_view name);

  /// Uniform numbers 2 * pair and 2 * pair + 1: odd multiples of 2^-53, so
  /// never 0 and never 1.
  std::array<double, 2> uniformPair(uint64_t pair) const;

private:
  std::array<uint32_t, 2> key;
  std::array<uint32_t, 2> stream; // upper half of the counter
};

/// The x below which a standard normal variable lies with probability `p`,
/// 0 < p < 1, to about 1e-16 relative.
///
/// Source  Wichura, AS 241, PPND16 (Applied Statistics 37, 1988).
double inverseNormal(double p);

} // namespace qwen35

#endif // QWEN35_RUNTIME_INIT_COUNTER_RANDOM_H
