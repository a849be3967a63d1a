#ifndef QWEN35_TEST_UNIT_SUPPORT_ARRAY_H
#define QWEN35_TEST_UNIT_SUPPORT_ARRAY_H

// Tensors for tests of kernels, whatever the target.

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/MLIRContext.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace qwen35::codegen {

enum class Kind { F32, BF16, F64, I32 };

int64_t bytesOf(Kind kind);

/// A tensor in memory with a frame of canaries around it.
class Array {
public:
  static constexpr int64_t kFrame = 64; ///< Elements before and after.

  Array(Kind kind, std::vector<int64_t> shape,
        std::vector<int64_t> strides = {});

  int64_t size() const; ///< Elements of the shape.
  Kind kind() const { return element; }
  const std::vector<int64_t> &shape() const { return dims; }
  const std::vector<int64_t> &strides() const { return steps; }
  mlir::MemRefType type(mlir::MLIRContext *context) const;
  void *pointer();
  /// Bytes from the first element of the shape to the last.
  int64_t extent() const;
  /// What divides every stride and the last dimension, up to 8 (elements):
  /// where views of this layout may start.
  int64_t granularity() const;
  bool isView() const; ///< Has strides of its own.

  /// Element by its row-major number, whatever the strides.
  double get(int64_t number) const;
  void set(int64_t number, double value);
  double operator[](int64_t number) const { return get(number); }

  /// The bytes of all elements in row-major order.
  std::string dense() const;

  /// Same bits in all elements of the shape.
  bool sameBits(const Array &other) const;
  /// The number of the first element whose bits differ, or -1.
  int64_t firstDifference(const Array &other) const;
  /// Whether everything outside the shape still holds the canary.
  bool frameIntact() const;
  void fillCanary(); ///< Elements as well.
  /// Fills as above with another canary, or all but the elements.
  void fillCanary(uint16_t pattern);
  void frame(uint16_t pattern);

  /// Where `random` has its elements from. What has been set since then is not
  /// random.
  struct Origin {
    uint64_t seed;
    double scale;
  };
  std::optional<Origin> origin;

private:
  int64_t place(int64_t number) const;
  void fill(uint16_t pattern, bool elements);
  Kind element;
  uint16_t canary = 0xC5C5;
  std::vector<int64_t> dims, steps;
  std::vector<unsigned char> bytes;
};

using Arrays = std::vector<Array>;

Array f32(std::vector<int64_t> shape, std::vector<int64_t> strides = {});
Array f64(std::vector<int64_t> shape);
Array i32(std::vector<int64_t> shape);
/// f32, uniform in [-scale, scale), the same on every machine.
Array random(std::vector<int64_t> shape, uint64_t seed, double scale = 1,
             std::vector<int64_t> strides = {});
Array bf16(std::vector<int64_t> shape, std::vector<int64_t> strides = {});
/// The same values as `random`, rounded to bf16.
Array randomBf16(std::vector<int64_t> shape, uint64_t seed, double scale = 1,
                 std::vector<int64_t> strides = {});
/// Of either kind, for cases that run in several: see kFloatKinds.
Array zeros(Kind kind, std::vector<int64_t> shape,
            std::vector<int64_t> strides = {});
Array random(Kind kind, std::vector<int64_t> shape, uint64_t seed,
             double scale = 1, std::vector<int64_t> strides = {});
inline constexpr Kind kFloatKinds[] = {Kind::F32, Kind::BF16};
Array scalar(double value);   ///< f32[]
Array scalar64(double value); ///< f64[]
/// The document table of rows with these documents.
Array seqTable(int64_t tokens, int64_t maxDocs, std::vector<int64_t> documents);

/// Expects |got - want| <= tolerance * (|want| + scale of want) per element.
void expectNear(const Array &got, const std::vector<double> &want,
                double tolerance, const std::string &what);

} // namespace qwen35::codegen

#endif // QWEN35_TEST_UNIT_SUPPORT_ARRAY_H
