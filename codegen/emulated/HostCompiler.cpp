#include "codegen/emulated/HostCompiler.h"

#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/SHA256.h"
#include "llvm/Support/raw_ostream.h"

#include <set>

namespace qwen35::codegen {

namespace {

/// UBSan finds what is an error on the GPU alone, and calls q35/emulate.h.
llvm::SmallVector<llvm::StringRef> options() {
  llvm::SmallVector<llvm::StringRef> list = {
      "-std=c++17",
      "-O1",
      "-shared",
      "-fPIC",
      "-fvisibility=hidden",
      "-fsanitize=alignment,bounds",
      "-fno-sanitize-recover=all",
      "-ftrivial-auto-var-init=pattern",
      "-fuse-ld=lld",
      "-DQ35_EMULATE",
      "-I" QWEN35_DEVICE_HEADERS};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    list.push_back("-march=x86-64-v3");
  return list;
}

std::string contents(llvm::StringRef path) {
  auto file = llvm::MemoryBuffer::getFile(path);
  return file ? (*file)->getBuffer().str() : std::string();
}

} // namespace

llvm::Expected<std::string> compileForHost(const std::string &source,
                                           const std::string &name) {
  llvm::SmallString<128> folder;
  if (std::error_code error =
          llvm::sys::fs::createUniqueDirectory("qwen35-emulated", folder))
    return llvm::createStringError(error, "no temporary folder");
  auto remove = llvm::make_scope_exit(
      [&] { (void)llvm::sys::fs::remove_directories(folder); });
  auto path = [&](const char *file) { return (folder + "/" + file).str(); };
  std::string unit = path("kernel.cpp"), object = path("kernel.so"),
              log = path("log");
  std::error_code error;
  llvm::raw_fd_ostream(unit, error) << source;
  if (error)
    return llvm::createStringError(error, "cannot write " + unit);

  llvm::SmallVector<llvm::StringRef> arguments = {QWEN35_HOST_COMPILER};
  llvm::SmallVector<llvm::StringRef> fixed = options();
  arguments.append(fixed.begin(), fixed.end());
  arguments.append({unit, "-o", object});
  std::optional<llvm::StringRef> redirects[] = {llvm::StringRef(), log, log};
  std::string problem;
  int code = llvm::sys::ExecuteAndWait(QWEN35_HOST_COMPILER, arguments,
                                       std::nullopt, redirects, 0, 0, &problem);
  if (code != 0)
    return llvm::createStringError(name + " does not compile for the host:\n" +
                                   problem + contents(log));
  return contents(object);
}

std::string withIncludes(
    const std::string &source,
    llvm::function_ref<std::string(const std::string &)> headerOf) {
  std::string all = source;
  std::set<std::string> seen;
  constexpr llvm::StringLiteral kInclude = "#include \"";
  for (size_t at = 0; (at = all.find(kInclude, at)) != std::string::npos;) {
    at += kInclude.size();
    std::string name = all.substr(at, all.find('"', at) - at);
    if (seen.insert(name).second)
      all += "\n" + headerOf(name);
  }
  return all;
}

std::string hostCompilerKey(const std::string &source) {
  llvm::SHA256 hash;
  hash.update(QWEN35_HOST_COMPILER);
  for (llvm::StringRef option : options())
    hash.update(option);
  hash.update(withIncludes(source, [](const std::string &name) {
    return contents(QWEN35_DEVICE_HEADERS "/" + name);
  }));
  return llvm::toHex(hash.final(), /*LowerCase=*/true);
}

} // namespace qwen35::codegen
