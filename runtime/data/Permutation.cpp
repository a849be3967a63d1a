#include "runtime/data/permutation.h"

namespace qwen35 {

/// splitmix64's finalizer: every input bit reaches every output bit.
static uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

Permutation::Permutation(int64_t elements, uint64_t seed, uint64_t epoch)
    : count(static_cast<uint64_t>(elements)), halfBits(1) {
  while ((uint64_t{1} << (2 * halfBits)) < count)
    ++halfBits;
  uint64_t state = mix(mix(seed) ^ epoch);
  for (uint64_t &key : keys)
    key = state = mix(state);
}

int64_t Permutation::operator()(int64_t i) const {
  uint64_t x = static_cast<uint64_t>(i);
  uint64_t mask = (uint64_t{1} << halfBits) - 1;
  // The network permutes at most 4 * count values; following it from a value
  // inside leads back inside, after fewer than four turns on average.
  do {
    uint64_t left = x >> halfBits, right = x & mask;
    for (uint64_t key : keys) {
      uint64_t next = left ^ (mix(right ^ key) & mask);
      left = right;
      right = next;
    }
    x = left << halfBits | right;
  } while (x >= count);
  return static_cast<int64_t>(x);
}

} // namespace qwen35
