#ifndef QWEN35_TOOLS_QWEN35_INTERPRET_ARGUMENTS_H
#define QWEN35_TOOLS_QWEN35_INTERPRET_ARGUMENTS_H

#include "dialect/Interpreter/Interpreter.h"

#include <string>
#include <vector>

namespace qwen35::interpret {

/// Where the arguments of a function come from; empty means not given.
struct Sources {
  std::string inputs;               // safetensors, by argumentName()
  std::string weights;              // safetensors or Hugging Face folder
  std::vector<int64_t> documents;   // lengths, for every document table
  std::vector<std::string> scalars; // NAME=VALUE
  bool zeroState = false;           // m, v, grad and sum that inputs lack are 0
};

/// What a run needs.
struct Inputs {
  llvm::SmallVector<interpreter::Tensor> arguments;
  interpreter::ParamMap params;
};

/// Collects the arguments of `function` and the values of the parameters that
/// its module reads. For one argument, --scalar goes before --inputs, and that
/// before --documents, --weights and --zero-state.
///
/// Errors  Printed to stderr: files that cannot be read, a scalar or document
///         length that does not fit, and all arguments that nothing gives.
mlir::FailureOr<Inputs> collectInputs(mlir::func::FuncOp function,
                                      const Sources &sources);

} // namespace qwen35::interpret

#endif // QWEN35_TOOLS_QWEN35_INTERPRET_ARGUMENTS_H
