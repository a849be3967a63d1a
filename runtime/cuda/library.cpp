#include "runtime/cuda/library.h"

#include "absl/strings/str_cat.h"
#include "runtime/bundle/status_macros.h"

#include <cstdlib>
#include <dlfcn.h>
#include <map>
#include <memory>
#include <mutex>

namespace qwen35::cuda {
namespace {

constexpr int kMinDriver = 13000;
constexpr char kNeeds[] =
    "a GPU bundle needs the NVIDIA driver 580 or newer (CUDA 13.0)";
constexpr char kNeedsBlas[] =
    "this bundle's matrix products need cuBLASLt of CUDA 13 "
    "(libcublasLt.so.13; add its folder to LD_LIBRARY_PATH or name it in "
    "QWEN35_LIBCUBLASLT)";

std::string pathOf(const char *variable, const char *name) {
  const char *value = std::getenv(variable);
  return value && *value ? value : name;
}

/// Fills `slot`, or adds the symbol to `missing`.
template <typename Function>
void resolve(void *library, const char *symbol, Function &slot,
             std::string &missing) {
  void *found = ::dlsym(library, symbol);
  slot = reinterpret_cast<Function>(found);
  if (!found)
    absl::StrAppend(&missing, missing.empty() ? "" : ", ", symbol);
}

absl::StatusOr<void *> openLibrary(const std::string &path,
                                   absl::string_view needs) {
  void *library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library)
    return library;
  const char *reason = ::dlerror();
  return absl::UnavailableError(
      absl::StrCat("cannot load ", path, " (",
                   reason ? reason : "no reason given", "); ", needs));
}

absl::Status open(const std::string &path, Driver &driver) {
  driver.path = path;
  absl::StatusOr<void *> library = openLibrary(path, kNeeds);
  QWEN35_RETURN_IF_ERROR(library.status());
  std::string missing;
#define X(member, symbol, parameters)                                          \
  resolve(*library, symbol, driver.member, missing);
  QWEN35_CUDA_DRIVER_FUNCTIONS(X)
#undef X
  // An old driver lacks new functions: its version is the better message.
  if (driver.driverGetVersion &&
      driver.driverGetVersion(&driver.version) == kSuccess &&
      driver.version < kMinDriver)
    return absl::UnavailableError(
        absl::StrCat(path, " is a driver for CUDA ", driver.version / 1000, ".",
                     driver.version % 1000 / 10, "; ", kNeeds));
  if (!missing.empty())
    return absl::UnavailableError(
        absl::StrCat(path, " has no ", missing, "; ", kNeeds));
  if (Result result = driver.init(0); result != kSuccess) {
    absl::Status status = driver.error(result, "cuInit");
    return absl::UnavailableError(absl::StrCat(
        status.message(), "; is there a GPU, and may this process use it?"));
  }
  return absl::OkStatus();
}

absl::Status open(const std::string &path, BlasLt &blas) {
  blas.path = path;
  absl::StatusOr<void *> library = openLibrary(path, kNeedsBlas);
  if (!library.ok() && path == "libcublasLt.so.13") {
    // Where the toolkit puts it, for machines whose loader does not know.
    for (const char *folder :
         {"/usr/local/cuda/lib64/", "/usr/local/cuda-13/lib64/",
          "/usr/lib/x86_64-linux-gnu/"})
      if (!library.ok())
        if (absl::StatusOr<void *> other =
                openLibrary(absl::StrCat(folder, path), kNeedsBlas);
            other.ok())
          library = other;
  }
  QWEN35_RETURN_IF_ERROR(library.status());
  std::string missing;
#define X(member, symbol, parameters)                                          \
  resolve(*library, symbol, blas.member, missing);
  QWEN35_CUBLASLT_FUNCTIONS(X)
#undef X
  resolve(*library, "cublasLtGetVersion", blas.getVersion, missing);
  resolve(*library, "cublasLtGetStatusString", blas.getStatusString, missing);
  if (!missing.empty())
    return absl::UnavailableError(
        absl::StrCat(path, " has no ", missing, "; ", kNeedsBlas));
  return absl::OkStatus();
}

/// Each path is tried once; failures are kept too, so that they cost nothing
/// the second time and read the same.
template <typename Library>
absl::StatusOr<const Library *> loadOnce(const std::string &path) {
  struct Entry {
    std::unique_ptr<Library> library = std::make_unique<Library>();
    absl::Status status;
  };
  static std::mutex mutex;
  static std::map<std::string, Entry> &loaded =
      *new std::map<std::string, Entry>;
  std::lock_guard lock(mutex);
  auto [it, fresh] = loaded.try_emplace(path);
  if (fresh)
    it->second.status = open(path, *it->second.library);
  QWEN35_RETURN_IF_ERROR(it->second.status);
  return it->second.library.get();
}

} // namespace

absl::StatusOr<const Driver *> Driver::load() {
  return loadOnce<Driver>(pathOf("QWEN35_LIBCUDA", "libcuda.so.1"));
}

absl::Status Driver::error(Result result, absl::string_view call) const {
  const char *name = nullptr, *text = nullptr;
  if (getErrorName(result, &name) != kSuccess || !name)
    name = "unknown error";
  if (getErrorString(result, &text) != kSuccess || !text)
    text = "no description";
  std::string message =
      absl::StrCat(call, ": ", text, " (", name, ", ", result, ")");
  return result == kErrorOutOfMemory ? absl::ResourceExhaustedError(message)
                                     : absl::InternalError(message);
}

absl::StatusOr<const BlasLt *> BlasLt::load() {
  return loadOnce<BlasLt>(pathOf("QWEN35_LIBCUBLASLT", "libcublasLt.so.13"));
}

absl::Status BlasLt::error(BlasStatus status, absl::string_view call) const {
  const char *text = getStatusString(status);
  return absl::InternalError(absl::StrCat(
      call, ": ", text ? text : "no description", " (", status, ")"));
}

} // namespace qwen35::cuda
