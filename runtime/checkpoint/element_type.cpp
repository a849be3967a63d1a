#include "runtime/checkpoint/element_type.h"

#include <bit>
#include <cassert>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace qwen35 {
namespace {

struct TypeInfo {
  ElementType type;
  const char *name;
  int64_t bytes;
};

constexpr TypeInfo kTypes[] = {
    {ElementType::F64, "F64", 8},   {ElementType::F32, "F32", 4},
    {ElementType::F16, "F16", 2},   {ElementType::BF16, "BF16", 2},
    {ElementType::I64, "I64", 8},   {ElementType::I32, "I32", 4},
    {ElementType::U8, "U8", 1},     {ElementType::BOOL, "BOOL", 1},
};

template <typename T> T loadAs(const char *bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

template <typename T> void storeAs(char *bytes, T value) {
  std::memcpy(bytes, &value, sizeof value);
}

float widenBf16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

uint16_t roundToBf16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) { // NaN: never round it to infinity
    uint16_t high = static_cast<uint16_t>(bits >> 16);
    return (high & 0x7fu) ? high : static_cast<uint16_t>(high | 0x40u);
  }
  bits += 0x7fffu + ((bits >> 16) & 1u);
  return static_cast<uint16_t>(bits >> 16);
}

float widenF16(uint16_t half) {
  uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  uint32_t exponent = (half >> 10) & 0x1fu;
  uint32_t fraction = half & 0x3ffu;
  if (exponent == 0x1f)
    return std::bit_cast<float>(sign | 0x7f800000u | (fraction << 13));
  if (exponent)
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) |
                                (fraction << 13));
  float magnitude = static_cast<float>(fraction) * 0x1p-24f; // subnormal: exact
  return sign ? -magnitude : magnitude;
}

uint16_t roundToF16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    uint16_t payload = static_cast<uint16_t>((magnitude >> 13) & 0x3ffu);
    return static_cast<uint16_t>(sign | 0x7c00u | (payload ? payload : 0x200u));
  }
  // 65520 is halfway between the largest half, 65504, and the next power.
  if (magnitude >= std::bit_cast<uint32_t>(65520.0f))
    return static_cast<uint16_t>(sign | 0x7c00u);
  if (magnitude < std::bit_cast<uint32_t>(0x1p-14f)) {
    // The sum is rounded to a multiple of 2^-24, the step of subnormal halves.
    float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) -
                                         std::bit_cast<uint32_t>(0.5f)));
  }
  magnitude += 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((magnitude - (112u << 23)) >> 13));
}

} // namespace

int64_t bytesOf(ElementType type) {
  return kTypes[static_cast<int>(type)].bytes;
}

const char *nameOf(ElementType type) {
  return kTypes[static_cast<int>(type)].name;
}

absl::StatusOr<ElementType> parseElementType(absl::string_view name) {
  for (const TypeInfo &info : kTypes)
    if (name == info.name)
      return info.type;
  return absl::InvalidArgumentError(
      absl::StrCat("dtype ", name.substr(0, 32),
                   " is not one of F64 F32 F16 BF16 I64 I32 U8 BOOL"));
}

absl::StatusOr<ElementType> weightTypeOf(bundle::DType type) {
  switch (type) {
  case bundle::F64:
    return ElementType::F64;
  case bundle::F32:
    return ElementType::F32;
  case bundle::F16:
    return ElementType::F16;
  case bundle::BF16:
    return ElementType::BF16;
  default:
    return absl::InvalidArgumentError(
        absl::StrCat("a parameter cannot be stored as dtype number ",
                     static_cast<int>(type), " of the bundle; F64, F32, F16 "
                     "and BF16 hold weights"));
  }
}

bool isFloating(ElementType type) {
  return type == ElementType::F64 || type == ElementType::F32 ||
         type == ElementType::F16 || type == ElementType::BF16;
}

void toFloat(ElementType type, const char *bytes, int64_t count, float *out) {
  if (count == 0) // memcpy of nothing still wants pointers
    return;
  switch (type) {
  case ElementType::F32:
    std::memcpy(out, bytes, count * sizeof(float));
    return;
  case ElementType::F64:
    for (int64_t i = 0; i < count; ++i)
      out[i] = static_cast<float>(loadAs<double>(bytes + 8 * i));
    return;
  case ElementType::BF16:
    for (int64_t i = 0; i < count; ++i)
      out[i] = widenBf16(loadAs<uint16_t>(bytes + 2 * i));
    return;
  case ElementType::F16:
    for (int64_t i = 0; i < count; ++i)
      out[i] = widenF16(loadAs<uint16_t>(bytes + 2 * i));
    return;
  default:
    assert(false && "integer tensors are not weights");
  }
}

void fromFloat(ElementType type, const float *values, int64_t count,
               char *bytes) {
  if (count == 0) // memcpy of nothing still wants pointers
    return;
  switch (type) {
  case ElementType::F32:
    std::memcpy(bytes, values, count * sizeof(float));
    return;
  case ElementType::F64:
    for (int64_t i = 0; i < count; ++i)
      storeAs<double>(bytes + 8 * i, values[i]);
    return;
  case ElementType::BF16:
    for (int64_t i = 0; i < count; ++i)
      storeAs<uint16_t>(bytes + 2 * i, roundToBf16(values[i]));
    return;
  case ElementType::F16:
    for (int64_t i = 0; i < count; ++i)
      storeAs<uint16_t>(bytes + 2 * i, roundToF16(values[i]));
    return;
  default:
    assert(false && "integer tensors are not weights");
  }
}

} // namespace qwen35
