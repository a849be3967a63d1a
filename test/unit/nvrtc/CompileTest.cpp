// From a kernel's signature to a cubin, without a GPU. Where NVRTC is not
// installed only its absence can be tested.

#include "codegen/cuda/Compile.h"
#include "codegen/cuda/Target.h"
#include "codegen/nvrtc/Nvrtc.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

#include <gtest/gtest.h>

using namespace mlir;

namespace qwen35::codegen::cuda {
namespace {

#define NEEDS_NVRTC()                                                          \
  do {                                                                         \
    llvm::Expected<const Nvrtc &> compiler = Nvrtc::open();                    \
    if (!compiler) {                                                           \
      std::string why = llvm::toString(compiler.takeError());                  \
      EXPECT_NE(why.find("install the CUDA toolkit"), std::string::npos);      \
      GTEST_SKIP() << why;                                                     \
    }                                                                          \
  } while (false)

class CompileTest : public ::testing::Test {
protected:
  CompileTest() { registerAllKernels(); }

  /// A cast of `elements` from f32 to bf16.
  NamedKernel castKernel(int64_t elements) {
    Builder b(&context);
    NamedKernel kernel{"cast_" + std::to_string(elements), {}};
    kernel.spec.op = "cast";
    kernel.spec.attrs = b.getDictionaryAttr({});
    kernel.spec.inputs = {MemRefType::get({elements}, b.getF32Type())};
    kernel.spec.outputs = {MemRefType::get({elements}, b.getBF16Type())};
    return kernel;
  }

  std::vector<CompiledStage> stages(ArrayRef<NamedKernel> kernels,
                                    const GpuTarget &target) {
    auto planned = planStages(kernels, target, [&] {
      return emitError(UnknownLoc::get(&context));
    });
    EXPECT_TRUE(succeeded(planned));
    return succeeded(planned) ? *planned : std::vector<CompiledStage>();
  }

  MLIRContext context;
};

TEST_F(CompileTest, EveryTargetTakesAKernelOfTheDeviceHeaders) {
  NEEDS_NVRTC();
  for (const char *name : {"sm_80", "sm_90a", "sm_100a", "sm_120"}) {
    GpuTarget target = *gpuTarget(name);
    std::vector<CompiledStage> work = stages({castKernel(1000)}, target);
    auto done = compileStages(work, target, {});
    ASSERT_TRUE(static_cast<bool>(done)) << llvm::toString(done.takeError());
    EXPECT_EQ(done->compiled, 1u);
    EXPECT_EQ(work[0].image.substr(1, 3), "ELF") << name;
  }
}

TEST_F(CompileTest, ThreadsAndCacheChangeNoByte) {
  NEEDS_NVRTC();
  SmallString<128> folder;
  ASSERT_FALSE(llvm::sys::fs::createUniqueDirectory("qwen35-cache", folder));
  auto remove =
      llvm::make_scope_exit([&] { llvm::sys::fs::remove_directories(folder); });
  GpuTarget target = *gpuTarget("sm_90a");
  SmallVector<NamedKernel> kernels;
  for (int64_t elements : {1, 100, 5000})
    kernels.push_back(castKernel(elements));
  auto images = [&](unsigned threads, std::string cache, size_t fromCache) {
    std::vector<CompiledStage> work = stages(kernels, target);
    CompileOptions options;
    options.threads = threads;
    options.cacheFolder = cache;
    auto done = compileStages(work, target, options);
    EXPECT_TRUE(static_cast<bool>(done));
    if (!done) {
      llvm::consumeError(done.takeError());
      return std::vector<std::string>();
    }
    EXPECT_EQ(done->fromCache, fromCache);
    std::vector<std::string> result;
    for (const CompiledStage &stage : work)
      result.push_back(stage.image);
    return result;
  };
  std::vector<std::string> first = images(1, "", 0);
  EXPECT_EQ(images(3, folder.str().str(), 0), first);
  EXPECT_EQ(images(2, folder.str().str(), 3), first);

  // A damaged file is compiled anew, not believed.
  std::error_code error;
  llvm::sys::fs::directory_iterator at(folder, error);
  ASSERT_FALSE(error);
  llvm::raw_fd_ostream(at->path(), error) << "half a kernel";
  EXPECT_EQ(images(2, folder.str().str(), 2), first);
}

TEST_F(CompileTest, TheLogOfAKernelThatDoesNotCompileNamesIt) {
  NEEDS_NVRTC();
  GpuTarget target = *gpuTarget("sm_90a");
  std::vector<CompiledStage> work = stages({castKernel(8)}, target);
  work[0].source = "#include \"q35/base.cuh\"\nint x = y;\n";
  auto done = compileStages(work, target, {});
  ASSERT_FALSE(static_cast<bool>(done));
  std::string message = llvm::toString(done.takeError());
  EXPECT_NE(message.find("cannot compile cast_8 for sm_90a"), std::string::npos)
      << message;
  EXPECT_NE(message.find("\"y\" is undefined"), std::string::npos) << message;
}

TEST_F(CompileTest, UnknownTargetsHaveNoName) {
  EXPECT_FALSE(gpuTarget("sm_70"));
  EXPECT_FALSE(gpuTarget("cpu"));
}

} // namespace
} // namespace qwen35::codegen::cuda
