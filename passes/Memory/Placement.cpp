#include "passes/Memory/Placement.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/MathExtras.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

namespace qwen35 {

int64_t place(llvm::MutableArrayRef<Lifetime> buffers, int64_t align) {
  llvm::SmallVector<size_t> order(buffers.size());
  for (size_t i = 0; i < order.size(); ++i)
    order[i] = i;
  llvm::sort(order, [&](size_t a, size_t b) {
    return std::make_tuple(-buffers[a].bytes, buffers[a].first, a) <
           std::make_tuple(-buffers[b].bytes, buffers[b].first, b);
  });

  // Placed buffers by offset: a walk meets the gaps in order.
  llvm::SmallVector<size_t> placed;
  int64_t arena = 0;
  for (size_t index : order) {
    Lifetime &buffer = buffers[index];
    int64_t bytes = llvm::alignTo(buffer.bytes, align);
    int64_t end = 0; // of the buffers met so far
    int64_t best = -1, bestGap = std::numeric_limits<int64_t>::max();
    for (size_t other : placed) {
      const Lifetime &o = buffers[other];
      if (o.last < buffer.first || buffer.last < o.first)
        continue;
      int64_t gap = o.offset - end;
      if (gap >= bytes && gap < bestGap) {
        best = end;
        bestGap = gap;
      }
      end = std::max<int64_t>(end, o.offset + llvm::alignTo(o.bytes, align));
    }
    buffer.offset = best >= 0 ? best : end;
    arena = std::max(arena, buffer.offset + bytes);
    auto position = std::lower_bound(
        placed.begin(), placed.end(), buffer.offset,
        [&](size_t p, int64_t offset) { return buffers[p].offset < offset; });
    placed.insert(position, index);
  }
  return arena;
}

int64_t peakBytes(llvm::ArrayRef<Lifetime> buffers, int64_t align,
                  int64_t &step) {
  std::map<int64_t, int64_t> change; // bytes that appear at a step
  for (const Lifetime &buffer : buffers) {
    int64_t bytes = llvm::alignTo(buffer.bytes, align);
    change[buffer.first] += bytes;
    change[buffer.last + 1] -= bytes;
  }
  int64_t live = 0, peak = 0;
  step = 0;
  for (auto [at, bytes] : change) {
    live += bytes;
    if (live > peak) {
      peak = live;
      step = at;
    }
  }
  return peak;
}

} // namespace qwen35
