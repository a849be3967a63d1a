#include "test/unit/support/Array.h"

#include "runtime/schema/seq_table.h"

#include "mlir/IR/Builders.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>

using namespace mlir;

namespace qwen35::codegen {
namespace {

std::vector<int64_t> denseStrides(const std::vector<int64_t> &shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (int64_t d = static_cast<int64_t>(shape.size()) - 2; d >= 0; --d)
    strides[d] = strides[d + 1] * shape[d + 1];
  return strides;
}

/// To the nearest, ties to even, as every target does.
uint16_t toBf16(float value) {
  auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value))
    return 0x7FFF;
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

} // namespace

int64_t bytesOf(Kind kind) {
  switch (kind) {
  case Kind::BF16:
    return 2;
  case Kind::F32:
  case Kind::I32:
    return 4;
  case Kind::F64:
    return 8;
  }
  return 0;
}

Array::Array(Kind kind, std::vector<int64_t> shape,
             std::vector<int64_t> strides)
    : element(kind), dims(std::move(shape)), steps(std::move(strides)) {
  if (steps.empty())
    steps = denseStrides(dims);
  bytes.resize(extent() + 2 * kFrame * bytesOf(kind));
  fillCanary();
  for (int64_t i = 0; i < size(); ++i)
    set(i, 0);
}

int64_t Array::extent() const {
  int64_t elements = 1;
  for (size_t d = 0; d < dims.size(); ++d)
    elements += (dims[d] - 1) * steps[d];
  return elements * bytesOf(element);
}

int64_t Array::granularity() const {
  int64_t divisor = std::gcd(int64_t{8}, dims.empty() ? 1 : dims.back());
  for (size_t d = 0; d + 1 < dims.size(); ++d)
    divisor = std::gcd(divisor, steps[d]);
  return divisor;
}

bool Array::isView() const { return steps != denseStrides(dims); }

int64_t Array::size() const {
  return std::accumulate(dims.begin(), dims.end(), int64_t{1},
                         std::multiplies<>());
}

MemRefType Array::type(MLIRContext *context) const {
  Builder b(context);
  Type type = element == Kind::F32    ? Type(b.getF32Type())
              : element == Kind::BF16 ? Type(b.getBF16Type())
              : element == Kind::F64  ? Type(b.getF64Type())
                                      : Type(b.getI32Type());
  if (!isView())
    return MemRefType::get(dims, type);
  return MemRefType::get(
      dims, type,
      StridedLayoutAttr::get(context, ShapedType::kDynamic, steps));
}

void *Array::pointer() { return bytes.data() + kFrame * bytesOf(element); }

int64_t Array::place(int64_t number) const {
  int64_t at = kFrame;
  for (int64_t d = static_cast<int64_t>(dims.size()) - 1; d >= 0; --d) {
    at += number % dims[d] * steps[d];
    number /= dims[d];
  }
  return at * bytesOf(element);
}

double Array::get(int64_t number) const {
  const unsigned char *from = bytes.data() + place(number);
  float single;
  double wide;
  int32_t integer;
  uint16_t half;
  switch (element) {
  case Kind::F32:
    std::memcpy(&single, from, 4);
    return single;
  case Kind::BF16:
    std::memcpy(&half, from, 2);
    return std::bit_cast<float>(static_cast<uint32_t>(half) << 16);
  case Kind::F64:
    std::memcpy(&wide, from, 8);
    return wide;
  case Kind::I32:
    std::memcpy(&integer, from, 4);
    return integer;
  }
  return 0;
}

void Array::set(int64_t number, double value) {
  unsigned char *to = bytes.data() + place(number);
  auto store = [&](auto typed) { std::memcpy(to, &typed, sizeof typed); };
  switch (element) {
  case Kind::F32:
    return store(static_cast<float>(value));
  case Kind::BF16:
    return store(toBf16(static_cast<float>(value)));
  case Kind::F64:
    return store(value);
  case Kind::I32:
    return store(static_cast<int32_t>(value));
  }
}

std::string Array::dense() const {
  std::string result;
  for (int64_t i = 0; i < size(); ++i)
    result.append(reinterpret_cast<const char *>(bytes.data() + place(i)),
                  bytesOf(element));
  return result;
}

int64_t Array::firstDifference(const Array &other) const {
  if (canary == other.canary && bytes == other.bytes)
    return -1;
  for (int64_t i = 0; i < size(); ++i)
    if (std::memcmp(bytes.data() + place(i),
                    other.bytes.data() + other.place(i), bytesOf(element)) != 0)
      return i;
  return -1;
}

