// Bundles for GPUs that nothing has been run on yet: all their kernels compile,
// without a GPU, and what is written is a whole bundle. (For sm_80, as little
// run, test/unit/cuda compiles kernel by kernel.)

#include "test/unit/e2e/E2e.h"

#include "gtest/gtest.h"

namespace qwen35 {
namespace {

using namespace test;

struct Target {
  const char *model, *arch;
};

class Targets : public testing::TestWithParam<Target> {};

TEST_P(Targets, KernelsCompileWithoutAGpu) {
  const Target &target = GetParam();
  TempFolder folder;
  std::string bundle = folder / "bundle.q35";
  // A cache of its own: kernels are compiled here and now.
  CommandResult compiled =
      run("QWEN35_CACHE_DIR=" + (folder / "cache") + " " + tool("qwen35c") +
          " " + target.model + " --target " + target.arch +
          " --tokens 128 --max-docs 4 -q -o " + bundle);
  if (compiled.output.find("install the CUDA toolkit") != std::string::npos)
    GTEST_SKIP() << compiled.output;
  ASSERT_TRUE(compiled.ok()) << compiled.output;
  std::string verified = quiet(tool("qwen35-verify") + " " + bundle);
  EXPECT_NE(verified.find("target    cuda"), std::string::npos) << verified;
}

INSTANTIATE_TEST_SUITE_P(NeverRun, Targets,
                         testing::Values(Target{"debug-moe", "sm_100a"},
                                         Target{"debug", "sm_120"}),
                         [](const auto &info) {
                           return std::string(info.param.arch);
                         });

} // namespace
} // namespace qwen35
