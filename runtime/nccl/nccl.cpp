#include "runtime/nccl/nccl.h"

#include "absl/strings/str_cat.h"
#include "runtime/bundle/status_macros.h"

#include <cstdlib>
#include <dlfcn.h>
#include <memory>
#include <mutex>

namespace qwen35::nccl {
namespace {

constexpr int kOldest = 21800; // ncclCommSplit
constexpr char kName[] = "libnccl.so.2";
constexpr char kNeeds[] =
    "several GPUs need NCCL 2.18 or newer (libnccl.so.2; add its folder to "
    "LD_LIBRARY_PATH or name it in QWEN35_LIBNCCL)";

template <typename Function>
void resolve(void *library, const char *symbol, Function &slot,
             std::string &missing) {
  void *found = ::dlsym(library, symbol);
  slot = reinterpret_cast<Function>(found);
  if (!found)
    absl::StrAppend(&missing, missing.empty() ? "" : ", ", symbol);
}

absl::StatusOr<std::unique_ptr<Nccl>> open(const std::string &path) {
  auto nccl = std::make_unique<Nccl>();
  nccl->path = path;
  void *library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char *reason = ::dlerror();
    return absl::UnavailableError(
        absl::StrCat("cannot load ", path, " (",
                     reason ? reason : "no reason given", "); ", kNeeds));
  }
  std::string missing;
#define X(member, symbol, parameters)                                          \
  resolve(library, symbol, nccl->member, missing);
  QWEN35_NCCL_FUNCTIONS(X)
#undef X
  resolve(library, "ncclGetErrorString", nccl->getErrorString, missing);
  resolve(library, "ncclGetLastError", nccl->getLastError, missing);
  // An old library lacks new functions: its version is the better message.
  if (nccl->getVersion && nccl->getVersion(&nccl->version) == kSuccess &&
      nccl->version < kOldest)
    return absl::UnavailableError(absl::StrCat(
        path, " is NCCL ", versionText(nccl->version), "; ", kNeeds));
  if (!missing.empty())
    return absl::UnavailableError(
        absl::StrCat(path, " has no ", missing, "; ", kNeeds));
  return nccl;
}

} // namespace

std::string versionText(int version) {
  // Two digits for minor and patch since 2.9, one for the minor before.
  int unit = version < 10000 ? 1000 : 10000;
  return absl::StrCat(version / unit, ".", version % unit / 100, ".",
                      version % 100);
}

absl::StatusOr<const Nccl *> Nccl::load() {
  static std::mutex mutex;
  static absl::StatusOr<std::unique_ptr<Nccl>> *loaded = nullptr;
  std::lock_guard lock(mutex);
  if (!loaded) {
    const char *named = std::getenv("QWEN35_LIBNCCL");
    loaded = new absl::StatusOr<std::unique_ptr<Nccl>>(
        open(named && *named ? named : kName));
  }
  QWEN35_RETURN_IF_ERROR(loaded->status());
  return (*loaded)->get();
}

absl::Status Nccl::check(Result result, const std::string &call,
                         Comm comm) const {
  if (result == kSuccess)
    return absl::OkStatus();
  const char *text = getErrorString(result), *last = getLastError(comm);
  std::string message = absl::StrCat(call, ": ", text ? text : "unknown error",
                                     " (", result, ")");
  if (last && *last)
    absl::StrAppend(&message, ": ", last);
  return absl::InternalError(message);
}

} // namespace qwen35::nccl
