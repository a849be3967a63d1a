#ifndef QWEN35_CODEGEN_CPU_BACKEND_H
#define QWEN35_CODEGEN_CPU_BACKEND_H

// What lies below the kernels: MLIR to LLVM IR, LLVM IR to an object, objects
// to one shared object. Internal to this library; users include Compile.h.

#include "codegen/cpu/Compile.h"

#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/Target/TargetMachine.h"

#include <memory>
#include <string>

namespace qwen35::codegen::cpu {

/// A target machine and the sizes that kernels are built for.
struct ResolvedTarget {
  std::string triple, cpu, features;
  int64_t vectorBytes = 16, vectorRegisters = 16;
};

/// Fails with one error for an unknown architecture or cpu.
llvm::FailureOr<ResolvedTarget> resolveTarget(const CpuTarget &target,
                                              EmitError emitError);

std::unique_ptr<llvm::TargetMachine>
createMachine(const ResolvedTarget &target);

/// One module with a func.func per stage ("symbol.body", "symbol_s1.body" ..).
mlir::OwningOpRef<mlir::ModuleOp> buildModule(mlir::MLIRContext *context,
                                              const NamedKernel &kernel,
                                              const KernelFamily &family,
                                              const KernelPlan &plan,
                                              const ResolvedTarget &target);

/// Lowers such a module to the LLVM dialect and adds the exported functions.
llvm::LogicalResult lowerModule(mlir::ModuleOp module,
                                llvm::StringRef dataLayout);

/// Null (after an MLIR diagnostic) when translation fails.
std::unique_ptr<llvm::Module> translateModule(mlir::ModuleOp module,
                                              llvm::LLVMContext &context,
                                              const ResolvedTarget &target,
                                              llvm::TargetMachine &machine);

void optimizeModule(llvm::Module &module, llvm::TargetMachine &machine);

/// Object file or assembly text.
llvm::FailureOr<std::string>
emitCode(llvm::Module &module, llvm::TargetMachine &machine, bool assembly);

/// Shared object of these objects, in this order; `error` says what failed.
llvm::FailureOr<std::string> linkShared(llvm::ArrayRef<std::string> objects,
                                        std::string &error);

} // namespace qwen35::codegen::cpu

#endif // QWEN35_CODEGEN_CPU_BACKEND_H
