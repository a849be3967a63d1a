#ifndef QWEN35_TEST_UNIT_CUDA_EMULATEDUNIT_H
#define QWEN35_TEST_UNIT_CUDA_EMULATEDUNIT_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace qwen35::codegen::cuda {

/// Memory as a kernel sees a buffer of a GPU: aligned to 256 bytes, plus
/// `start` for a view into one, and fenced. Behind it less than 256 bytes of
/// the pattern, then a page that cannot be touched; before it the pattern.
class GuardedMemory {
public:
  GuardedMemory(std::string name, int64_t bytes, uint16_t pattern,
                int64_t start = 0);
  ~GuardedMemory();
  GuardedMemory(const GuardedMemory &) = delete;

  unsigned char *pointer() const { return data; }
  const std::string &what() const { return name; }
  /// Whether what lies around it still holds the pattern.
  bool frameIntact() const;

private:
  friend const char *describeAddress(const void *);
  std::string name;
  unsigned char *pages, *data;
  int64_t room, bytes; ///< Between the guard pages; of the buffer.
  uint16_t pattern;
};

/// "byte 16 of input 0, which has 16": the buffer next to an address, or null.
const char *describeAddress(const void *address);

/// A kernel compiled for the host and loaded. Equal sources are compiled once
/// per build folder and loaded once per process.
class EmulatedUnit {
public:
  static llvm::Expected<std::shared_ptr<EmulatedUnit>>
  load(const std::string &source, const std::string &name);
  ~EmulatedUnit();
  EmulatedUnit(const EmulatedUnit &) = delete;

  /// Aborts with a message where the kernel does what no kernel may. `order`:
  /// see printLauncher. False if there is no such kernel.
  bool launch(const std::string &symbol, llvm::ArrayRef<void *> arguments,
              int64_t blocks, int threads, int64_t sharedBytes,
              int order) const;

private:
  explicit EmulatedUnit(void *handle) : handle(handle) {}
  void *handle;
};

/// Loads all of them, compiling on two threads. One error for the first that
/// does not compile.
llvm::Expected<std::vector<std::shared_ptr<EmulatedUnit>>>
loadUnits(llvm::ArrayRef<std::string> sources, const std::string &name);

/// Whether NVRTC compiles the source for `arch`; "" if it does, else its log. A
/// machine without NVRTC is told once, and passes. What passed is remembered in
/// the build folder.
std::string checkWithNvrtc(const std::string &source, const std::string &name,
                           const std::string &arch);

} // namespace qwen35::codegen::cuda

#endif // QWEN35_TEST_UNIT_CUDA_EMULATEDUNIT_H
