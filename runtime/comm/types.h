#ifndef QWEN35_RUNTIME_COMM_TYPES_H
#define QWEN35_RUNTIME_COMM_TYPES_H

#include <cstdint>

namespace qwen35::comm {

/// Element types of buffers. bf16 is the upper half of an f32.
enum class Type : uint8_t { kF32, kBf16, kF64, kI32, kI64, kByte };

/// Bytes of one element.
constexpr int64_t bytesOf(Type type) {
  switch (type) {
  case Type::kF32:
  case Type::kI32:
    return 4;
  case Type::kBf16:
    return 2;
  case Type::kF64:
  case Type::kI64:
    return 8;
  case Type::kByte:
    return 1;
  }
  return 0;
}

constexpr bool isFloat(Type type) {
  return type == Type::kF32 || type == Type::kBf16 || type == Type::kF64;
}

/// "f32", "bf16", ...
constexpr const char *nameOf(Type type) {
  switch (type) {
  case Type::kF32:
    return "f32";
  case Type::kBf16:
    return "bf16";
  case Type::kF64:
    return "f64";
  case Type::kI32:
    return "i32";
  case Type::kI64:
    return "i64";
  case Type::kByte:
    return "bytes";
  }
  return "unknown type";
}

enum class Reduction : uint8_t { kSum, kMax, kMin };

constexpr const char *nameOf(Reduction reduction) {
  switch (reduction) {
  case Reduction::kSum:
    return "sum";
  case Reduction::kMax:
    return "max";
  case Reduction::kMin:
    return "min";
  }
  return "unknown reduction";
}

enum class Kind : uint8_t {
  kAllGather,
  kAllReduce,
  kReduceScatter,
  kAllToAll,
  kShift,
  kSendReceive,
  kBroadcast,
  kBarrier,
  kSplit,    // of the world, by name
  kExchange, // of bytes between hosts
};

/// "all_gather", ...: as the ops of the compiler are called.
constexpr const char *nameOf(Kind kind) {
  switch (kind) {
  case Kind::kAllGather:
    return "all_gather";
  case Kind::kAllReduce:
    return "all_reduce";
  case Kind::kReduceScatter:
    return "reduce_scatter";
  case Kind::kAllToAll:
    return "all_to_all";
  case Kind::kShift:
    return "shift";
  case Kind::kSendReceive:
    return "send_receive";
  case Kind::kBroadcast:
    return "broadcast";
  case Kind::kBarrier:
    return "barrier";
  case Kind::kSplit:
    return "split";
  case Kind::kExchange:
    return "exchange";
  }
  return "unknown collective";
}

} // namespace qwen35::comm

#endif // QWEN35_RUNTIME_COMM_TYPES_H
