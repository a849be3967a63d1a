#ifndef QWEN35_RUNTIME_BUNDLE_STATUS_MACROS_H
#define QWEN35_RUNTIME_BUNDLE_STATUS_MACROS_H

#include "absl/status/status.h"

/// Leaves the function with the status of `expr` unless it is ok.
#define QWEN35_RETURN_IF_ERROR(expr)                                           \
  do {                                                                         \
    if (::absl::Status status_ = (expr); !status_.ok())                        \
      return status_;                                                          \
  } while (false)

#endif // QWEN35_RUNTIME_BUNDLE_STATUS_MACROS_H
