#ifndef QWEN35_CODEGEN_NVRTC_NVRTC_H
#define QWEN35_CODEGEN_NVRTC_NVRTC_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <string>

namespace qwen35::codegen {

/// NVIDIA's run-time compiler, opened by name: it is no part of the build and
/// needs neither a GPU nor a driver.
class Nvrtc {
public:
  /// The library of this process, opened at the first call.
  /// Errors  One sentence saying what was looked for and how to get it.
  static llvm::Expected<const Nvrtc &> open();

  /// Like "13.0".
  llvm::StringRef version() const { return versionText; }

  /// A cubin of `source` for `arch` ("sm_90a"), with the device headers of
  /// codegen/device in reach. Same arguments, same bytes. Thread-safe.
  /// Errors  The compiler's log, headed by `name`.
  llvm::Expected<std::string> compile(const std::string &source,
                                      const std::string &name,
                                      llvm::StringRef arch) const;

private:
  Nvrtc() = default;
  struct Api;
  const Api *api = nullptr;
  std::string versionText;
};

} // namespace qwen35::codegen

#endif // QWEN35_CODEGEN_NVRTC_NVRTC_H
