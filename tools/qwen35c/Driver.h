#ifndef QWEN35_TOOLS_QWEN35C_DRIVER_H
#define QWEN35_TOOLS_QWEN35C_DRIVER_H

#include "runtime/recipe/recipe.h"

#include <string>
#include <vector>

namespace qwen35 {

/// What the command line asks for; no MLIR here, so that main.cpp, whose option
/// parser throws, stays apart from code built without exceptions.
struct CompileRequest {
  std::string model;  ///< preset, config.json or Hugging Face folder
  std::string output; ///< the bundle; empty with dryRun
  std::vector<std::string> targets; ///< cpu, sm_90a ...; the first is the default
  std::string cpu;    ///< of the cpu target: x86-64-v3, x86-64-v4 or native
  Recipe recipe;      ///< resolved
  std::string dumpIr; ///< folder for the IR of every stage; empty: none
  std::string emitCuda; ///< folder for device sources and launches; empty: none
  std::string kernelCache; ///< folder; empty: the user's cache
  bool useKernelCache = true;
  int threads = 0; ///< kernels compiled at a time; 0: as many as CPUs
  bool tunedProducts = true; ///< take algorithms from the built-in table
  bool dryRun = false;
  bool quiet = false;
};

/// Compiles. Progress goes to standard output, one line per stage; errors to
/// standard error. Returns the exit status.
int compile(const CompileRequest &request);

} // namespace qwen35

#endif // QWEN35_TOOLS_QWEN35C_DRIVER_H
