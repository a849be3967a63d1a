#include "codegen/cuda/Compile.h"

#include "codegen/device/DeviceSources.h"
#include "codegen/nvrtc/Nvrtc.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/SHA256.h"
#include "llvm/Support/raw_ostream.h"

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <thread>

using namespace mlir;

namespace qwen35::codegen::cuda {

namespace {

/// Folder of compiled kernels, each in a file named by what made it. A file is
/// written under another name and renamed, so readers see whole ones only; its
/// own digest at the end tells a damaged one.
class ImageCache {
public:
  ImageCache(StringRef folder, StringRef compiler, StringRef arch)
      : folder(folder) {
    // What the unit includes is part of what it is.
    common.update("qwen35 kernel image 1\n");
    common.update(compiler);
    common.update("\n");
    common.update(arch);
    for (const DeviceSource &header : deviceSources()) {
      common.update(header.name);
      common.update(header.text);
    }
    if (!folder.empty() && llvm::sys::fs::create_directories(folder))
      this->folder.clear();
  }

  std::string pathOf(const std::string &source) const {
    if (folder.empty())
      return "";
    llvm::SHA256 hash = common;
    hash.update(source);
    SmallString<256> path(folder);
    llvm::sys::path::append(
        path, llvm::toHex(hash.final(), /*LowerCase=*/true) + ".cubin");
    return path.str().str();
  }

  static std::optional<std::string> read(const std::string &path) {
    if (path.empty())
      return std::nullopt;
    auto file = llvm::MemoryBuffer::getFile(path, /*IsText=*/false,
                                            /*RequiresNullTerminator=*/false);
    if (!file || (*file)->getBufferSize() < kDigest)
      return std::nullopt;
    StringRef bytes = (*file)->getBuffer();
    StringRef image = bytes.drop_back(kDigest);
    if (bytes.take_back(kDigest) != digestOf(image))
      return std::nullopt;
    return image.str();
  }

  /// A cache that cannot be written costs time, not correctness.
  static void write(const std::string &path, StringRef image) {
    if (path.empty())
      return;
    SmallString<256> temporary;
    int descriptor;
    if (llvm::sys::fs::createUniqueFile(path + ".%%%%%%%%", descriptor,
                                        temporary))
      return;
    llvm::raw_fd_ostream file(descriptor, /*shouldClose=*/true);
    file << image << digestOf(image);
    file.close();
    bool failed = file.has_error();
    file.clear_error();
    if (failed || llvm::sys::fs::rename(temporary, path))
      (void)llvm::sys::fs::remove(temporary);
  }

private:
  static constexpr size_t kDigest = 32;
  static std::string digestOf(StringRef image) {
    auto digest = llvm::SHA256::hash(llvm::arrayRefFromStringRef(image));
    return std::string(digest.begin(), digest.end());
  }

  std::string folder;
  llvm::SHA256 common;
};

} // namespace

llvm::FailureOr<std::vector<CompiledStage>>
planStages(ArrayRef<NamedKernel> kernels, const GpuTarget &target,
           EmitError emitError) {
  std::vector<CompiledStage> stages;
  for (const NamedKernel &kernel : kernels) {
    const KernelFamily *family = lookupKernel(kernel.spec.op);
    if (!family) {
      emitError() << "the " << target.name << " target has no kernel \""
                  << kernel.spec.op << "\"";
      return failure();
    }
    FailureOr<KernelPlan> plan = family->plan(kernel.spec, target, emitError);
    if (failed(plan))
      return failure();
    for (auto [i, stage] : llvm::enumerate(plan->stages)) {
      CompiledStage out;
      out.symbol = kernel.symbol;
      if (i > 0)
        out.symbol += "_s" + std::to_string(i);
      out.stage = stage;
      out.cost = costOf(kernel.spec, *plan, i);
      if (std::holds_alternative<DeviceStage>(stage))
        out.source = printSource(out.symbol, kernel.spec, *plan, i);
      stages.push_back(std::move(out));
    }
  }
  return stages;
}

llvm::Expected<CompileStatistics>
compileStages(std::vector<CompiledStage> &stages, const GpuTarget &target,
              const CompileOptions &options) {
  llvm::Expected<const Nvrtc &> compiler = Nvrtc::open();
  if (!compiler)
    return compiler.takeError();
  ImageCache cache(options.cacheFolder, compiler->version(), target.name);
  SmallVector<size_t> work;
  for (auto [i, stage] : llvm::enumerate(stages))
    if (!stage.source.empty())
      work.push_back(i);

  CompileStatistics statistics;
  std::mutex lock;
  std::atomic<size_t> next{0};
  std::atomic<bool> stop{false};
  size_t done = 0, failedAt = work.size();
  std::string problem;
  auto worker = [&] {
    for (size_t at = next++; at < work.size() && !stop; at = next++) {
      CompiledStage &stage = stages[work[at]];
      std::string path = cache.pathOf(stage.source);
      std::optional<std::string> image = ImageCache::read(path);
      bool cached = image.has_value();
      std::string message;
      if (!cached) {
        llvm::Expected<std::string> compiled =
            compiler->compile(stage.source, stage.symbol, target.name);
        if (compiled) {
          image = std::move(*compiled);
          ImageCache::write(path, *image);
        } else {
          message = llvm::toString(compiled.takeError());
        }
      }
      std::lock_guard guard(lock);
      if (!image) {
        stop = true;
        if (at < failedAt) {
          failedAt = at;
          problem = message;
        }
        return;
      }
      stage.image = std::move(*image);
      ++(cached ? statistics.fromCache : statistics.compiled);
      ++done;
      if (options.progress)
        options.progress(done, work.size());
    }
  };
  std::vector<std::thread> threads;
  for (unsigned t = 1; t < std::max(1u, options.threads); ++t)
    threads.emplace_back(worker);
  worker();
  for (std::thread &thread : threads)
    thread.join();
  if (!problem.empty())
    return llvm::createStringError(problem);
  return statistics;
}

std::string defaultCacheFolder() {
  if (const char *folder = std::getenv("QWEN35_CACHE_DIR"))
    return folder;
  if (const char *folder = std::getenv("XDG_CACHE_HOME"))
    return std::string(folder) + "/qwen35";
  if (const char *home = std::getenv("HOME"))
    return std::string(home) + "/.cache/qwen35";
  return "";
}

} // namespace qwen35::codegen::cuda
