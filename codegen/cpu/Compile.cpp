#include "codegen/cpu/Compile.h"
#include "codegen/cpu/Backend.h"

#include "mlir/IR/Verifier.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/raw_ostream.h"

#include <atomic>
#include <thread>

using namespace mlir;

namespace qwen35::codegen::cpu {
namespace {

struct Planned {
  const KernelFamily *family;
  KernelPlan plan;
};

bool isSymbol(llvm::StringRef name) {
  return !name.empty() && llvm::all_of(name, [](char c) {
    return llvm::isAlnum(c) || c == '_' || c == '.' || c == '$';
  });
}

FailureOr<Planned> planKernel(const NamedKernel &kernel, EmitError emitError) {
  if (!isSymbol(kernel.symbol)) {
    emitError() << "kernel symbol '" << kernel.symbol
                << "' has characters other than letters, digits, _ . and $";
    return failure();
  }
  const KernelFamily *family = lookupKernel(kernel.spec.op);
  if (!family) {
    emitError() << "no CPU kernel for op " << kernel.spec.op << " (kernel "
                << kernel.symbol << ")";
    return failure();
  }
  FailureOr<KernelPlan> plan = family->plan(kernel.spec, emitError);
  if (failed(plan))
    return failure();
  return Planned{family, std::move(*plan)};
}

void loadDialects(MLIRContext *context) {
  DialectRegistry registry;
  registerCpuDialects(registry);
  context->appendDialectRegistry(registry);
  for (llvm::StringRef name : registry.getDialectNames())
    context->getOrLoadDialect(name);
}

/// Empty on failure.
FailureOr<std::string> compileOne(MLIRContext *context,
                                  const NamedKernel &kernel,
                                  const Planned &planned,
                                  const ResolvedTarget &target,
                                  llvm::TargetMachine &machine) {
  OwningOpRef<ModuleOp> module =
      buildModule(context, kernel, *planned.family, planned.plan, target);
  std::string layout = machine.createDataLayout().getStringRepresentation();
  if (failed(verify(*module)) || failed(lowerModule(*module, layout)))
    return failure();
  llvm::LLVMContext llvmContext;
  auto translated = translateModule(*module, llvmContext, target, machine);
  if (!translated)
    return failure();
  optimizeModule(*translated, machine);
  return emitCode(*translated, machine, /*assembly=*/false);
}

} // namespace

std::string stageSymbol(llvm::StringRef symbol, unsigned stage) {
  if (stage == 0)
    return symbol.str();
  return (symbol + "_s" + llvm::Twine(stage)).str();
}

FailureOr<OwningOpRef<ModuleOp>> buildKernelModule(MLIRContext *context,
                                                   const NamedKernel &kernel,
                                                   const CpuTarget &target,
                                                   EmitError emitError) {
  FailureOr<ResolvedTarget> resolved = resolveTarget(target, emitError);
  if (failed(resolved))
    return failure();
  FailureOr<Planned> planned = planKernel(kernel, emitError);
  if (failed(planned))
    return failure();
  loadDialects(context);
  OwningOpRef<ModuleOp> module =
      buildModule(context, kernel, *planned->family, planned->plan, *resolved);
  if (failed(verify(*module)))
    return failure();
  return module;
}

FailureOr<std::string> printKernel(MLIRContext *context,
                                   const NamedKernel &kernel,
                                   const CpuTarget &target, KernelText what,
                                   EmitError emitError) {
  FailureOr<OwningOpRef<ModuleOp>> module =
      buildKernelModule(context, kernel, target, emitError);
  if (failed(module))
    return failure();
  std::string text;
  llvm::raw_string_ostream out(text);
  if (what == KernelText::Mlir) {
    (*module)->print(out);
    out << '\n';
    return text;
  }
  FailureOr<ResolvedTarget> resolved = resolveTarget(target, emitError);
  std::unique_ptr<llvm::TargetMachine> machine = createMachine(*resolved);
  if (failed(lowerModule(
          **module, machine->createDataLayout().getStringRepresentation())))
    return failure();
  llvm::LLVMContext llvmContext;
  auto translated = translateModule(**module, llvmContext, *resolved, *machine);
  if (!translated)
    return failure();
  if (what == KernelText::LlvmIr) {
    translated->print(out, nullptr);
    return text;
  }
  optimizeModule(*translated, *machine);
  if (what == KernelText::OptimizedLlvmIr) {
    translated->print(out, nullptr);
    return text;
  }
  return emitCode(*translated, *machine, /*assembly=*/true);
}

FailureOr<std::string> compileKernels(MLIRContext *context,
                                      ArrayRef<NamedKernel> kernels,
                                      const CpuTarget &target,
                                      EmitError emitError) {
  FailureOr<ResolvedTarget> resolved = resolveTarget(target, emitError);
  if (failed(resolved))
    return failure();
  llvm::StringSet<> symbols;
  std::vector<Planned> planned;
  for (const NamedKernel &kernel : kernels) {
    FailureOr<Planned> one = planKernel(kernel, emitError);
    if (failed(one))
      return failure();
    for (unsigned stage = 0; stage < one->plan.grids.size(); ++stage) {
      std::string symbol = stageSymbol(kernel.symbol, stage);
      if (!symbols.insert(symbol).second) {
        emitError() << "two kernels have the symbol " << symbol;
        return failure();
      }
    }
    planned.push_back(std::move(*one));
  }
  loadDialects(context);

  // One module, one object per kernel: whoever compiles it, the bytes are the
  // same, and the linker takes them in the order of the list.
  std::vector<std::string> objects(kernels.size());
  std::vector<char> succeeded(kernels.size(), 0);
  std::atomic<size_t> next{0};
  auto work = [&] {
    std::unique_ptr<llvm::TargetMachine> machine = createMachine(*resolved);
    for (size_t i; (i = next++) < kernels.size();) {
      FailureOr<std::string> object =
          compileOne(context, kernels[i], planned[i], *resolved, *machine);
      if (failed(object))
        continue;
      objects[i] = std::move(*object);
      succeeded[i] = 1;
    }
  };
  size_t workers = std::min<size_t>(target.threads, kernels.size());
  if (!context->isMultithreadingEnabled())
    workers = 1; // The context's tables are not locked then.
  std::vector<std::thread> threads;
  for (size_t i = 1; i < workers; ++i)
    threads.emplace_back(work);
  work();
  for (std::thread &thread : threads)
    thread.join();

  for (auto [kernel, ok] : llvm::zip(kernels, succeeded))
    if (!ok) {
      emitError() << "kernel " << kernel.symbol
                  << " could not be lowered to machine code";
      return failure();
    }
  std::string error;
  FailureOr<std::string> linked = linkShared(objects, error);
  if (failed(linked))
    emitError() << error;
  return linked;
}

} // namespace qwen35::codegen::cpu
