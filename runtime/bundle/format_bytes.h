#ifndef QWEN35_RUNTIME_BUNDLE_FORMAT_BYTES_H
#define QWEN35_RUNTIME_BUNDLE_FORMAT_BYTES_H

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include <cstdint>
#include <string>

namespace qwen35 {

/// A size for people, in decimal units: "917 B", "1.5 MB", "51.2 GB".
inline std::string formatBytes(uint64_t bytes) {
  if (bytes < 1000)
    return absl::StrCat(bytes, " B");
  const char *units[] = {"kB", "MB", "GB", "TB", "PB", "EB"};
  double value = static_cast<double>(bytes) / 1000;
  int unit = 0;
  for (; value >= 999.95 && unit < 5; ++unit)
    value /= 1000;
  return absl::StrFormat("%.1f %s", value, units[unit]);
}

} // namespace qwen35

#endif // QWEN35_RUNTIME_BUNDLE_FORMAT_BYTES_H
