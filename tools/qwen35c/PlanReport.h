#ifndef QWEN35_TOOLS_QWEN35C_PLANREPORT_H
#define QWEN35_TOOLS_QWEN35C_PLANREPORT_H

#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/raw_ostream.h"

namespace qwen35 {

/// The memory plan of a module of stage S6 as a table: arenas, the peak of every
/// program by category, its distance from the lower bound, and the largest
/// buffers at the peak. Bytes are printed in units of 1e6 or 1e9.
void printPlanReport(mlir::ModuleOp module, llvm::raw_ostream &out);

/// "12.3 MB", "1.20 GB": decimal units, as memory budgets are given.
std::string formatBytes(int64_t bytes);

} // namespace qwen35

#endif // QWEN35_TOOLS_QWEN35C_PLANREPORT_H
