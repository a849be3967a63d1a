#ifndef QWEN35_RUNTIME_BUNDLE_QUOTED_H
#define QWEN35_RUNTIME_BUNDLE_QUOTED_H

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

#include <string>

namespace qwen35 {

/// A name from a file, for an error message: in quotes, with control characters
/// escaped and cut at 80 characters, since the file may hold anything.
inline std::string quoted(const std::string &name) {
  if (name.size() <= 80)
    return absl::StrCat("'", absl::CHexEscape(name), "'");
  return absl::StrCat("'", absl::CHexEscape(name.substr(0, 80)), "...'");
}

} // namespace qwen35

#endif // QWEN35_RUNTIME_BUNDLE_QUOTED_H
