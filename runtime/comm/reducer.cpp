#include "runtime/comm/reducer.h"

#include "absl/strings/str_cat.h"

#include <cmath>
#include <cstring>
#include <type_traits>

namespace qwen35::comm {
namespace {

struct Bf16 {
  uint16_t bits;
};

float widen(Bf16 value) {
  uint32_t bits = uint32_t(value.bits) << 16;
  float result;
  std::memcpy(&result, &bits, 4);
  return result;
}
float widen(float value) { return value; }
double widen(double value) { return value; }
int32_t widen(int32_t value) { return value; }
int64_t widen(int64_t value) { return value; }

template <typename To, typename From> To convert(From from) {
  auto value = widen(from);
  if constexpr (std::is_same_v<To, Bf16>) {
    float narrow = static_cast<float>(value);
    uint32_t bits;
    std::memcpy(&bits, &narrow, 4);
    bits =
        std::isnan(narrow) ? bits | 0x400000 : bits + 0x7FFF + (bits >> 16 & 1);
    return Bf16{static_cast<uint16_t>(bits >> 16)};
  } else {
    return static_cast<To>(value);
  }
}

template <Reduction kReduction, typename T> T combine(T a, T b) {
  if constexpr (kReduction == Reduction::kSum) {
    if constexpr (std::is_integral_v<T>) {
      using U = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
    } else {
      return a + b;
    }
  } else if constexpr (std::is_floating_point_v<T>) {
    bool second = kReduction == Reduction::kMax ? b > a : b < a;
    return second || std::isnan(b) ? b : a; // a NaN in a stays: no order
  } else {
    return (kReduction == Reduction::kMax ? b > a : b < a) ? b : a;
  }
}

/// Calls `use` with a null pointer of the type.
template <typename Use> void withType(Type type, Use use) {
  switch (type) {
  case Type::kF32:
    return use(static_cast<float *>(nullptr));
  case Type::kBf16:
    return use(static_cast<Bf16 *>(nullptr));
  case Type::kF64:
    return use(static_cast<double *>(nullptr));
  case Type::kI32:
    return use(static_cast<int32_t *>(nullptr));
  case Type::kI64:
    return use(static_cast<int64_t *>(nullptr));
  case Type::kByte:
    return; // refused by make
  }
}

template <typename From, typename To>
constexpr bool kConverts = std::is_same_v<From, To> ||
                           (!std::is_integral_v<From> &&
                            !std::is_integral_v<To>);

void convertAll(Type fromType, const void *from, int64_t count, Type toType,
                void *to) {
  withType(fromType, [&](auto *fromTag) {
    withType(toType, [&](auto *toTag) {
      using From = std::remove_pointer_t<decltype(fromTag)>;
      using To = std::remove_pointer_t<decltype(toTag)>;
      if constexpr (std::is_same_v<From, To>) {
        std::memcpy(to, from, static_cast<size_t>(count) * sizeof(To));
      } else if constexpr (kConverts<From, To>) {
        auto *source = static_cast<const From *>(from);
        auto *target = static_cast<To *>(to);
        for (int64_t i = 0; i < count; ++i)
          target[i] = convert<To>(source[i]);
      }
    });
  });
}

template <Reduction kReduction>
void addAll(Type wireType, const void *wire, int64_t count, Type sumType,
            void *sum) {
  withType(wireType, [&](auto *wireTag) {
    withType(sumType, [&](auto *sumTag) {
      using Wire = std::remove_pointer_t<decltype(wireTag)>;
      using Sum = std::remove_pointer_t<decltype(sumTag)>;
      if constexpr (kConverts<Wire, Sum> && !std::is_same_v<Sum, Bf16>) {
        auto *source = static_cast<const Wire *>(wire);
        auto *target = static_cast<Sum *>(sum);
        for (int64_t i = 0; i < count; ++i)
          target[i] =
              combine<kReduction, Sum>(target[i], convert<Sum>(source[i]));
      }
    });
  });
}

} // namespace

absl::StatusOr<Reducer> Reducer::make(Type element, Type wire, Type accumulate,
                                      Reduction reduction) {
  if (element == Type::kByte)
    return absl::InvalidArgumentError(
        "bytes cannot be reduced; expected f32, bf16, f64, i32 or i64");
  if (wire != element && !(element == Type::kF32 && wire == Type::kBf16))
    return absl::InvalidArgumentError(
        absl::StrCat("the wire type is ", nameOf(wire), " for elements of ",
                     nameOf(element), "; expected ", nameOf(element),
                     element == Type::kF32 ? " or bf16" : ""));
  bool fits = !isFloat(element)          ? accumulate == element
              : element == Type::kF64    ? accumulate == Type::kF64
              : element == Type::kBf16   ? accumulate == Type::kF32
              : accumulate == Type::kF64 ? wire == Type::kF32
                                         : accumulate == Type::kF32;
  if (!fits)
    return absl::InvalidArgumentError(
        absl::StrCat("sums of ", nameOf(element), " sent as ", nameOf(wire),
                     " are accumulated in ", nameOf(accumulate), "; expected ",
                     !isFloat(element)       ? nameOf(element)
                     : element == Type::kF64 ? "f64"
                     : wire == Type::kBf16   ? "f32"
                                             : "f32 or f64"));
  return Reducer(element, wire, accumulate, reduction);
}

void Reducer::pack(const void *elements, int64_t count, void *wire) const {
  convertAll(elementType, elements, count, wireType, wire);
}

void Reducer::unpack(const void *wire, int64_t count, void *elements) const {
  convertAll(wireType, wire, count, elementType, elements);
}

void Reducer::start(const void *wire, int64_t count, void *sum) const {
  convertAll(wireType, wire, count, sumType, sum);
}

void Reducer::add(const void *wire, int64_t count, void *sum) const {
  switch (reduction) {
  case Reduction::kSum:
    return addAll<Reduction::kSum>(wireType, wire, count, sumType, sum);
  case Reduction::kMax:
    return addAll<Reduction::kMax>(wireType, wire, count, sumType, sum);
  case Reduction::kMin:
    return addAll<Reduction::kMin>(wireType, wire, count, sumType, sum);
  }
}

void Reducer::finish(const void *sum, int64_t count, void *elements) const {
  convertAll(sumType, sum, count, elementType, elements);
}

} // namespace qwen35::comm
