#ifndef QWEN35_RUNTIME_BUNDLE_OF_PLAN_H
#define QWEN35_RUNTIME_BUNDLE_OF_PLAN_H

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace qwen35 {

/// An error of plan `index` of a bundle, which says so unless it is the first.
inline absl::Status ofPlan(int index, const absl::Status &status) {
  if (index == 0)
    return status;
  return absl::Status(status.code(), absl::StrCat("alternative ", index - 1,
                                                  ": ", status.message()));
}

} // namespace qwen35

#endif // QWEN35_RUNTIME_BUNDLE_OF_PLAN_H
