#ifndef QWEN35_CODEGEN_KERNEL_KERNELSPEC_H
#define QWEN35_CODEGEN_KERNEL_KERNELSPEC_H

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"

#include <string>

// What every target's kernel families share.
namespace qwen35::codegen {

using EmitError = llvm::function_ref<mlir::InFlightDiagnostic()>;

/// All that one compiled kernel depends on; anything else is an argument.
///
/// Shapes  Static. A layout may be strided, its last stride 1; the pointer
///         passed at run time is that of element [0, .., 0], so an offset in
///         the layout is ignored.
/// Order   Kernel arguments are inputs, then outputs, then the workspace.
struct KernelSpec {
  std::string op; ///< Without dialect prefix: "rms_norm".
  mlir::DictionaryAttr attrs;
  llvm::SmallVector<mlir::MemRefType> inputs, outputs;

  /// Attributes by name. `number` takes float or integer attributes, `integer`
  /// integers, `flag` booleans or unit attributes (absent: false), `text`
  /// strings. Only to be called for what `plan` has checked with
  /// `requireAttrs`.
  double number(llvm::StringRef name) const;
  int64_t integer(llvm::StringRef name) const;
  bool flag(llvm::StringRef name) const;
  llvm::StringRef text(llvm::StringRef name) const;
};

/// Convenience for `plan`: each emits one error and fails, or succeeds.
llvm::LogicalResult requireCounts(const KernelSpec &spec, unsigned inputs,
                                  unsigned outputs, EmitError emitError);
llvm::LogicalResult requireAttrs(const KernelSpec &spec,
                                 llvm::ArrayRef<llvm::StringRef> names,
                                 EmitError emitError);
/// `type` has this shape (kAny: any size) and element type, and stride 1 last.
/// `what` names it in the error: "weight".
constexpr int64_t kAny = -1;
llvm::LogicalResult requireType(const KernelSpec &spec, mlir::MemRefType type,
                                llvm::StringRef what,
                                llvm::ArrayRef<int64_t> shape,
                                mlir::Type element, EmitError emitError);
/// As above for any of these element types.
llvm::LogicalResult requireType(const KernelSpec &spec, mlir::MemRefType type,
                                llvm::StringRef what,
                                llvm::ArrayRef<int64_t> shape,
                                llvm::ArrayRef<mlir::Type> elements,
                                EmitError emitError);
/// As above for any rank >= 1 of f32; no constraint on sizes.
llvm::LogicalResult requireRows(const KernelSpec &spec, mlir::MemRefType type,
                                llvm::StringRef what, EmitError emitError);
/// As above for any of these element types.
llvm::LogicalResult requireRows(const KernelSpec &spec, mlir::MemRefType type,
                                llvm::StringRef what,
                                llvm::ArrayRef<mlir::Type> elements,
                                EmitError emitError);
/// Both have the same shape and element type; layouts may differ.
llvm::LogicalResult requireSameShape(const KernelSpec &spec, mlir::MemRefType a,
                                     llvm::StringRef nameA, mlir::MemRefType b,
                                     llvm::StringRef nameB,
                                     EmitError emitError);

/// Elements of all dimensions but the last; of all dimensions.
int64_t rowCount(mlir::MemRefType type);
int64_t elementCount(mlir::MemRefType type);

} // namespace qwen35::codegen

#endif // QWEN35_CODEGEN_KERNEL_KERNELSPEC_H
