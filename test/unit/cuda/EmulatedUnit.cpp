#include "test/unit/cuda/EmulatedUnit.h"

#include "codegen/device/DeviceSources.h"
#include "codegen/emulated/HostCompiler.h"
#include "codegen/nvrtc/Nvrtc.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/SHA256.h"
#include "llvm/Support/raw_ostream.h"

#include <atomic>
#include <dlfcn.h>
#include <map>
#include <mutex>
#include <set>
#include <sys/mman.h>
#include <thread>

namespace qwen35::codegen::cuda {

//===----------------------------------------------------------------------===//
// GuardedMemory
//===----------------------------------------------------------------------===//

namespace {

constexpr int64_t kPage = 4096, kAlignment = 256;

std::set<const GuardedMemory *> &allMemory() {
  static std::set<const GuardedMemory *> all;
  return all;
}

unsigned char byteOf(uint16_t pattern, int64_t at) {
  return static_cast<unsigned char>(at % 2 ? pattern >> 8 : pattern);
}

} // namespace

GuardedMemory::GuardedMemory(std::string name, int64_t bytes, uint16_t pattern,
                             int64_t start)
    : name(std::move(name)), bytes(bytes), pattern(pattern) {
  room = (bytes + start + 2 * kAlignment + kPage - 1) / kPage * kPage;
  void *memory = mmap(nullptr, room + 2 * kPage, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    llvm::report_fatal_error("out of memory");
  pages = static_cast<unsigned char *>(memory);
  mprotect(pages, kPage, PROT_NONE);
  mprotect(pages + kPage + room, kPage, PROT_NONE);
  int64_t before = (room - bytes - start) / kAlignment * kAlignment + start;
  data = pages + kPage + before;
  for (int64_t i = 0; i < room; ++i)
    pages[kPage + i] = byteOf(pattern, i);
  allMemory().insert(this);
}

GuardedMemory::~GuardedMemory() {
  allMemory().erase(this);
  munmap(pages, room + 2 * kPage);
}

bool GuardedMemory::frameIntact() const {
  const unsigned char *first = pages + kPage;
  for (int64_t i = 0; i < room; ++i)
    if ((first + i < data || first + i >= data + bytes) &&
        first[i] != byteOf(pattern, i))
      return false;
  return true;
}

const char *describeAddress(const void *address) {
  auto *at = static_cast<const unsigned char *>(address);
  static std::string text;
  for (const GuardedMemory *memory : allMemory()) {
    if (at < memory->pages || at >= memory->pages + memory->room + 2 * kPage)
      continue;
    text = "byte " + std::to_string(at - memory->data) + " of " + memory->name +
           ", which has " + std::to_string(memory->bytes);
    return text.c_str();
  }
  return nullptr;
}

//===----------------------------------------------------------------------===//
// EmulatedUnit
//===----------------------------------------------------------------------===//

namespace {

constexpr const char *kFolder = QWEN35_BINARY_DIR "/emulated-kernels";

std::string cachePath(const std::string &key, const std::string &suffix) {
  return std::string(kFolder) + "/" + key.substr(0, 40) + suffix;
}

/// Under another name first: other processes see whole files only.
llvm::Error writeWhole(const std::string &path, llvm::StringRef bytes) {
  (void)llvm::sys::fs::create_directories(kFolder);
  return llvm::writeToOutput(path, [&](llvm::raw_ostream &out) {
    out << bytes;
    return llvm::Error::success();
  });
}

} // namespace

llvm::Expected<std::shared_ptr<EmulatedUnit>>
EmulatedUnit::load(const std::string &source, const std::string &name) {
  static std::mutex lock;
  static std::map<std::string, std::shared_ptr<EmulatedUnit>> loaded;
  std::string path = cachePath(hostCompilerKey(source), ".so");
  {
    std::lock_guard guard(lock);
    if (auto found = loaded.find(path); found != loaded.end())
      return found->second;
  }
  if (!llvm::sys::fs::exists(path)) {
    llvm::Expected<std::string> bytes = compileForHost(source, name);
    if (!bytes)
      return bytes.takeError();
    llvm::consumeError(writeWhole(path + ".cu", source)); // for people
    if (llvm::Error error = writeWhole(path, *bytes))
      return error;
  }
  void *handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle)
    return llvm::createStringError(std::string("cannot load a kernel: ") +
                                   dlerror());
  if (void *describe = dlsym(handle, "q35_describe"))
    *static_cast<const char *(**)(const void *)>(describe) = describeAddress;
  std::lock_guard guard(lock);
  auto &unit = loaded[path];
  if (!unit)
    unit.reset(new EmulatedUnit(handle));
  return unit;
}

EmulatedUnit::~EmulatedUnit() { dlclose(handle); }

bool EmulatedUnit::launch(const std::string &symbol,
                          llvm::ArrayRef<void *> arguments, int64_t blocks,
                          int threads, int64_t sharedBytes, int order) const {
  auto function = reinterpret_cast<void (*)(void *const *, long long, int,
                                            long long, int)>(
      dlsym(handle, ("q35_launch_" + symbol).c_str()));
  if (!function)
    return false;
  function(arguments.data(), blocks, threads, sharedBytes, order);
  return true;
}

llvm::Expected<std::vector<std::shared_ptr<EmulatedUnit>>>
loadUnits(llvm::ArrayRef<std::string> sources, const std::string &name) {
  std::vector<std::shared_ptr<EmulatedUnit>> units(sources.size());
  std::vector<std::string> problems(sources.size());
  std::atomic<size_t> next{0};
  auto worker = [&] {
    for (size_t at = next++; at < sources.size(); at = next++) {
      auto unit = EmulatedUnit::load(sources[at], name);
      if (unit)
        units[at] = *unit;
      else
        problems[at] = llvm::toString(unit.takeError());
    }
  };
  std::thread other;
  if (sources.size() > 1)
    other = std::thread(worker);
  worker();
  if (other.joinable())
    other.join();
  for (const std::string &problem : problems)
    if (!problem.empty())
      return llvm::createStringError(problem);
  return units;
}

std::string checkWithNvrtc(const std::string &source, const std::string &name,
                           const std::string &arch) {
  static const Nvrtc *compiler = []() -> const Nvrtc * {
    llvm::Expected<const Nvrtc &> opened = Nvrtc::open();
    if (opened)
      return &*opened;
    llvm::errs() << "not checked: " << llvm::toString(opened.takeError())
                 << "\n";
    return nullptr;
  }();
  if (!compiler)
    return "";
  std::string all = withIncludes(source, [](const std::string &header) {
    for (const DeviceSource &text : deviceSources())
      if (text.name == header)
        return std::string(text.text);
    return std::string();
  });
  all += compiler->version();
  std::string path =
      cachePath(llvm::toHex(llvm::SHA256::hash(llvm::arrayRefFromStringRef(all)),
                            /*LowerCase=*/true),
                "." + arch);
  if (llvm::sys::fs::exists(path))
    return "";
  llvm::Expected<std::string> cubin = compiler->compile(source, name, arch);
  if (!cubin)
    return llvm::toString(cubin.takeError());
  llvm::consumeError(writeWhole(path, ""));
  return "";
}

} // namespace qwen35::codegen::cuda
