#ifndef QWEN35_TEST_GPU_KIT_H
#define QWEN35_TEST_GPU_KIT_H

// GPU tests run where nothing can be compiled. So they run from a kit: a folder
// with the tools, the golden models and every bundle that a test names, made by
// `qwen35_gpu_test --prepare KIT --target sm_90a` on a machine with the
// compiler, and used by `qwen35_gpu_test --kit KIT` on one with a GPU.
//
//   kit/bin/            qwen35-run, qwen35-verify, qwen35-data
//   kit/golden/MODEL/   as test/golden
//   kit/bundles/NAME    by what they were compiled from

#include "test/support/Command.h"

#include <string>
#include <vector>

namespace qwen35::test {

/// A bundle that tests of this binary use. Define it at namespace scope: that
/// is how --prepare knows of it.
class KitBundle {
public:
  /// `model`: a preset, a golden model or a file of test/gpu/models.
  /// `arguments` go to qwen35c; TARGET in them stands for the GPU target of the kit, which is also what is
  /// compiled for when they do not say --target.
  KitBundle(std::string model, std::string arguments);
  KitBundle(const KitBundle &) = delete; // it is known by its address

  /// Its file in the kit.
  std::string path() const;

  static const std::vector<const KitBundle *> &all();

  std::string model, arguments;
};

namespace kit {

std::string root();
std::string tool(const std::string &name);
std::string golden(const std::string &model);
/// The kit is for kernels compiled for the host: small and slow.
bool emulated();

} // namespace kit
} // namespace qwen35::test

#endif // QWEN35_TEST_GPU_KIT_H
