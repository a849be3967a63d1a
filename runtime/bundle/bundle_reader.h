#ifndef QWEN35_RUNTIME_BUNDLE_BUNDLE_READER_H
#define QWEN35_RUNTIME_BUNDLE_BUNDLE_READER_H

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/schema/bundle.pb.h"

#include <cstdint>
#include <memory>
#include <string>

namespace qwen35 {

/// A bundle file whose every number has been checked: whoever holds one may
/// index, add and multiply what it says without checking again.
///
/// Nothing in the file is trusted. Integrity comes first (container, lengths,
/// SHA-256 of the message and of every blob), then bounds (validateBundle),
/// then the plan (checkPlan). The kernels' ELF image is checked by
/// checkElfImage (elf_image.h), since only who is about to load it has to care.
///
/// The file is mapped, not copied: it must not be changed in place while a
/// BundleFile refers to it. The writer never does (it renames).
///
/// Errors  One sentence naming what was found and what was expected, as
///         - NotFound, PermissionDenied or Unavailable: the file cannot be
///         read,
///         - DataLoss: not a bundle, cut short, or a digest does not match,
///         - Unimplemented: written for another version or with features that
///           this reader does not know,
///         - InvalidArgument: a number, name or shape is out of bounds,
///         - FailedPrecondition: the plan reads bytes that nothing has written,
///           or that another buffer has overwritten, or it writes what it may
///           not.
class BundleFile : public std::enable_shared_from_this<BundleFile> {
public:
  /// Maps and checks the file at `path`; every error begins with the path.
  static absl::StatusOr<std::shared_ptr<const BundleFile>>
  open(const std::string &path);

  /// The same for bytes in memory, which must outlive the result.
  static absl::StatusOr<std::shared_ptr<const BundleFile>>
  parse(absl::Span<const uint8_t> bytes);

  BundleFile(const BundleFile &) = delete;
  BundleFile &operator=(const BundleFile &) = delete;
  ~BundleFile();

  const bundle::Bundle &message() const { return contents; }
  /// How many targets there is a plan for: that of the message's own fields,
  /// then its alternatives.
  int plans() const { return 1 + contents.alternatives_size(); }
  const bundle::Target &target(int index) const;
  /// The same file with the message of one plan alone (planMessage); digest,
  /// size and blobs are those of the whole.
  std::shared_ptr<const BundleFile> plan(int index) const;
  /// Bytes of blob `index`, which must be below `message().blobs_size()`.
  absl::Span<const uint8_t> blob(uint32_t index) const;
  /// SHA-256 of the message, 64 hex digits. The message holds the digests of
  /// the blobs, so this names the whole file.
  const std::string &digest() const { return messageDigest; }
  /// Size of the file in bytes.
  uint64_t size() const { return bytes.size(); }

private:
  BundleFile() = default;

  absl::Span<const uint8_t> bytes;
  void *mapping = nullptr;                 // what to unmap, null for parse()
  std::shared_ptr<const BundleFile> owner; // of the mapping, if another
  bundle::Bundle contents;
  std::string messageDigest;
};

/// The message as if plan `index` were its only one: 0 is that of the message's
/// own fields, then come the alternatives.
bundle::Bundle planMessage(const bundle::Bundle &message, int index);

/// Checks that do not need the blobs' bytes: every index, offset, count, shape
/// and name of the message, for every plan in it, against one another and
/// against fixed caps. Part of BundleFile::open. Errors as there.
absl::Status validateBundle(const bundle::Bundle &message);

/// Replays every program of every plan on the byte ranges of the arenas, from
/// the plan alone.
/// The message must have passed validateBundle. Refused are:
///
/// - a read of bytes that another buffer has overwritten since this one was
///   written, or that nothing has written: in this program for the act arena;
///   in `begin` or this program elsewhere, except weights, optimizer moments,
///   inputs and scalars, which the runtime fills;
/// - a launch that writes a buffer overlapping another of its own;
/// - a write to weights or moments outside `finish`, to gradients in `eval`, or
///   to inputs and scalars anywhere;
/// - gradient sums that `begin` leaves unset; outputs that `finish` leaves
/// unset.
absl::Status checkPlan(const bundle::Bundle &message);

/// Bytes of one element; 0 for DTYPE_NONE and for values the schema has not.
uint64_t dtypeBytes(bundle::DType dtype);
/// "f32", "bf16", ...; "none" for DTYPE_NONE.
const char *dtypeName(bundle::DType dtype);

} // namespace qwen35

#endif // QWEN35_RUNTIME_BUNDLE_BUNDLE_READER_H
