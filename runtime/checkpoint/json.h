#ifndef QWEN35_RUNTIME_CHECKPOINT_JSON_H
#define QWEN35_RUNTIME_CHECKPOINT_JSON_H

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include <nlohmann/json.hpp>

namespace qwen35 {

/// What a document may hold, so that a small file cannot become a large one in
/// memory.
struct JsonLimits {
  size_t depth = 32;          // levels of nesting
  size_t elements = 10000000; // of one array
};

/// Parses JSON from a file that nobody has vouched for.
///
/// Unlike nlohmann's own parse it refuses an object that names a key twice
/// (there, the last one wins), a key with control characters (keys go into
/// messages) and what exceeds the limits, and it never throws. Callers must
/// still ask for types before they read values: the accessors of
/// nlohmann::json throw.
///
/// Errors  InvalidArgument, starting with `what` (a file, a header of a file).
absl::StatusOr<nlohmann::json> parseJson(absl::string_view text,
                                         absl::string_view what,
                                         const JsonLimits &limits = {});

/// The text of a value with an indent of two, or on one line for indent -1.
/// Bytes that are not UTF-8 become U+FFFD; it never throws.
std::string jsonText(const nlohmann::json &value, int indent = 2);

} // namespace qwen35

#endif // QWEN35_RUNTIME_CHECKPOINT_JSON_H
