#ifndef QWEN35_TOOLS_QWEN35_DATA_CONVERT_H
#define QWEN35_TOOLS_QWEN35_DATA_CONVERT_H

#include "runtime/data/token_file.h"

#include "absl/status/status.h"

#include <string>

namespace qwen35 {

/// Adds a text file, its bytes as ids, one document per paragraph
/// (findParagraphs). Any byte is allowed, NUL too.
/// Errors  the file system's; InvalidArgument for a file without text.
absl::Status addText(const std::string &path, TokenFileWriter &writer);

/// Adds a JSONL file: per line an object with the ids under one of
/// "input_ids", "ids" or "tokens" and, if wanted, "loss_mask", as many zeros
/// and ones (or false and true); or the bare list of ids. Other members are
/// ignored, lines of white space are passed over.
/// Errors  InvalidArgument "FILE:LINE: ..." for anything else, an id outside
///         the writer's vocabulary, lists of different lengths.
absl::Status addJsonl(const std::string &path, TokenFileWriter &writer);

} // namespace qwen35

#endif // QWEN35_TOOLS_QWEN35_DATA_CONVERT_H
