#ifndef QWEN35_CODEGEN_CPU_KERNEL_H
#define QWEN35_CODEGEN_CPU_KERNEL_H

#include "codegen/kernel/KernelSpec.h"

#include <memory>
#include <string>
#include <utility>

namespace qwen35::codegen::cpu {

class KernelBuilder;

using codegen::EmitError;
using codegen::KernelSpec;

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

/// Tasks for `items` equal pieces of about `elementsPerItem` f32 operations:
/// few enough that a task outlasts its launch, enough for many threads. Use
/// with KernelBuilder::taskRange(items, tasks).
int64_t chooseTasks(int64_t items, int64_t elementsPerItem);

} // namespace qwen35::codegen::cpu

#endif // QWEN35_CODEGEN_CPU_KERNEL_H
