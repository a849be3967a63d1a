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
#include "test/unit/support/Array.h"

#include "mlir/IR/MLIRContext.h"
#include "llvm/ADT/STLFunctionalExtras.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace qwen35::codegen::cpu {

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
