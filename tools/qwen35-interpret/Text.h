#ifndef QWEN35_TOOLS_QWEN35_INTERPRET_TEXT_H
#define QWEN35_TOOLS_QWEN35_INTERPRET_TEXT_H

#include "dialect/Interpreter/Interpreter.h"

namespace qwen35::interpret {

/// Prints "NAME = [[1, 2], [0.5, 4]]". Numbers are the shortest that read back
/// as the same value; a scalar has no brackets.
void print(llvm::raw_ostream &out, llvm::StringRef name,
           const interpreter::Tensor &tensor);

} // namespace qwen35::interpret

#endif // QWEN35_TOOLS_QWEN35_INTERPRET_TEXT_H
