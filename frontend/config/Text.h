#ifndef QWEN35_FRONTEND_CONFIG_TEXT_H
#define QWEN35_FRONTEND_CONFIG_TEXT_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>

namespace qwen35 {

/// The shortest decimal that reads back as the same double: 1e-06, 10000000.
/// (llvm::formatv would print 1e-6 as 0.00, to_chars 1e7 as 1e+07.)
inline std::string shortestReal(double value) {
  if (std::abs(value) < 1e15 && std::trunc(value) == value)
    return std::to_string(int64_t(value));
  char text[32];
  return std::string(text, std::to_chars(text, text + sizeof(text), value).ptr);
}

/// The entry of `names` with the fewest edits to `name`, or an empty string
/// when even that one shares less than half of it.
inline llvm::StringRef nearestName(llvm::StringRef name,
                                   llvm::ArrayRef<llvm::StringRef> names) {
  llvm::StringRef best;
  unsigned bestEdits = unsigned(name.size() / 2) + 1;
  for (llvm::StringRef candidate : names) {
    unsigned edits = name.edit_distance(candidate);
    if (edits < bestEdits) {
      bestEdits = edits;
      best = candidate;
    }
  }
  return best;
}

} // namespace qwen35

#endif // QWEN35_FRONTEND_CONFIG_TEXT_H
