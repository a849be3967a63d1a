#ifndef QWEN35_CODEGEN_CPU_KERNEL_H
#define QWEN35_CODEGEN_CPU_KERNEL_H

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"

#include <memory>
#include <string>
#include <utility>

namespace qwen35::codegen::cpu {

class KernelBuilder;

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

/// How a kernel is launched. The plan launches every stage with the same
/// arguments, one after another; tasks of one stage run in any order, on any
/// thread, so no task may read what another task of its stage writes.
struct KernelPlan {
  llvm::SmallVector<int64_t> grids; ///< Tasks of each stage, all > 0.
  int64_t workspaceBytes = 0; ///< 0: the workspace argument may be missing.
  /// (output, input) pairs that may be the very same buffer, element for
  /// element. All other outputs overlap with nothing: the code relies on it.
  llvm::SmallVector<std::pair<unsigned, unsigned>> mayAlias;
};

/// The kernels of one op: what one task computes, for any shapes and
/// attributes. Stateless; one instance serves all specs and all threads.
class KernelFamily {
public:
  virtual ~KernelFamily();
  virtual llvm::StringRef op() const = 0;

  /// Checks the spec (operand count, types, shapes, attributes; one error that
  /// names what was found and what was expected) and chooses the grids.
  virtual llvm::FailureOr<KernelPlan> plan(const KernelSpec &spec,
                                           EmitError emitError) const = 0;

  /// Appends the body of one task of `stage`. Called only for specs that `plan`
  /// accepts, possibly on several threads at once.
  virtual void emit(const KernelSpec &spec, unsigned stage,
                    KernelBuilder &k) const = 0;
};

/// The family of an op, or null.
const KernelFamily *lookupKernel(llvm::StringRef op);
/// Not thread-safe; replaces nothing: a second family of one op is an error of
/// ours (assert).
void registerKernel(std::unique_ptr<KernelFamily> family);
/// Registers every family of this library; may be called again.
void registerAllKernels();

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
/// As above for any rank >= 1 of f32; no constraint on sizes.
llvm::LogicalResult requireRows(const KernelSpec &spec, mlir::MemRefType type,
                                llvm::StringRef what, EmitError emitError);
/// Both have the same shape and element type; layouts may differ.
llvm::LogicalResult requireSameShape(const KernelSpec &spec, mlir::MemRefType a,
                                     llvm::StringRef nameA, mlir::MemRefType b,
                                     llvm::StringRef nameB,
                                     EmitError emitError);

/// Elements of all dimensions but the last; of all dimensions.
int64_t rowCount(mlir::MemRefType type);
int64_t elementCount(mlir::MemRefType type);

/// Tasks for `items` equal pieces of about `elementsPerItem` f32 operations:
/// few enough that a task outlasts its launch, enough for many threads. Use
/// with KernelBuilder::taskRange(items, tasks).
int64_t chooseTasks(int64_t items, int64_t elementsPerItem);

} // namespace qwen35::codegen::cpu

#endif // QWEN35_CODEGEN_CPU_KERNEL_H
