#include "codegen/nvrtc/Nvrtc.h"

#include "codegen/device/DeviceSources.h"

#include "llvm/ADT/SmallVector.h"

#include <dlfcn.h>

namespace qwen35::codegen {

// Our own declarations of the functions used, as in nvrtc.h of CUDA 12 and 13.
struct Nvrtc::Api {
  using Program = void *;
  int (*version)(int *major, int *minor);
  const char *(*errorString)(int);
  int (*createProgram)(Program *, const char *source, const char *name,
                       int headers, const char *const *texts,
                       const char *const *names);
  int (*destroyProgram)(Program *);
  int (*compileProgram)(Program, int options, const char *const *);
  int (*cubinSize)(Program, size_t *);
  int (*cubin)(Program, char *);
  int (*logSize)(Program, size_t *);
  int (*log)(Program, char *);
};

namespace {

constexpr int kOldestMajor = 12;
constexpr const char *kLibraries[] = {
    "libnvrtc.so.13", "libnvrtc.so.12", "/usr/local/cuda/lib64/libnvrtc.so.13",
    "/usr/local/cuda/lib64/libnvrtc.so.12"};

template <typename Function>
bool find(void *library, const char *name, Function &function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

} // namespace

llvm::Expected<const Nvrtc &> Nvrtc::open() {
  static Api api;
  static Nvrtc compiler;
  static const std::string problem = [] {
    void *library = nullptr;
    for (const char *name : kLibraries)
      if ((library = dlopen(name, RTLD_NOW | RTLD_LOCAL)))
        break;
    if (!library)
      return std::string(
          "compiling for a GPU needs NVRTC of CUDA 12 or 13, but neither "
          "libnvrtc.so.13 nor libnvrtc.so.12 was found by the loader or in "
          "/usr/local/cuda/lib64: install the CUDA toolkit's nvrtc package or "
          "add its folder to LD_LIBRARY_PATH");
    if (!find(library, "nvrtcVersion", api.version) ||
        !find(library, "nvrtcGetErrorString", api.errorString) ||
        !find(library, "nvrtcCreateProgram", api.createProgram) ||
        !find(library, "nvrtcDestroyProgram", api.destroyProgram) ||
        !find(library, "nvrtcCompileProgram", api.compileProgram) ||
        !find(library, "nvrtcGetCUBINSize", api.cubinSize) ||
        !find(library, "nvrtcGetCUBIN", api.cubin) ||
        !find(library, "nvrtcGetProgramLogSize", api.logSize) ||
        !find(library, "nvrtcGetProgramLog", api.log))
      return std::string("the NVRTC library lacks a function: ") + dlerror();
    int major = 0, minor = 0;
    api.version(&major, &minor);
    compiler.versionText =
        std::to_string(major) + "." + std::to_string(minor);
    if (major < kOldestMajor)
      return "NVRTC is version " + compiler.versionText +
             ", expected 12 or newer";
    compiler.api = &api;
    return std::string();
  }();
  if (!problem.empty())
    return llvm::createStringError(problem);
  return compiler;
}

llvm::Expected<std::string> Nvrtc::compile(const std::string &source,
                                           const std::string &name,
                                           llvm::StringRef arch) const {
  llvm::SmallVector<const char *> texts, names;
  std::vector<DeviceSource> headers = deviceSources();
  for (const DeviceSource &header : headers) {
    texts.push_back(header.text);
    names.push_back(header.name);
  }
  Api::Program program;
  std::string file = name + ".cu";
  int code = api->createProgram(&program, source.c_str(), file.c_str(),
                                static_cast<int>(texts.size()), texts.data(),
                                names.data());
  if (code != 0)
    return llvm::createStringError("NVRTC cannot start on " + name + ": " +
                                   api->errorString(code));
  std::string architecture = "--gpu-architecture=" + arch.str();
  const char *options[] = {architecture.c_str(), "--std=c++17", "-default-device"};
  code = api->compileProgram(program, std::size(options), options);
  std::string result;
  size_t size = 0;
  if (code == 0) {
    api->cubinSize(program, &size);
    result.resize(size);
    code = api->cubin(program, result.data());
  }
  std::string log;
  if (code != 0) {
    api->logSize(program, &size);
    log.resize(size);
    api->log(program, log.data());
    while (!log.empty() && (log.back() == '\0' || log.back() == '\n'))
      log.pop_back();
  }
  api->destroyProgram(&program);
  if (code != 0)
    return llvm::createStringError("NVRTC " + versionText + " cannot compile " +
                                   name + " for " + arch.str() + " (" +
                                   api->errorString(code) + "):\n" + log);
  return result;
}

} // namespace qwen35::codegen
