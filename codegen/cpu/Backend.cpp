#include "codegen/cpu/Backend.h"

#include "lld/Common/Driver.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/TargetParser/Host.h"

#include <mutex>

LLD_HAS_DRIVER(elf)

using namespace mlir;

namespace qwen35::codegen::cpu {
namespace {

void initializeTargets() {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
  });
}

std::string hostFeatures() {
  // Sorted, so that the text does not depend on the order of a hash table.
  SmallVector<std::string> names;
  for (const auto &feature : llvm::sys::getHostCPUFeatures())
    names.push_back((feature.second ? "+" : "-") + feature.first().str());
  llvm::sort(names);
  return llvm::join(names, ",");
}

/// A folder that goes away with its files.
class TemporaryFolder {
public:
  TemporaryFolder() {
    failed = static_cast<bool>(
        llvm::sys::fs::createUniqueDirectory("qwen35-cpu", path));
  }
  ~TemporaryFolder() {
    if (!failed)
      llvm::sys::fs::remove_directories(path);
  }
  bool isValid() const { return !failed; }
  std::string file(const llvm::Twine &name) const {
    SmallString<128> full(path);
    llvm::sys::path::append(full, name);
    return full.str().str();
  }

private:
  SmallString<128> path;
  bool failed;
};

} // namespace

FailureOr<ResolvedTarget> resolveTarget(const CpuTarget &target,
                                        EmitError emitError) {
  initializeTargets();
  ResolvedTarget resolved;
  resolved.triple =
      target.triple.empty() ? "x86_64-unknown-linux-gnu" : target.triple;
  llvm::Triple triple(resolved.triple);
  if (triple.getArch() != llvm::Triple::x86_64 || !triple.isOSLinux()) {
    emitError() << "CPU code is generated for x86_64 Linux only, got triple "
                << resolved.triple;
    return failure();
  }
  resolved.cpu = target.cpu;
  if (target.cpu == "native") {
    resolved.cpu = llvm::sys::getHostCPUName().str();
    resolved.features = hostFeatures();
  }
  std::string error;
  const llvm::Target *found = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!found) {
    emitError() << error;
    return failure();
  }
  std::unique_ptr<llvm::MCSubtargetInfo> probe(
      found->createMCSubtargetInfo(triple, "x86-64", ""));
  if (!probe->isCPUStringValid(resolved.cpu)) {
    emitError() << "unknown cpu " << resolved.cpu
                << "; expected native or a name LLVM knows, as x86-64-v3, "
                   "x86-64-v4 or znver4";
    return failure();
  }
  std::unique_ptr<llvm::MCSubtargetInfo> subtarget(
      found->createMCSubtargetInfo(triple, resolved.cpu, resolved.features));
  if (!subtarget->checkFeatures("+avx2") || !subtarget->checkFeatures("+fma")) {
    emitError() << "cpu " << resolved.cpu
                << " lacks AVX2 or FMA; the oldest level is x86-64-v3";
    return failure();
  }
  resolved.vectorBytes = 32;
  if (subtarget->checkFeatures("+avx512f") &&
      subtarget->checkFeatures("+avx512vl") &&
      subtarget->checkFeatures("+avx512dq")) {
    resolved.vectorBytes = 64;
    resolved.vectorRegisters = 32;
  }
  return resolved;
}

std::unique_ptr<llvm::TargetMachine>
createMachine(const ResolvedTarget &target) {
  initializeTargets();
  llvm::Triple triple(target.triple);
  std::string error;
  const llvm::Target *found = llvm::TargetRegistry::lookupTarget(triple, error);
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Standard;
  return std::unique_ptr<llvm::TargetMachine>(found->createTargetMachine(
      triple, target.cpu, target.features, options, llvm::Reloc::PIC_,
      std::nullopt, llvm::CodeGenOptLevel::Aggressive));
}

void optimizeModule(llvm::Module &module, llvm::TargetMachine &machine) {
  llvm::PipelineTuningOptions tuning;
  tuning.LoopVectorization = true;
  tuning.SLPVectorization = true;
  llvm::PassBuilder builder(&machine, tuning);
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  builder.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O3)
      .run(module, modules);
}

FailureOr<std::string> emitCode(llvm::Module &module,
                                llvm::TargetMachine &machine, bool assembly) {
  SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream out(bytes);
  llvm::legacy::PassManager passes;
  if (machine.addPassesToEmitFile(passes, out, nullptr,
                                  assembly ? llvm::CodeGenFileType::AssemblyFile
                                           : llvm::CodeGenFileType::ObjectFile))
    return failure();
  passes.run(module);
  return std::string(bytes.begin(), bytes.end());
}

FailureOr<std::string> linkShared(ArrayRef<std::string> objects,
                                  std::string &error) {
  TemporaryFolder folder;
  if (!folder.isValid()) {
    error = "cannot make a temporary folder";
    return failure();
  }
  std::string result = folder.file("kernels.so");
  std::vector<std::string> arguments = {"ld.lld",
                                        "-shared",
                                        "--build-id=none",
                                        "--threads=1",
                                        "--hash-style=gnu",
                                        "--strip-all",
                                        "-soname",
                                        "qwen35_kernels.so",
                                        "-z",
                                        "noexecstack",
                                        "-o",
                                        result};
  for (auto [i, object] : llvm::enumerate(objects)) {
    std::string path = folder.file(llvm::Twine(i) + ".o");
    std::error_code code;
    llvm::raw_fd_ostream file(path, code);
    file << object;
    file.close();
    if (code || file.has_error()) {
      file.clear_error();
      error = llvm::formatv("cannot write {0}", path);
      return failure();
    }
    arguments.push_back(std::move(path));
  }
  std::vector<const char *> pointers;
  for (const std::string &argument : arguments)
    pointers.push_back(argument.c_str());

  static std::mutex linker; // lld keeps its state in globals.
  std::string text;
  llvm::raw_string_ostream messages(text);
  int code;
  {
    std::lock_guard lock(linker);
    code = lld::lldMain(pointers, messages, messages,
                        {{lld::Gnu, &lld::elf::link}})
               .retCode;
  }
  if (code != 0) {
    error = "linking failed: " + text;
    return failure();
  }
  auto buffer = llvm::MemoryBuffer::getFile(result, /*IsText=*/false,
                                            /*RequiresNullTerminator=*/false);
  if (!buffer) {
    error = "cannot read the linked object: " + buffer.getError().message();
    return failure();
  }
  return (*buffer)->getBuffer().str();
}

} // namespace qwen35::codegen::cpu
