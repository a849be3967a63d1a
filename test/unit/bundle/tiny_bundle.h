#ifndef QWEN35_TEST_UNIT_BUNDLE_TINY_BUNDLE_H
#define QWEN35_TEST_UNIT_BUNDLE_TINY_BUNDLE_H

#include "absl/types/span.h"
#include "runtime/schema/bundle.pb.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace qwen35 {

/// A complete bundle that trains one parameter, w[256], to predict each token's
/// label from its id: loss = sum over tokens of (w[id] - label)^2 / 2 *
/// inv_count, plain gradient descent. It has every part of a real one, made
/// without the compiler: four programs, an act arena whose `partial` reuses the
/// bytes of `error`, and kernels compiled from tiny_kernels.c.
bundle::Bundle tinyMessage();

/// Gives the weight of the tiny bundle a working copy `w.work`: tiny_update
/// writes it too, and program refresh is a launch of `tiny_refresh`, for which
/// there is no code.
void addWorkingCopy(bundle::Bundle &message);

/// The bytes of a file in the folder of the compiled kernels:
/// "tiny_kernels.so", and, each with one thing that is refused,
/// "tiny_import.so", "tiny_thread_local.so", "tiny_constructor.so",
/// "tiny_ifunc.so", "tiny_needed.so", "tiny_execstack.so" and "tiny_program".
std::vector<uint8_t> tinyKernels(const std::string &file = "tiny_kernels.so");

/// The bundle file, after `change` has been applied to the message.
std::string
tinyBundle(const std::function<void(bundle::Bundle &)> &change = nullptr);

/// The same with a plan for the GPU of test/support/fake_cuda, alone or as an
/// alternative of the CPU's. `change` sees the message with the GPU's plan only.
enum class TinyPlans { Gpu, CpuAndGpu };
std::string
tinyGpuBundle(TinyPlans plans,
              const std::function<void(bundle::Bundle &)> &change = nullptr);
/// Its message, with blob `blob` for the code.
bundle::Bundle tinyGpuMessage(uint32_t blob = 0);

/// The index of a buffer, program or kernel by name; aborts if there is none.
uint32_t bufferIndex(const bundle::Bundle &message, const std::string &name);
bundle::Program *program(bundle::Bundle &message, const std::string &name);
/// The first launch of `kernel` in `program`.
bundle::Launch *launch(bundle::Bundle &message, const std::string &program,
                       const std::string &kernel);

inline absl::Span<const uint8_t> asBytes(const std::string &text) {
  return absl::MakeConstSpan(reinterpret_cast<const uint8_t *>(text.data()),
                             text.size());
}

/// A file with its message replaced and the digest made right again, so that
/// what follows the digest is put to the test.
std::string withMessage(const std::string &file, const std::string &message);
/// The message's bytes of a bundle file.
std::string messageOf(const std::string &file);

} // namespace qwen35

#endif // QWEN35_TEST_UNIT_BUNDLE_TINY_BUNDLE_H
