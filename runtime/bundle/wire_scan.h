#ifndef QWEN35_RUNTIME_BUNDLE_WIRE_SCAN_H
#define QWEN35_RUNTIME_BUNDLE_WIRE_SCAN_H

#include "absl/status/status.h"
#include "absl/types/span.h"

#include <cstdint>

namespace qwen35 {

/// Bounds the memory that parsing `message` as a Bundle can take, before
/// protobuf allocates any of it: an empty submessage has two bytes in the file
/// and about a hundred in memory, so a file of 64 MiB could ask for gigabytes.
/// Refuses plan entries of unknown kinds too, since protobuf-lite hides unknown
/// fields.
///
/// Errors  DataLoss for bytes that are no protobuf or hold groups (proto3 has
///         none); InvalidArgument for more than `maxRecords` strings and
///         submessages; Unimplemented for an unknown kind of plan entry.
absl::Status scanBundleMessage(absl::Span<const uint8_t> message,
                               uint64_t maxRecords);

} // namespace qwen35

#endif // QWEN35_RUNTIME_BUNDLE_WIRE_SCAN_H
