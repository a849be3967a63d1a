#ifndef QWEN35_DIALECT_INTERPRETER_NAMES_H
#define QWEN35_DIALECT_INTERPRETER_NAMES_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <string>

namespace qwen35::interpreter {

// What files and reports call the arguments and results of a function, from the
// attributes that docs/stages.md describes. Names are not checked for being
// unique here.

/// `qwen35.name`, with the role before it where a parameter has several
/// (`grad.`, `m.`, `v.`, `work.`) or for a running sum (`sum.`); `arg0`, `arg1`, ... for
/// an argument without name.
std::string argumentName(mlir::func::FuncOp function, unsigned index);

/// The name of the argument that the result overwrites; `grad.` and the
/// parameter for a gradient; `qwen35.name`; else `result0`, `result1`, ...
std::string resultName(mlir::func::FuncOp function, unsigned index);

/// The role of an argument, empty if it has none.
llvm::StringRef argumentRole(mlir::func::FuncOp function, unsigned index);

} // namespace qwen35::interpreter

#endif // QWEN35_DIALECT_INTERPRETER_NAMES_H
