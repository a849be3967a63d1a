#include "runtime/bundle/wire_scan.h"

#include "absl/strings/str_cat.h"
#include "runtime/bundle/status_macros.h"

namespace qwen35 {
namespace {

/// Which message the scanner is in, as far as its fields matter: only those
/// that hold messages with repeated fields of their own are entered.
enum class Level {
  Bundle,
  Io,
  IoBuffer,
  Param,
  Shard,
  Program,
  Entry,
  Launch,
  Collective,
  Part,
  Communicator,
  Leaf,
  Opaque
};

Level child(Level level, uint64_t field) {
  switch (level) {
  case Level::Bundle:
    return field == 8    ? Level::Param
           : field == 9  ? Level::Io
           : field == 10 ? Level::Program
           : field == 15 ? Level::Communicator
           : field <= 16 && field != 13 ? Level::Leaf
                                        : Level::Opaque; // of a later minor
  case Level::Program:
    return field == 2 ? Level::Entry : Level::Opaque;
  case Level::Entry:
    return field == 1   ? Level::Launch
           : field == 3 ? Level::Collective
                        : Level::Leaf;
  case Level::Collective:
    return field == 9                  ? Level::Part
           : field == 10 || field == 11 ? Level::Leaf
                                        : Level::Opaque;
  case Level::Io:
    return Level::IoBuffer;
  case Level::IoBuffer:
    return field == 3 ? Level::Shard : Level::Opaque;
  case Level::Param:
    return field == 11 || field == 12 || field == 14 ? Level::Shard
                                                     : Level::Opaque;
  case Level::Shard:
  case Level::Communicator:
    return field == 2 ? Level::Leaf : Level::Opaque;
  case Level::Part:
    return field <= 2 ? Level::Leaf : Level::Opaque;
  case Level::Launch: // Arg has scalars only, but it may hold unknown fields
  case Level::Leaf:
  case Level::Opaque:
    return Level::Opaque;
  }
  return Level::Opaque;
}

class Scanner {
public:
  Scanner(const uint8_t *first, uint64_t maxRecords)
      : first(first), maxRecords(maxRecords) {}

  absl::Status scan(const uint8_t *at, const uint8_t *end, Level level) {
    while (at != end) {
      uint64_t tag = 0, value = 0;
      if (!varint(at, end, tag) || tag >> 3 == 0)
        return malformed(at);
      // Elsewhere a newer minor version may add fields; a step that is not run
      // because nobody knows it would leave wrong numbers.
      if (level == Level::Entry && tag != (1 << 3 | 2) && tag != (2 << 3 | 2) &&
          tag != (3 << 3 | 2) && tag != (4 << 3 | 2))
        return absl::UnimplementedError(absl::StrCat(
            "a plan entry holds field ", tag >> 3,
            ", this reader knows launch (1), memset (2), collective (3) and wait "
            "(4)"));
      switch (tag & 7) {
      case 0:
        if (!varint(at, end, value))
          return malformed(at);
        break;
      case 1:
      case 5: {
        ptrdiff_t bytes = (tag & 7) == 1 ? 8 : 4;
        if (end - at < bytes)
          return malformed(at);
        at += bytes;
        break;
      }
      case 2: {
        if (!varint(at, end, value) || value > static_cast<uint64_t>(end - at))
          return malformed(at);
        if (++records > maxRecords)
          return absl::InvalidArgumentError(absl::StrCat(
              "the message holds more than ", maxRecords,
              " strings and submessages, the most a reader takes"));
        if (Level next = child(level, tag >> 3); next != Level::Opaque)
          QWEN35_RETURN_IF_ERROR(scan(at, at + value, next));
        at += value;
        break;
      }
      default:
        return malformed(at);
      }
    }
    return absl::OkStatus();
  }

private:
  static bool varint(const uint8_t *&at, const uint8_t *end, uint64_t &value) {
    value = 0;
    for (int shift = 0; shift < 70 && at != end; shift += 7) {
      uint8_t byte = *at++;
      if (shift < 64)
        value |= uint64_t(byte & 127) << shift;
      if (byte < 128)
        return true;
    }
    return false;
  }

  absl::Status malformed(const uint8_t *at) const {
    return absl::DataLossError(absl::StrCat(
        "the message is not a protobuf: no field ends properly at byte ",
        at - first));
  }

  const uint8_t *first;
  uint64_t maxRecords;
  uint64_t records = 0;
};

} // namespace

absl::Status scanBundleMessage(absl::Span<const uint8_t> message,
                               uint64_t maxRecords) {
  const uint8_t *first = message.data();
  return Scanner(first, maxRecords)
      .scan(first, first + message.size(), Level::Bundle);
}

} // namespace qwen35
