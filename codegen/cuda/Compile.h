#ifndef QWEN35_CODEGEN_CUDA_COMPILE_H
#define QWEN35_CODEGEN_CUDA_COMPILE_H

#include "codegen/cuda/Cost.h"
#include "codegen/cuda/Kernel.h"

#include "llvm/Support/Error.h"

#include <vector>

namespace qwen35::codegen::cuda {

struct CompileOptions {
  unsigned threads = 2; ///< Kernels compiled at a time.
  /// Folder of compiled kernels by content; empty: none is kept.
  std::string cacheFolder;
  /// Called after each kernel, from one thread at a time.
  llvm::function_ref<void(size_t done, size_t total)> progress;
};

/// One kernel of a plan. Stage 0 is the symbol itself, stage s > 0 `symbol_s<s>`.
struct NamedKernel {
  std::string symbol;
  KernelSpec spec;
};

/// A stage as the bundle needs it.
struct CompiledStage {
  std::string symbol;
  Stage stage;
  std::string source; ///< Of a device stage.
  std::string image;  ///< Of a device stage: the cubin.
  StageCost cost;
};

struct CompileStatistics {
  size_t compiled = 0, fromCache = 0;
};

/// The stages of all kernels, in order, with their sources.
/// Errors  Unknown op or a spec its family refuses, once, through `emitError`.
llvm::FailureOr<std::vector<CompiledStage>>
planStages(llvm::ArrayRef<NamedKernel> kernels, const GpuTarget &target,
           EmitError emitError);

/// Fills in the images. Equal stages and target give equal bytes, whatever the
/// number of threads and the state of the cache.
/// Errors  No NVRTC, or its log for the first kernel that does not compile.
llvm::Expected<CompileStatistics>
compileStages(std::vector<CompiledStage> &stages, const GpuTarget &target,
              const CompileOptions &options);

/// $QWEN35_CACHE_DIR, else $XDG_CACHE_HOME/qwen35, else ~/.cache/qwen35; empty
/// if none of the variables is set.
std::string defaultCacheFolder();

} // namespace qwen35::codegen::cuda

#endif // QWEN35_CODEGEN_CUDA_COMPILE_H
