#ifndef QWEN35_CODEGEN_EMULATED_HOSTCOMPILER_H
#define QWEN35_CODEGEN_EMULATED_HOSTCOMPILER_H

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/Support/Error.h"

#include <string>

namespace qwen35::codegen {

/// A shared object of an emulated unit (cuda::printEmulated), for tests: by the
/// compiler and with the device headers of this build. Thread-safe.
/// Errors  The compiler's messages, headed by `name`.
llvm::Expected<std::string> compileForHost(const std::string &source,
                                           const std::string &name);

/// A digest of what compileForHost of the source depends on: the source, the
/// device headers that it includes, directly or not, and the options.
std::string hostCompilerKey(const std::string &source);

/// The source and after it the headers that it includes, `headerOf` being the
/// text of a header by its name ("q35/base.cuh"; empty: not ours).
std::string withIncludes(
    const std::string &source,
    llvm::function_ref<std::string(const std::string &)> headerOf);

} // namespace qwen35::codegen

#endif // QWEN35_CODEGEN_EMULATED_HOSTCOMPILER_H
