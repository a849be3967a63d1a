#ifndef QWEN35_CODEGEN_CPU_COMPILE_H
#define QWEN35_CODEGEN_CPU_COMPILE_H

#include "codegen/cpu/Kernel.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/IR/OwningOpRef.h"

namespace qwen35::codegen::cpu {

/// The machine to compile for.
struct CpuTarget {
  /// Empty: x86_64-unknown-linux-gnu, the only architecture there is so far.
  std::string triple;
  /// Any LLVM name: x86-64-v3 (AVX2, FMA), x86-64-v4 (AVX-512), znver4 ...;
  /// "native" is the machine the compiler runs on.
  std::string cpu = "x86-64-v3";
  /// Kernels compiled at a time; the bytes do not depend on it.
  unsigned threads = 2;
};

/// One kernel of a shared object. Stage 0 is exported as `symbol`, stage s > 0
/// as `symbol_s<s>`; each is `void(void *const *args, int64_t task)`.
struct NamedKernel {
  std::string symbol;
  KernelSpec spec;
};

std::string stageSymbol(llvm::StringRef symbol, unsigned stage);

/// Dialects and interfaces that compilation needs; call before the context is
/// made, or append to a live one.
void registerCpuDialects(mlir::DialectRegistry &registry);

/// The kernels as one ELF shared object that imports at most memset, memcpy and
/// memmove. Equal kernels, symbols and target give equal bytes.
/// Note    Linking resets every llvm::cl option of the process to its default
///         (lld does), so a tool reads its own before.
/// Errors  Unknown op, a spec its family refuses, a symbol used twice, an
///         unknown cpu; each reported once through `emitError`.
llvm::FailureOr<std::string> compileKernels(mlir::MLIRContext *context,
                                            llvm::ArrayRef<NamedKernel> kernels,
                                            const CpuTarget &target,
                                            EmitError emitError);

/// The kernel before lowering: one func.func per stage on memrefs and vectors.
llvm::FailureOr<mlir::OwningOpRef<mlir::ModuleOp>>
buildKernelModule(mlir::MLIRContext *context, const NamedKernel &kernel,
                  const CpuTarget &target, EmitError emitError);

/// Texts of one kernel, for tests and for reading.
enum class KernelText { Mlir, LlvmIr, OptimizedLlvmIr, Assembly };
llvm::FailureOr<std::string> printKernel(mlir::MLIRContext *context,
                                         const NamedKernel &kernel,
                                         const CpuTarget &target,
                                         KernelText what, EmitError emitError);

} // namespace qwen35::codegen::cpu

#endif // QWEN35_CODEGEN_CPU_COMPILE_H
