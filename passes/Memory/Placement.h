#ifndef QWEN35_PASSES_MEMORY_PLACEMENT_H
#define QWEN35_PASSES_MEMORY_PLACEMENT_H

#include "llvm/ADT/ArrayRef.h"

#include <cstdint>

namespace qwen35 {

/// A buffer to place: it holds `bytes` from step `first` to step `last`, both
/// included.
struct Lifetime {
  int64_t bytes;
  int64_t first, last;
  int64_t offset = -1; ///< Set by `place`.
};

/// Gives every buffer an offset that is a multiple of `align`, so that buffers
/// alive at one step are disjoint. Returns the bytes of the arena.
///
/// Largest first, each into the smallest gap between those it meets in time;
/// ties by first step, then by index, so equal input gives equal output.
int64_t place(llvm::MutableArrayRef<Lifetime> buffers, int64_t align);

/// The most bytes alive at one step, sizes rounded up to `align`: no placement
/// is smaller. `step` gets the first step of that peak.
int64_t peakBytes(llvm::ArrayRef<Lifetime> buffers, int64_t align,
                  int64_t &step);

} // namespace qwen35

#endif // QWEN35_PASSES_MEMORY_PLACEMENT_H
