#ifndef QWEN35_RUNTIME_SCHEMA_BUNDLE_FORMAT_H
#define QWEN35_RUNTIME_SCHEMA_BUNDLE_FORMAT_H

#include <cstdint>

namespace qwen35 {

/// The container around the message of bundle.proto: constants that writer and
/// reader share. The layout itself is described at the top of bundle.proto.
///
/// Every byte of a file is determined by message and blobs: blobs follow in the
/// order of the table, each on the first page after what comes before it, gaps
/// are zero, and the file ends with the last blob.
struct BundleFormat {
  static constexpr char kMagic[8] = {'Q', '3', '5', 'B', 'N', 'D', 'L', '\0'};
  static constexpr uint32_t kContainer = 1;
  /// Schema version. A reader accepts its own major and any minor.
  static constexpr uint32_t kMajor = 1;
  static constexpr uint32_t kMinor = 0;

  static constexpr uint64_t kVersionOffset = 8;
  static constexpr uint64_t kZeroOffset = 12;
  static constexpr uint64_t kLengthOffset = 16;
  static constexpr uint64_t kDigestOffset = 24;
  static constexpr uint64_t kMessageOffset = 56;
  static constexpr uint64_t kDigestBytes = 32;
  static constexpr uint64_t kPage = 4096;
  /// Longest message. Protobuf itself gives up at 2 GiB.
  static constexpr uint64_t kMaxMessage = uint64_t(64) << 20;

  static constexpr uint64_t pageAligned(uint64_t offset) {
    return (offset + kPage - 1) / kPage * kPage;
  }
};

} // namespace qwen35

#endif // QWEN35_RUNTIME_SCHEMA_BUNDLE_FORMAT_H
