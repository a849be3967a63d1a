// The CUDA driver without a GPU, for tests of the runtime: QWEN35_LIBCUDA names
// libfake_cuda.so, and bundles compiled for the target "emulated" run.
//
// Modules are shared objects of emulated kernels (codegen/device/q35/emulate.h)
// and kernels run on the host. What a program may not rely on does not happen:
// - Work waits in its stream until somebody waits for it, so results that are
//   read too early are not there, and pinned memory that is reused too early
//   is copied as it then is.
// - Device memory is NaN when it is allocated, fenced by guard pages, and out
//   of the host's reach but while work runs.
// - Calls that a driver refuses during a capture fail, and so do launches of
//   functions that were not loaded before.
// - Streams that join a capture run as late as its events allow, or, once
//   qwen35FakeCudaAhead(1) was called, as early.
//
// QWEN35_FAKE_CUDA changes the device, as "key=value,...":
//   name=emulated, capability=90, devices=1, multiprocessors=4, memory=8 (GiB),
//   version=13000
//   order=0     of blocks and threads: see cuda::printLauncher
//   eager=1     work is done at once
//   leaks=1     what is not given back at exit is reported on stderr, "fake
//               cuda: not given back: 2 streams"
//   slow=5      milliseconds that cuBLASLt's first algorithm takes more than its
//               second, that more than its third, ...
//   fail=cuMemAlloc_v2:3:2   the third call of that function returns 2; may be
//               given several times

#include "test/support/fake_cuda/driver.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <dlfcn.h>
#include <elf.h>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace qwen35::fake {
namespace {

struct Failure {
  std::string function;
  int call;
  cuda::Result result;
};

struct Settings {
  std::map<std::string, std::string> values;
  std::vector<Failure> failures;

  Settings() {
    const char *given = std::getenv("QWEN35_FAKE_CUDA");
    std::string text = given ? given : "";
    for (size_t at = 0; at < text.size();) {
      size_t end = std::min(text.find(',', at), text.size());
      std::string part = text.substr(at, end - at);
      size_t equals = part.find('=');
      if (equals == std::string::npos) {
        std::fprintf(stderr, "fake cuda: \"%s\" is not key=value\n",
                     part.c_str());
        std::abort();
      }
      std::string key = part.substr(0, equals), value = part.substr(equals + 1);
      if (key == "fail") {
        char function[64] = "";
        Failure failure{"", 0, 0};
        if (std::sscanf(value.c_str(), "%63[^:]:%d:%d", function, &failure.call,
                        &failure.result) != 3)
          std::abort();
        failure.function = function;
        failures.push_back(failure);
      } else {
        values[key] = value;
      }
      at = end + 1;
    }
  }

  int number(const char *key, int otherwise) const {
    auto found = values.find(key);
    return found == values.end() ? otherwise : std::atoi(found->second.c_str());
  }
  std::string text(const char *key, const char *otherwise) const {
    auto found = values.find(key);
    return found == values.end() ? otherwise : found->second;
  }
};

const Settings &settings() {
  static const Settings settings;
  return settings;
}

/// What is owned, by kind; reports what is left at exit.
struct Owned {
  std::map<std::string, int> counts;
  ~Owned() {
    if (!settings().number("leaks", 0))
      return;
    for (const auto &[what, count] : counts)
      if (count != 0)
        std::fprintf(stderr, "fake cuda: not given back: %d %s\n", count,
                     what.c_str());
  }
};

constexpr size_t kPage = 4096, kAlignment = 256;

/// Device memory that ends at a guard page, as far as alignment allows.
struct Allocation {
  unsigned char *pages;
  size_t room, bytes;
};

struct State {
  std::map<cuda::DevicePtr, Allocation> memory;
  std::map<const unsigned char *, size_t> pinned;
  std::set<cuda::Stream> streams;
  size_t used = 0;
  int running = 0; // nesting of work
  std::map<std::string, int> calls;
  Owned owned;
};

State &state() {
  settings(); // outlives it
  static State state;
  return state;
}

thread_local int captures = 0; // by this thread, going on
thread_local bool current = false;

size_t totalMemory() {
  return static_cast<size_t>(settings().number("memory", 8)) << 30;
}

/// Device memory is in reach while this lives.
class Reach {
public:
  Reach() {
    if (state().running++ == 0)
      protect(PROT_READ | PROT_WRITE);
  }
  ~Reach() {
    if (--state().running == 0)
      protect(PROT_NONE);
  }

private:
  static void protect(int how) {
    for (auto &[address, allocation] : state().memory)
      mprotect(allocation.pages + kPage, allocation.room, how);
  }
};

bool isPinned(const void *from, size_t bytes) {
  auto *at = static_cast<const unsigned char *>(from);
  auto found = state().pinned.upper_bound(at);
  if (found == state().pinned.begin())
    return false;
  --found;
  return at + bytes <= found->first + found->second;
}

double now() {
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

} // namespace

int setting(const char *key, int otherwise) {
  return settings().number(key, otherwise);
}

std::recursive_mutex &lock() {
  static std::recursive_mutex mutex;
  return mutex;
}

cuda::Result injected(const char *function) {
  int call = ++state().calls[function];
  for (const Failure &failure : settings().failures)
    if (failure.function == function && failure.call == call)
      return failure.result;
  return cuda::kSuccess;
}

bool onDevice(cuda::DevicePtr address, size_t bytes) {
  auto found = state().memory.upper_bound(address);
  if (found == state().memory.begin())
    return false;
  --found;
  return address + bytes <= found->first + found->second.bytes;
}

void own(const char *what, int count) { state().owned.counts[what] += count; }

} // namespace qwen35::fake

