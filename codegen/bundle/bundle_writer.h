#ifndef QWEN35_CODEGEN_BUNDLE_BUNDLE_WRITER_H
#define QWEN35_CODEGEN_BUNDLE_BUNDLE_WRITER_H

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/schema/bundle.pb.h"

#include <cstdint>
#include <string>

namespace qwen35 {

/// One blob beside the message. `Target.blob` is its position in the list given
/// to the writer.
struct NamedBlob {
  std::string name;
  absl::Span<const uint8_t> bytes;
};

/// The bytes of a bundle file, laid out as bundle.proto says.
///
/// `message.blobs` must be empty: offsets, sizes and SHA-256 are filled in
/// here. A header whose major is 0 (unset) gets the schema's own major and
/// minor. Equal arguments give equal bytes, on any machine.
///
/// What the message says is not judged here; `qwen35-verify` and every reader
/// do that.
///
/// Errors  InvalidArgument for a blob list in the message, an empty or repeated
///         blob name, an empty blob, or a message over 64 MiB.
absl::StatusOr<std::string> serializeBundle(bundle::Bundle message,
                                            absl::Span<const NamedBlob> blobs);

/// Writes those bytes to `path`: into a temporary file beside it, synced, then
/// renamed, so that a reader sees the old file or the new one, never a part.
///
/// Errors  Those of serializeBundle; Unavailable with the system's reason when
///         the file cannot be written. The temporary file is removed.
absl::Status writeBundle(const std::string &path, bundle::Bundle message,
                         absl::Span<const NamedBlob> blobs);

} // namespace qwen35

#endif // QWEN35_CODEGEN_BUNDLE_BUNDLE_WRITER_H
