#ifndef QWEN35_DIALECT_QKERN_IR_KERNELTARGET_H
#define QWEN35_DIALECT_QKERN_IR_KERNELTARGET_H

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"

#include <memory>
#include <utility>

namespace qwen35::qkern {

/// All that one compiled kernel depends on. Types are static memrefs; inputs
/// may be strided with last stride 1.
struct KernelSignature {
  llvm::StringRef kernel;
  mlir::DictionaryAttr config;
  llvm::SmallVector<mlir::MemRefType> inputs, outputs;
};

/// How a target launches a kernel: one grid per stage, tasks each.
struct LaunchShape {
  llvm::SmallVector<int64_t> grids;
  int64_t workspaceBytes = 0;
  /// (output, input) pairs that may share their storage.
  llvm::SmallVector<std::pair<unsigned, unsigned>> mayAlias;
};

/// What the lowering to kernels asks of a target. Code generators implement
/// and register it, so passes know none of them.
class KernelTarget {
public:
  virtual ~KernelTarget();
  virtual llvm::StringRef name() const = 0;

  /// Chooses grids and workspace, or emits one error and fails.
  virtual llvm::FailureOr<LaunchShape>
  launchShape(const KernelSignature &signature,
              llvm::function_ref<mlir::InFlightDiagnostic()> emitError)
      const = 0;

  /// Arguments that a kernel on lists of tensors may have (adamw, norm_sq), or
  /// 0 where these kernels take one tensor each.
  virtual int64_t maxListArguments() const { return 0; }

  /// Whether a result of a kernel may be strided: a part of a larger tensor.
  virtual bool writesViews(llvm::StringRef /*kernel*/,
                           unsigned /*result*/) const {
    return false;
  }

  /// The results whose squares a kernel can sum up: with {squares = true} it has
  /// one more result, an f64 scalar, which norm_sq takes behind its tensors.
  virtual llvm::ArrayRef<unsigned> squares(llvm::StringRef /*kernel*/) const {
    return {};
  }
};

void registerKernelTarget(std::unique_ptr<KernelTarget> target);
/// The target of that name, or null.
const KernelTarget *lookupKernelTarget(llvm::StringRef name);

} // namespace qwen35::qkern

#endif // QWEN35_DIALECT_QKERN_IR_KERNELTARGET_H