namespace qwen35::cuda {

struct ContextOpaque {};

/// Where a stream was when an event was recorded.
struct Mark {
  Stream stream;
  bool done = false;
  double time = 0;
};

struct Capture;

struct EventOpaque {
  std::shared_ptr<Mark> mark; // of the last record
  bool timing;
  bool captured = false; // the last record was part of a capture:
  std::weak_ptr<Capture> capture;
  size_t lane = 0, position = 0;
};

struct GraphNodeOpaque {
  int type;
  std::function<void()> work;
};

struct GraphOpaque {
  std::deque<GraphNodeOpaque> nodes;
};

struct GraphExecOpaque {
  std::deque<GraphNodeOpaque> nodes;
};

/// What the streams of a capture have been given, the first one in lane 0.
struct Capture {
  struct Entry {
    GraphNodeOpaque node;
    bool waits = false; // no node: for the other lane up to a position
    size_t lane = 0, position = 0;
  };
  std::vector<std::deque<Entry>> lanes;
  std::vector<Stream> streams; // by lane
  std::string log;             // what was recorded, a line each
  bool broken = false;

  size_t join(Stream stream) {
    lanes.emplace_back();
    streams.push_back(stream);
    return lanes.size() - 1;
  }
  void note(size_t lane, const std::string &what) {
    log += std::to_string(lane) + " " + what + "\n";
  }

  /// All nodes that lane 0 waits for, in an order that the events allow; other
  /// lanes as late as they may, or as early.
  std::deque<GraphNodeOpaque> inOrder(bool ahead) const {
    std::deque<GraphNodeOpaque> nodes;
    std::vector<size_t> done(lanes.size());
    std::function<void(size_t, size_t)> run = [&](size_t lane, size_t until) {
      while (done[lane] < until) {
        const Entry &entry = lanes[lane][done[lane]++];
        if (entry.waits)
          run(entry.lane, entry.position);
        else
          nodes.push_back(entry.node);
      }
    };
    for (size_t lane = 1; ahead && lane < lanes.size(); ++lane)
      run(lane, lanes[lane].size());
    run(0, lanes[0].size());
    return nodes;
  }
};

struct StreamOpaque {
  std::deque<std::function<void()>> work;
  std::shared_ptr<Capture> capture; // that it is part of
  size_t lane = 0;

