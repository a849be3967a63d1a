#ifndef QWEN35_RUNTIME_DATA_PERMUTATION_H
#define QWEN35_RUNTIME_DATA_PERMUTATION_H

#include <cstdint>

namespace qwen35 {

/// A permutation of 0 .. count-1 that is computed, not stored: a Feistel
/// network on the smallest even number of bits that holds count - 1, walked
/// until it lands inside. Depends on (count, seed, epoch) only; any machine
/// computes the same.
class Permutation {
public:
  Permutation(int64_t count, uint64_t seed, uint64_t epoch);
  /// The element at place i, 0 <= i < count.
  int64_t operator()(int64_t i) const;

private:
  static constexpr int kRounds = 6;
  uint64_t count;
  int halfBits;
  uint64_t keys[kRounds];
};

} // namespace qwen35

#endif // QWEN35_RUNTIME_DATA_PERMUTATION_H
