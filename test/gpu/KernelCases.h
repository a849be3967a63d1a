#ifndef QWEN35_TEST_GPU_KERNELCASES_H
#define QWEN35_TEST_GPU_KERNELCASES_H

// What those who write and those who read kernel_cases.proto agree on.

#include "test/gpu/kernel_cases.pb.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace qwen35::test {

inline int64_t elementsOf(const KernelTensor &tensor) {
  int64_t elements = 1;
  for (int64_t size : tensor.shape())
    elements *= size;
  return elements;
}

inline int64_t bytesOf(bundle::DType dtype) {
  return dtype == bundle::BF16 ? 2 : dtype == bundle::F64 ? 8 : 4;
}

/// To the nearest, ties to even.
inline uint16_t toBf16(float value) {
  auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

/// Elements of KernelTensor.random, one after another.
class RandomElements {
public:
  explicit RandomElements(const KernelRandom &random)
      : state(random.seed() * 0x9E3779B97F4A7C15u + 1), scale(random.scale()),
        offset(random.offset()) {}
  double next() {
    state = state * 6364136223846793005u + 1442695040888963407u;
    double unit = static_cast<double>(state >> 40) / (1 << 24);
    return (2 * unit - 1) * scale + offset;
  }

private:
  uint64_t state;
  double scale, offset;
};

/// Bytes from the first element to the last.
inline int64_t extentOf(const KernelTensor &tensor) {
  int64_t last = 0;
  for (int d = 0; d < tensor.shape_size(); ++d)
    last += (tensor.shape(d) - 1) * tensor.strides(d);
  return (last + 1) * bytesOf(tensor.dtype());
}

/// An element of row-major bytes.
inline double valueOf(const std::string &dense, bundle::DType dtype,
                      int64_t element) {
  const char *from = dense.data() + element * bytesOf(dtype);
  auto load = [&](auto value) {
    std::memcpy(&value, from, sizeof value);
    return value;
  };
  switch (dtype) {
  case bundle::BF16:
    return std::bit_cast<float>(static_cast<uint32_t>(load(uint16_t())) << 16);
  case bundle::F32:
    return load(float());
  case bundle::F64:
    return load(double());
  case bundle::I32:
    return load(int32_t());
  default:
    return NAN;
  }
}

/// Outputs of floats with more elements than kMostUnfolded are expected in
/// sums of kFold neighbours, each with a weight of its own, so that files stay
/// small. A sum is NaN if it has a term that is not finite.
constexpr int64_t kFold = 16, kMostUnfolded = 2048;

inline std::vector<double> foldedValues(const std::string &dense,
                                        bundle::DType dtype) {
  auto elements = static_cast<int64_t>(dense.size()) / bytesOf(dtype);
  std::vector<double> sums((elements + kFold - 1) / kFold, 0);
  for (int64_t i = 0; i < elements; ++i) {
    double value = valueOf(dense, dtype, i);
    sums[i / kFold] += std::isfinite(value)
                           ? value * (1 + static_cast<double>(i % kFold) / kFold)
                           : NAN;
  }
  return sums;
}

} // namespace qwen35::test

#endif // QWEN35_TEST_GPU_KERNELCASES_H