  void runOne() {
    fake::Reach reach;
    std::function<void()> first = std::move(work.front());
    work.pop_front();
    first();
  }
  void run() {
    fake::Reach reach;
    while (!work.empty())
      runOne();
  }
};

struct ModuleOpaque {
  void *library;
  std::map<std::string, std::unique_ptr<FunctionOpaque>> functions;
};

struct FunctionOpaque {
  void (*launch)(void *const *, long long, int, long long, int);
  int arguments;
  int maxShared = 48 << 10;
  bool loaded = false;
};

namespace {

using namespace fake;
using Guard = std::lock_guard<std::recursive_mutex>;

ContextOpaque context;

StreamOpaque &streamOf(Stream stream) {
  static StreamOpaque null;
  return stream ? *stream : null;
}

void runAll() {
  for (Stream stream : state().streams)
    stream->run();
  streamOf(nullptr).run();
}

void reach(const std::shared_ptr<Mark> &mark) {
  while (!mark->done) {
    if (streamOf(mark->stream).work.empty()) {
      std::fprintf(stderr, "fake cuda: streams wait for each other\n");
      std::abort();
    }
    streamOf(mark->stream).runOne();
  }
}

/// For the messages of emulated kernels.
const char *describe(const void *address) {
  auto at = static_cast<const unsigned char *>(address);
  static std::string text;
  for (const auto &[first, allocation] : state().memory) {
    if (at < allocation.pages || at >= allocation.pages + allocation.room + 2 * kPage)
      continue;
    auto byte = static_cast<long long>(reinterpret_cast<DevicePtr>(at) - first);
    text = "byte " + std::to_string(byte) + " of a buffer of " +
           std::to_string(allocation.bytes);
    return text.c_str();
  }
  return nullptr;
}

Result refuseInCapture() {
  return captures > 0 ? kErrorStreamCaptureUnsupported : kSuccess;
}

} // namespace
} // namespace qwen35::cuda

namespace qwen35::fake {

bool capturing(cuda::Stream stream) {
  return cuda::streamOf(stream).capture != nullptr;
}

cuda::Result enqueue(cuda::Stream stream, int nodeType,
                     std::function<void()> work) {
  cuda::StreamOpaque &to = cuda::streamOf(stream);
  if (to.capture) {
    to.capture->note(to.lane, nodeType == cuda::kNodeKernel   ? "kernel"
                              : nodeType == cuda::kNodeMemset ? "memset"
                                                              : "copy");
    to.capture->lanes[to.lane].push_back({{nodeType, std::move(work)}});
    return cuda::kSuccess;
  }
  to.work.push_back(std::move(work));
  if (settings().number("eager", 0))
    to.run();
  return cuda::kSuccess;
}

} // namespace qwen35::fake

using namespace qwen35::cuda;
using namespace qwen35::fake;