bool Array::sameBits(const Array &other) const {
  return firstDifference(other) < 0;
}

void Array::fill(uint16_t pattern, bool elements) {
  canary = pattern;
  std::vector<unsigned char> old;
  std::swap(old, bytes);
  bytes.resize(old.size());
  for (size_t i = 0; i + 1 < bytes.size(); i += 2)
    std::memcpy(&bytes[i], &pattern, 2);
  if (elements)
    return;
  int64_t rows = dims.empty() ? 1 : size() / std::max<int64_t>(dims.back(), 1);
  int64_t columns = dims.empty() ? 1 : dims.back();
  for (int64_t row = 0; row < rows; ++row)
    std::copy_n(old.begin() + place(row * columns),
                columns * bytesOf(element), bytes.begin() + place(row * columns));
}

void Array::fillCanary() { fill(canary, true); }
void Array::fillCanary(uint16_t pattern) { fill(pattern, true); }
void Array::frame(uint16_t pattern) { fill(pattern, false); }

bool Array::frameIntact() const {
  Array framed = *this;
  framed.frame(canary);
  return framed.bytes == bytes;
}

Array f32(std::vector<int64_t> shape, std::vector<int64_t> strides) {
  return Array(Kind::F32, std::move(shape), std::move(strides));
}
Array bf16(std::vector<int64_t> shape, std::vector<int64_t> strides) {
  return Array(Kind::BF16, std::move(shape), std::move(strides));
}
Array zeros(Kind kind, std::vector<int64_t> shape,
            std::vector<int64_t> strides) {
  return Array(kind, std::move(shape), std::move(strides));
}
Array f64(std::vector<int64_t> shape) {
  return Array(Kind::F64, std::move(shape));
}
Array i32(std::vector<int64_t> shape) {
  return Array(Kind::I32, std::move(shape));
}

Array random(Kind kind, std::vector<int64_t> shape, uint64_t seed,
             double scale, std::vector<int64_t> strides) {
  Array array(kind, std::move(shape), std::move(strides));
  uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
  for (int64_t i = 0; i < array.size(); ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    double unit = static_cast<double>(state >> 40) / (1 << 24);
    array.set(i, (2 * unit - 1) * scale);
  }
  array.origin = Array::Origin{seed, scale};
  return array;
}

Array random(std::vector<int64_t> shape, uint64_t seed, double scale,
             std::vector<int64_t> strides) {
  return random(Kind::F32, std::move(shape), seed, scale, std::move(strides));
}

Array randomBf16(std::vector<int64_t> shape, uint64_t seed, double scale,
                 std::vector<int64_t> strides) {
  return random(Kind::BF16, std::move(shape), seed, scale, std::move(strides));
}

Array scalar(double value) {
  Array array = f32({});
  array.set(0, value);
  return array;
}

Array scalar64(double value) {
  Array array = f64({});
  array.set(0, value);
  return array;
}

Array seqTable(int64_t tokens, int64_t maxDocs,
               std::vector<int64_t> documents) {
  SeqTable shape{tokens, maxDocs};
  Array table = i32({shape.words()});
  bool fits = fillSeqTable(shape, documents.data(),
                           static_cast<int64_t>(documents.size()),
                           static_cast<int32_t *>(table.pointer()));
  EXPECT_TRUE(fits);
  return table;
}

void expectNear(const Array &got, const std::vector<double> &want,
                double tolerance, const std::string &what) {
  ASSERT_EQ(got.size(), static_cast<int64_t>(want.size())) << what;
  double scale = 0;
  for (double value : want)
    scale += std::fabs(value);
  scale /= want.empty() ? 1 : static_cast<double>(want.size());
  int64_t wrong = 0;
  for (int64_t i = 0; i < got.size(); ++i) {
    double error = std::fabs(got[i] - want[i]);
    if (error <= tolerance * (std::fabs(want[i]) + scale))
      continue;
    if (++wrong <= 4)
      ADD_FAILURE() << what << "[" << i << "] is " << got[i] << ", expected "
                    << want[i] << " within " << tolerance << " relative";
  }
  if (wrong > 4)
    ADD_FAILURE() << what << ": " << wrong << " of " << got.size()
                  << " elements differ";
}

} // namespace qwen35::codegen
