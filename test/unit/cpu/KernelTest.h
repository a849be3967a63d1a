#ifndef QWEN35_TEST_UNIT_CPU_KERNELTEST_H
#define QWEN35_TEST_UNIT_CPU_KERNELTEST_H

// Compiles a kernel, runs it as the runtime does, and hands the results to a
// check:
//
//   TEST_F(KernelTest, DoublesItsInput) {
//     run("scale", "{factor = 2.0}", {random({3, 5}, 1)}, {f32({3, 5})},
//         [&](const Arrays &in, const Arrays &out) { EXPECT_...; });
//   }
//
// Every run is done for AVX2 and, where the machine has it, AVX-512; with tasks
// in order, reversed, and with outputs placed on the inputs they may alias: all
// must agree bit for bit. Writes outside the outputs fail the test.

#include "codegen/cpu/Compile.h"

#include "mlir/IR/MLIRContext.h"
#include "llvm/ADT/STLFunctionalExtras.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace qwen35::codegen::cpu {

enum class Kind { F32, F64, I32 };

/// A tensor in memory with a frame of canaries around it.
class Array {
public:
  static constexpr int64_t kFrame = 64; ///< Elements before and after.

  Array(Kind kind, std::vector<int64_t> shape,
        std::vector<int64_t> strides = {});

  int64_t size() const; ///< Elements of the shape.
  const std::vector<int64_t> &shape() const { return dims; }
  mlir::MemRefType type(mlir::MLIRContext *context) const;
  void *pointer();

  /// Element by its row-major number, whatever the strides.
  double get(int64_t number) const;
  void set(int64_t number, double value);
  double operator[](int64_t number) const { return get(number); }

  /// Same bits in all elements of the shape.
  bool sameBits(const Array &other) const;
  /// Whether everything outside the shape still holds the canary.
  bool frameIntact() const;
  void fillCanary(); ///< Elements as well.

private:
  int64_t place(int64_t number) const;
  Kind kind;
  std::vector<int64_t> dims, steps;
  std::vector<unsigned char> bytes;
  friend class KernelTest;
};

using Arrays = std::vector<Array>;

Array f32(std::vector<int64_t> shape, std::vector<int64_t> strides = {});
Array f64(std::vector<int64_t> shape);
Array i32(std::vector<int64_t> shape);
/// f32, uniform in [-scale, scale), the same on every machine.
Array random(std::vector<int64_t> shape, uint64_t seed, double scale = 1,
             std::vector<int64_t> strides = {});
Array scalar(double value);   ///< f32[]
Array scalar64(double value); ///< f64[]
/// The document table of rows with these documents.
Array seqTable(int64_t tokens, int64_t maxDocs, std::vector<int64_t> documents);

/// Expects |got - want| <= tolerance * (|want| + scale of want) per element.
void expectNear(const Array &got, const std::vector<double> &want,
                double tolerance, const std::string &what);

/// Functions of a shared object held in memory.
class KernelLibrary {
public:
  using Function = void (*)(void *const *, int64_t);
  explicit KernelLibrary(const std::string &bytes);
  ~KernelLibrary();
  KernelLibrary(const KernelLibrary &) = delete;
  Function find(const std::string &symbol) const; ///< Null if missing.
private:
  void *handle = nullptr;
};

class KernelTest : public ::testing::Test {
protected:
  KernelTest();

  using Check = llvm::function_ref<void(const Arrays &in, const Arrays &out)>;
  /// `attrs` as MLIR text: "{eps = 1.0e-6, inverse = true}".
  void run(const std::string &op, const std::string &attrs, Arrays inputs,
           Arrays outputs, Check check);
  /// Expects `plan` to refuse with exactly this message.
  void expectRefused(const std::string &op, const std::string &attrs,
                     const Arrays &inputs, const Arrays &outputs,
                     const std::string &message);

  KernelSpec spec(const std::string &op, const std::string &attrs,
                  const Arrays &inputs, const Arrays &outputs);
  /// Fails the test and returns "" on an error.
  std::string compile(llvm::ArrayRef<NamedKernel> kernels,
                      const std::string &cpu, unsigned threads = 2);
  static std::vector<std::string> testedCpus();

  mlir::MLIRContext context;
};

} // namespace qwen35::codegen::cpu

#endif // QWEN35_TEST_UNIT_CPU_KERNELTEST_H
