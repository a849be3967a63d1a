#ifndef QWEN35_DIALECT_INTERPRETER_INTERPRETER_H
#define QWEN35_DIALECT_INTERPRETER_INTERPRETER_H

#include "dialect/Qwen35/IR/Qwen35Dialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/StringMap.h"

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

namespace qwen35::interpreter {

/// Elements of a value, row-major and dense.
using Elements =
    std::variant<std::vector<double>, std::vector<float>, std::vector<int32_t>>;

/// A value outside of a run.
///
/// Shapes  elements: the product of shape; a scalar has shape {}. A
///         `!qwen35.seq` is int32 of shape {SeqTable::words()}.
struct Tensor {
  std::vector<int64_t> shape;
  Elements elements;
};

/// Values of `qwen35.param`, by their Hugging Face name (flat form).
using ParamMap = llvm::StringMap<Tensor>;

/// What a run cost.
struct Stats {
  int64_t operations = 0; // evaluated, those of called functions included
  int64_t peakBytes = 0;  // of values alive at once that the run itself made
};

struct Options {
  /// True: everything in double, and no value is ever rounded, whatever its
  /// element type: the oracle that passes are held against.
  /// False: f32 in float, f64 in double, and a bf16 value rounded once, to
  /// nearest even, when it is made: what a device would compute.
  bool fp64 = true;
  /// Filled if given.
  Stats *stats = nullptr;
};

/// Runs a function of stage S0 or S1, or one after --qwen35-lower-gdn, on the
/// reference ops.
///
/// `qwen35.param` reads `params`, `func.call` runs functions of the same
/// module, `qkern.group` runs its body in place, `arith.constant` is a literal.
/// A value is freed after its last use. Elements that an op need not write
/// (tiles of unused chunks) are 0.
///
/// Shapes  arguments: one per argument of the function, of its shape; results
///         as the function returns them. Floating arguments may be float or
///         double, results are double if `fp64` and for f64 types, else float.
/// Errors  Emitted at the function or op, which they name: an argument or
///         parameter that is missing or of another shape, an op without
///         evaluator, control flow, recursion, whatever a reference op refuses.
/// Source  DESIGN.md 1: every stage S0 to S3 is executable.
mlir::FailureOr<llvm::SmallVector<Tensor>>
interpret(mlir::func::FuncOp function, llvm::ArrayRef<Tensor> arguments,
          const ParamMap &params, const Options &options = {});

/// Runs a function of stage S3 on every rank of the mesh of its module, op by
/// op in lock step; collectives meet across the ranks.
///
/// Shapes  arguments: one list per rank, each as for `interpret`; the results
///         likewise. `stats` count all ranks.
/// Errors  As `interpret`, naming the rank where one alone is at fault; a
///         module without mesh, or another number of lists than ranks.
mlir::FailureOr<llvm::SmallVector<llvm::SmallVector<Tensor>>>
interpretRanks(mlir::func::FuncOp function,
               llvm::ArrayRef<llvm::SmallVector<Tensor>> arguments,
               const Options &options = {});

/// True if `interpret`, or `interpretRanks`, can run the op.
bool hasEvaluator(mlir::OperationName name);

/// The table of documents of these lengths, in order; what they leave of the
/// row is one padding document. Nothing if they do not fit (fillSeqTable).
std::optional<Tensor> documentTable(SeqType type,
                                    llvm::ArrayRef<int64_t> lengths);

} // namespace qwen35::interpreter

#endif // QWEN35_DIALECT_INTERPRETER_INTERPRETER_H