/// Starts a call: one at a time, and maybe failing.
#define FAKE(function)                                                         \
  Guard guard(lock());                                                         \
  if (Result wanted = injected(#function); wanted != kSuccess)                 \
    return wanted;
#define CURRENT(function)                                                      \
  FAKE(function)                                                               \
  if (!current)                                                                \
    return 201; /* invalid context */

//===----------------------------------------------------------------------===//
// Device
//===----------------------------------------------------------------------===//

QWEN35_FAKE_EXPORT Result cuInit(unsigned) {
  FAKE(cuInit)
  return settings().number("devices", 1) > 0 ? kSuccess : kErrorNoDevice;
}

QWEN35_FAKE_EXPORT Result cuDriverGetVersion(int *version) {
  *version = settings().number("version", 13000);
  return kSuccess;
}

namespace {

struct ErrorText {
  Result result;
  const char *name, *text;
};

constexpr ErrorText kErrors[] = {
    {kSuccess, "CUDA_SUCCESS", "no error"},
    {kErrorInvalidValue, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {kErrorOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {kErrorNotInitialized, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {kErrorNoDevice, "CUDA_ERROR_NO_DEVICE",
     "no CUDA-capable device is detected"},
    {kErrorInvalidDevice, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {kErrorInvalidImage, "CUDA_ERROR_INVALID_IMAGE",
     "device kernel image is invalid"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {kErrorNoBinaryForGpu, "CUDA_ERROR_NO_BINARY_FOR_GPU",
     "no kernel image is available for execution on the device"},
    {kErrorNotFound, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {kErrorNotReady, "CUDA_ERROR_NOT_READY", "device not ready"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {kErrorStreamCaptureUnsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"}};

const ErrorText *find(Result result) {
  for (const ErrorText &error : kErrors)
    if (error.result == result)
      return &error;
  return nullptr;
}

} // namespace

QWEN35_FAKE_EXPORT Result cuGetErrorName(Result error, const char **text) {
  const ErrorText *found = find(error);
  *text = found ? found->name : nullptr;
  return found ? kSuccess : kErrorInvalidValue;
}

QWEN35_FAKE_EXPORT Result cuGetErrorString(Result error, const char **text) {
  const ErrorText *found = find(error);
  *text = found ? found->text : nullptr;
  return found ? kSuccess : kErrorInvalidValue;
}

QWEN35_FAKE_EXPORT Result cuDeviceGetCount(int *count) {
  FAKE(cuDeviceGetCount)
  *count = settings().number("devices", 1);
  return kSuccess;
}

QWEN35_FAKE_EXPORT Result cuDeviceGet(Device *device, int ordinal) {
  FAKE(cuDeviceGet)
  *device = ordinal;
  return ordinal >= 0 && ordinal < settings().number("devices", 1)
             ? kSuccess
             : kErrorInvalidDevice;
}

QWEN35_FAKE_EXPORT Result cuDeviceGetName(char *name, int size, Device) {
  FAKE(cuDeviceGetName)
  std::snprintf(name, static_cast<size_t>(size), "%s",
                settings().text("name", "emulated").c_str());
  return kSuccess;
}

QWEN35_FAKE_EXPORT Result cuDeviceGetAttribute(int *value, int attribute,
                                               Device) {
  FAKE(cuDeviceGetAttribute)
  int capability = settings().number("capability", 90);
  switch (attribute) {
  case kDeviceClockRate:
    *value = 1000000;
    return kSuccess;
  case kDeviceMultiprocessors:
    *value = settings().number("multiprocessors", 4);
    return kSuccess;
  case kDeviceCapabilityMajor:
    *value = capability / 10;
    return kSuccess;
  case kDeviceCapabilityMinor:
    *value = capability % 10;
    return kSuccess;
  case kDeviceSharedOptin:
    *value = 227 << 10;
    return kSuccess;
  }
  return kErrorInvalidValue;
}

QWEN35_FAKE_EXPORT Result cuDeviceTotalMem_v2(size_t *bytes, Device) {
  FAKE(cuDeviceTotalMem_v2)
  *bytes = totalMemory();
  return kSuccess;
}

QWEN35_FAKE_EXPORT Result cuDevicePrimaryCtxRetain(Context *result, Device) {
  FAKE(cuDevicePrimaryCtxRetain)
  *result = &context;
  own("contexts", 1);
  return kSuccess;
}

QWEN35_FAKE_EXPORT Result cuDevicePrimaryCtxRelease_v2(Device) {
  FAKE(cuDevicePrimaryCtxRelease_v2)
  own("contexts", -1);
  return kSuccess;
}

QWEN35_FAKE_EXPORT Result cuCtxSetCurrent(Context wanted) {
  FAKE(cuCtxSetCurrent)
  current = wanted != nullptr;
  return kSuccess;
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

QWEN35_FAKE_EXPORT Result cuMemGetInfo_v2(size_t *free, size_t *total) {
  CURRENT(cuMemGetInfo_v2)
  *total = totalMemory();
  *free = totalMemory() - state().used;
  return kSuccess;
}

QWEN35_FAKE_EXPORT Result cuMemAlloc_v2(DevicePtr *pointer, size_t bytes) {
  CURRENT(cuMemAlloc_v2)
  if (Result refused = refuseInCapture())
    return refused;
  if (bytes == 0)
    return kErrorInvalidValue;
  if (bytes > totalMemory() - state().used)
    return kErrorOutOfMemory;
  size_t room = (bytes + kAlignment + kPage - 1) / kPage * kPage;
  void *memory = mmap(nullptr, room + 2 * kPage, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    return kErrorOutOfMemory;
  auto *pages = static_cast<unsigned char *>(memory);
  std::memset(pages + kPage, 0xFF, room);
  mprotect(pages, room + 2 * kPage, PROT_NONE);
  unsigned char *first =
      pages + kPage + (room - bytes) / kAlignment * kAlignment;
  *pointer = reinterpret_cast<DevicePtr>(first);
  state().memory[*pointer] = {pages, room, bytes};
  state().used += bytes;
  own("device buffers", 1);
  return kSuccess;
}

QWEN35_FAKE_EXPORT Result cuMemFree_v2(DevicePtr pointer) {
  CURRENT(cuMemFree_v2)
  if (Result refused = refuseInCapture())
    return refused;
  auto found = state().memory.find(pointer);
  if (found == state().memory.end())
    return kErrorInvalidValue;
  runAll();
  state().used -= found->second.bytes;
  own("device buffers", -1);
  munmap(found->second.pages, found->second.room + 2 * kPage);
  state().memory.erase(found);
  return kSuccess;
}

QWEN35_FAKE_EXPORT Result cuMemHostAlloc(void **pointer, size_t bytes,
                                         unsigned) {
  CURRENT(cuMemHostAlloc)
  if (Result refused = refuseInCapture())
    return refused;
  auto *memory = static_cast<unsigned char *>(
      std::aligned_alloc(kPage, (bytes + kPage - 1) / kPage * kPage));
  if (bytes == 0 || !memory)
    return bytes ? kErrorOutOfMemory : kErrorInvalidValue;
  std::memset(memory, 0xFF, bytes);
  state().pinned[memory] = bytes;
  own("pinned buffers", 1);
  *pointer = memory;
  return kSuccess;
}

QWEN35_FAKE_EXPORT Result cuMemFreeHost(void *pointer) {
  CURRENT(cuMemFreeHost)
  if (state().pinned.erase(static_cast<unsigned char *>(pointer)) == 0)
    return kErrorInvalidValue;
  runAll();
  std::free(pointer);
  own("pinned buffers", -1);
  return kSuccess;
}

QWEN35_FAKE_EXPORT Result cuMemcpyHtoDAsync_v2(DevicePtr to, const void *from,
                                               size_t bytes, Stream stream) {
  CURRENT(cuMemcpyHtoDAsync_v2)
  if (!onDevice(to, bytes))
    return kErrorInvalidValue;
  auto *target = reinterpret_cast<void *>(to);
  if (isPinned(from, bytes))
    return enqueue(stream, kNodeMemcpy,
                   [=] { std::memcpy(target, from, bytes); });
  if (capturing(stream))
    return kErrorStreamCaptureUnsupported;
  // The driver copies pageable memory before it returns.
  auto *first = static_cast<const unsigned char *>(from);
  std::vector<unsigned char> staged(first, first + bytes);
  return enqueue(stream, kNodeMemcpy, [target, staged = std::move(staged)] {
    std::memcpy(target, staged.data(), staged.size());
  });
}

QWEN35_FAKE_EXPORT Result cuMemcpyDtoHAsync_v2(void *to, DevicePtr from,
                                               size_t bytes, Stream stream) {
  CURRENT(cuMemcpyDtoHAsync_v2)
  if (!onDevice(from, bytes))
    return kErrorInvalidValue;
  bool pinned = isPinned(to, bytes);
  if (!pinned && capturing(stream))
    return kErrorStreamCaptureUnsupported;
  Result result = enqueue(stream, kNodeMemcpy, [=] {
    std::memcpy(to, reinterpret_cast<const void *>(from), bytes);
  });
  if (!pinned) // to pageable memory it is done when the call returns
    streamOf(stream).run();
  return result;
}

QWEN35_FAKE_EXPORT Result cuMemcpyDtoDAsync_v2(DevicePtr to, DevicePtr from,
                                               size_t bytes, Stream stream) {
  CURRENT(cuMemcpyDtoDAsync_v2)
  if (!onDevice(to, bytes) || !onDevice(from, bytes))
    return kErrorInvalidValue;
  return enqueue(stream, kNodeMemcpy, [=] {
    std::memmove(reinterpret_cast<void *>(to),
                 reinterpret_cast<const void *>(from), bytes);
  });
}

QWEN35_FAKE_EXPORT Result cuMemcpy2DAsync_v2(const Copy2D *copy,
                                             Stream stream) {
  CURRENT(cuMemcpy2DAsync_v2)
  Copy2D c = *copy;
  for (const Copy2D::Side *side : {&c.from, &c.to})
    if (side->memoryType != kMemoryDevice || side->x != 0 || side->y != 0 ||
        side->pitch < c.widthBytes || c.height == 0 ||
        !onDevice(side->device, (c.height - 1) * side->pitch + c.widthBytes))
      return kErrorInvalidValue;
  return enqueue(stream, kNodeMemcpy, [=] {
    for (size_t line = 0; line < c.height; ++line)
      std::memcpy(
          reinterpret_cast<void *>(c.to.device + line * c.to.pitch),
          reinterpret_cast<const void *>(c.from.device + line * c.from.pitch),
          c.widthBytes);
  });
}

QWEN35_FAKE_EXPORT Result cuMemsetD8Async(DevicePtr to, unsigned char value,
                                          size_t bytes, Stream stream) {
  CURRENT(cuMemsetD8Async)
  if (!onDevice(to, bytes))
    return kErrorInvalidValue;
  return enqueue(stream, kNodeMemset, [=] {
    std::memset(reinterpret_cast<void *>(to), value, bytes);
  });
}

//===----------------------------------------------------------------------===//
// Modules and launches
//===----------------------------------------------------------------------===//

QWEN35_FAKE_EXPORT Result cuModuleLoadData(Module *module, const void *image) {
  CURRENT(cuModuleLoadData)
  if (Result refused = refuseInCapture())
    return refused;
  Elf64_Ehdr header;
  std::memcpy(&header, image, sizeof header);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
    return kErrorInvalidImage;
  if (header.e_machine != EM_X86_64)
    return kErrorNoBinaryForGpu;
  // The section headers are what a linker writes last.
  size_t bytes = header.e_shoff + size_t(header.e_shnum) * header.e_shentsize;
  // A name that no other module has: to dlopen, equal names are one library.
  char path[] = "/tmp/fake_cuda_XXXXXX";
  int file = mkstemp(path);
  if (file < 0)
    return kErrorOutOfMemory;
  bool whole = write(file, image, bytes) == static_cast<ssize_t>(bytes);
  close(file);
  void *library = whole ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
  unlink(path);
  if (!whole)
    return kErrorOutOfMemory;
  if (!library) {
    std::fprintf(stderr, "fake cuda: %s\n", dlerror());
    return kErrorInvalidImage;
  }
  if (void *slot = dlsym(library, "q35_describe"))
    *static_cast<const char *(**)(const void *)>(slot) = describe;
  *module = new ModuleOpaque{library, {}};
  own("modules", 1);
  return kSuccess;
}

QWEN35_FAKE_EXPORT Result cuModuleUnload(Module module) {
  CURRENT(cuModuleUnload)
  runAll();
  dlclose(module->library);
  delete module;
  own("modules", -1);
  return kSuccess;
}

QWEN35_FAKE_EXPORT Result cuModuleGetFunction(Function *function, Module module,
                                              const char *name) {
  CURRENT(cuModuleGetFunction)
  auto &made = module->functions[name];
  if (!made) {
    std::string symbol = name;
    void *launch = dlsym(module->library, ("q35_launch_" + symbol).c_str());
    void *count = dlsym(module->library, ("q35_arguments_" + symbol).c_str());
    if (!launch || !count)
      return kErrorNotFound;
    made = std::make_unique<FunctionOpaque>();
    made->launch = reinterpret_cast<decltype(made->launch)>(launch);
    made->arguments = *static_cast<const int *>(count);
  }
  *function = made.get();
  return kSuccess;
}

QWEN35_FAKE_EXPORT Result cuFuncLoad(Function function) {
  CURRENT(cuFuncLoad)
  if (Result refused = refuseInCapture())
    return refused;
  function->loaded = true;
  return kSuccess;
}

QWEN35_FAKE_EXPORT Result cuFuncGetAttribute(int *value, int attribute,
                                             Function function) {
  CURRENT(cuFuncGetAttribute)
  switch (attribute) {
  case kFunctionMaxThreads:
    *value = 1024;
    return kSuccess;
  case kFunctionMaxDynamicShared:
    *value = function->maxShared;
    return kSuccess;
  case kFunctionStaticShared:
  case kFunctionLocalBytes:
  case kFunctionRegisters:
    *value = 0; // the host has none of these
    return kSuccess;
  }
  return kErrorInvalidValue;
}

QWEN35_FAKE_EXPORT Result cuFuncSetAttribute(Function function, int attribute,
                                             int value) {
  CURRENT(cuFuncSetAttribute)
  if (attribute == kFunctionMaxDynamicShared) {
    if (value < 0 || value > 227 << 10)
      return kErrorInvalidValue;
    function->maxShared = value;
    return kSuccess;
  }
  return attribute == kFunctionNonPortableCluster ? kSuccess
                                                  : kErrorInvalidValue;
}

QWEN35_FAKE_EXPORT Result cuLaunchKernelEx(const LaunchConfig *config,
                                           Function function, void **arguments,
                                           void **extra) {
  CURRENT(cuLaunchKernelEx)
  unsigned cluster = 1;
  for (unsigned i = 0; i < config->attributeCount; ++i)
    if (config->attributes[i].id == kLaunchCluster)
      cluster = config->attributes[i].value.cluster.x;
  if (config->gridX == 0 || config->gridY != 1 || config->gridZ != 1 ||
      config->blockX == 0 || config->blockX > 1024 || config->blockY != 1 ||
      config->blockZ != 1 || extra || cluster == 0 ||
      config->gridX % cluster != 0 ||
      config->sharedBytes > static_cast<unsigned>(function->maxShared))
    return kErrorInvalidValue;
  if (!function->loaded && capturing(config->stream))
    return kErrorStreamCaptureUnsupported;
  function->loaded = true;
  std::vector<void *> values; // copied now, as the driver does
  for (int i = 0; i < function->arguments; ++i)
    values.push_back(*static_cast<void **>(arguments[i]));
  return enqueue(config->stream, kNodeKernel,
                 [=, blocks = config->gridX, threads = config->blockX,
                  shared = config->sharedBytes, launch = function->launch] {
                   launch(values.data(), blocks, static_cast<int>(threads),
                          shared, settings().number("order", 0));
                 });
}

//===----------------------------------------------------------------------===//
// Streams and events
//===----------------------------------------------------------------------===//

QWEN35_FAKE_EXPORT Result cuStreamCreate(Stream *stream, unsigned) {
  CURRENT(cuStreamCreate)
  *stream = new StreamOpaque;
  state().streams.insert(*stream);
  own("streams", 1);
  return kSuccess;
}

QWEN35_FAKE_EXPORT Result cuStreamDestroy_v2(Stream stream) {
  CURRENT(cuStreamDestroy_v2)
  if (state().streams.count(stream) == 0)
    return kErrorInvalidValue;
  stream->run();
  state().streams.erase(stream);
  delete stream;
  own("streams", -1);
  return kSuccess;
}

QWEN35_FAKE_EXPORT Result cuStreamSynchronize(Stream stream) {
  CURRENT(cuStreamSynchronize)
  if (capturing(stream)) {
    stream->capture->broken = true;
    return kErrorStreamCaptureUnsupported;
  }
  streamOf(stream).run();
  return kSuccess;
}

QWEN35_FAKE_EXPORT Result cuStreamWaitEvent(Stream stream, Event event,
                                            unsigned) {
  CURRENT(cuStreamWaitEvent)
  if (event->captured) {
    std::shared_ptr<Capture> capture = event->capture.lock();
    if (!capture || !stream) // has ended
      return kErrorInvalidValue;
    if (!stream->capture) {
      stream->capture = capture;
      stream->lane = capture->join(stream);
    } else if (stream->capture != capture) {
      return kErrorStreamCaptureUnsupported;
    }
    capture->note(stream->lane, "wait " + std::to_string(event->lane));
    Capture::Entry entry;
    entry.waits = true;
    entry.lane = event->lane;
    entry.position = event->position;
    capture->lanes[stream->lane].push_back(std::move(entry));
    return kSuccess;
  }
  if (capturing(stream)) // for what the capture does not hold
    return kErrorStreamCaptureUnsupported;
  if (!event->mark)
    return kSuccess;
  return enqueue(stream, kNodeKernel, [mark = event->mark] { reach(mark); });
}

QWEN35_FAKE_EXPORT Result cuEventCreate(Event *event, unsigned flags) {
  CURRENT(cuEventCreate)
  *event = new EventOpaque{nullptr, (flags & kEventDisableTiming) == 0, false, {}};
  own("events", 1);
  return kSuccess;
}

QWEN35_FAKE_EXPORT Result cuEventDestroy_v2(Event event) {
  CURRENT(cuEventDestroy_v2)
  delete event;
  own("events", -1);
  return kSuccess;
}

QWEN35_FAKE_EXPORT Result cuEventRecord(Event event, Stream stream) {
  CURRENT(cuEventRecord)
  event->captured = capturing(stream);
  if (event->captured) {
    event->mark = nullptr;
    event->capture = stream->capture;
    event->lane = stream->lane;
    event->position = stream->capture->lanes[stream->lane].size();
    stream->capture->note(stream->lane, "record");
    return kSuccess;
  }
  auto mark = std::make_shared<Mark>(Mark{stream});
  event->mark = mark;
  return enqueue(stream, kNodeKernel, [mark] {
    mark->done = true;
    mark->time = now();
  });
}

QWEN35_FAKE_EXPORT Result cuEventSynchronize(Event event) {
  CURRENT(cuEventSynchronize)
  if (Result refused = refuseInCapture())
    return refused;
  if (event->mark)
    reach(event->mark);
  return kSuccess;
}

QWEN35_FAKE_EXPORT Result cuEventElapsedTime(float *milliseconds, Event start,
                                             Event end) {
  CURRENT(cuEventElapsedTime)
  if (!start->mark || !end->mark || !start->timing || !end->timing)
    return kErrorInvalidValue;
  if (!start->mark->done || !end->mark->done)
    return kErrorNotReady;
  *milliseconds = static_cast<float>(end->mark->time - start->mark->time);
  return kSuccess;
}

//===----------------------------------------------------------------------===//
// Graphs
//===----------------------------------------------------------------------===//

namespace {
bool joinedAhead = false;
thread_local std::string lastCapture;
} // namespace

/// Graphs that are captured from now on run what joined streams hold as early
/// as events allow, or, with 0, as late.
QWEN35_FAKE_EXPORT void qwen35FakeCudaAhead(int ahead) {
  Guard guard(lock());
  joinedAhead = ahead != 0;
}

/// What this thread's last capture was given, a line each: the stream, 0 the one
/// that was captured and 1, 2, ... as they joined it; then kernel, copy, memset,
/// record, or wait and the stream that is waited for.
QWEN35_FAKE_EXPORT const char *qwen35FakeCudaCapture() {
  return lastCapture.c_str();
}

QWEN35_FAKE_EXPORT Result cuStreamBeginCapture_v2(Stream stream, int) {
  CURRENT(cuStreamBeginCapture_v2)
  if (!stream || capturing(stream))
    return kErrorStreamCaptureUnsupported;
  stream->capture = std::make_shared<Capture>();
  stream->lane = stream->capture->join(stream);
  ++captures;
  return kSuccess;
}

QWEN35_FAKE_EXPORT Result cuStreamEndCapture(Stream stream, Graph *graph) {
  CURRENT(cuStreamEndCapture)
  *graph = nullptr;
  if (!capturing(stream) || stream->lane != 0)
    return kErrorInvalidValue;
  --captures;
  std::shared_ptr<Capture> made = stream->capture;
  for (Stream member : made->streams)
    member->capture = nullptr;
  lastCapture = made->log;
  if (made->broken)
    return 901;
  // What lane 0 does not wait for was not joined again.
  if (made->inOrder(false).size() != made->inOrder(true).size())
    return 904;
  *graph = new GraphOpaque{made->inOrder(joinedAhead)};
  own("graphs", 1);
  return kSuccess;
}

QWEN35_FAKE_EXPORT Result cuGraphGetNodes(Graph graph, GraphNode *nodes,
                                          size_t *count) {
  CURRENT(cuGraphGetNodes)
  for (size_t i = 0; nodes && i < *count; ++i)
    nodes[i] = i < graph->nodes.size() ? &graph->nodes[i] : nullptr;
  *count = nodes ? std::min(*count, graph->nodes.size()) : graph->nodes.size();
  return kSuccess;
}

QWEN35_FAKE_EXPORT Result cuGraphNodeGetType(GraphNode node, int *type) {
  CURRENT(cuGraphNodeGetType)
  *type = node->type;
  return kSuccess;
}

QWEN35_FAKE_EXPORT Result cuGraphInstantiateWithFlags(GraphExec *exec,
                                                      Graph graph,
                                                      unsigned long long) {
  CURRENT(cuGraphInstantiateWithFlags)
  *exec = new GraphExecOpaque{graph->nodes};
  own("instantiated graphs", 1);
  return kSuccess;
}

QWEN35_FAKE_EXPORT Result cuGraphUpload(GraphExec, Stream) {
  CURRENT(cuGraphUpload)
  return kSuccess;
}

QWEN35_FAKE_EXPORT Result cuGraphLaunch(GraphExec exec, Stream stream) {
  CURRENT(cuGraphLaunch)
  if (capturing(stream))
    return kErrorStreamCaptureUnsupported;
  for (const GraphNodeOpaque &node : exec->nodes)
    enqueue(stream, node.type, node.work);
  return kSuccess;
}

QWEN35_FAKE_EXPORT Result cuGraphExecDestroy(GraphExec exec) {
  CURRENT(cuGraphExecDestroy)
  delete exec;
  own("instantiated graphs", -1);
  return kSuccess;
}

QWEN35_FAKE_EXPORT Result cuGraphDestroy(Graph graph) {
  CURRENT(cuGraphDestroy)
  delete graph;
  own("graphs", -1);
  return kSuccess;
}
