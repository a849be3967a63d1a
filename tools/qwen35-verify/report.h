#ifndef QWEN35_TOOLS_QWEN35_VERIFY_REPORT_H
#define QWEN35_TOOLS_QWEN35_VERIFY_REPORT_H

#include "runtime/bundle/bundle_reader.h"

#include <string>

namespace qwen35 {

/// A bundle's summary for people: model, rows, code, memory, programs, the
/// largest buffers. Ends with a newline.
std::string textReport(const std::string &path, const BundleFile &file);

/// The same as one JSON object: {"file", "ok": true, "digest", "schema",
/// "target", "model", "row", "memory", "programs", "largest_buffers"}. Sizes
/// are bytes.
std::string jsonReport(const std::string &path, const BundleFile &file);

/// What failed: {"file", "ok": false, "check", "error"}.
std::string jsonFailure(const std::string &path, const std::string &check,
                        const std::string &error);

} // namespace qwen35

#endif // QWEN35_TOOLS_QWEN35_VERIFY_REPORT_H
