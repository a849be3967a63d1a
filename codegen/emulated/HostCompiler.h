#ifndef QWEN35_CODEGEN_EMULATED_HOSTCOMPILER_H
#define QWEN35_CODEGEN_EMULATED_HOSTCOMPILER_H

#include "llvm/Support/Error.h"

#include <string>

namespace qwen35::codegen {

/// A shared object of an emulated unit (cuda::printEmulated), for tests: by the
/// compiler and with the device headers of this build. Thread-safe.
/// Errors  The compiler's messages, headed by `name`.
llvm::Expected<std::string> compileForHost(const std::string &source,
                                           const std::string &name);

/// Changes whenever compileForHost of the same source may give other bytes.
std::string hostCompilerKey();

} // namespace qwen35::codegen

#endif // QWEN35_CODEGEN_EMULATED_HOSTCOMPILER_H
