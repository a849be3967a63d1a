#ifndef QWEN35_TOOLS_QWEN35_PLAN_PLAN_H
#define QWEN35_TOOLS_QWEN35_PLAN_PLAN_H

#include "runtime/recipe/recipe.h"

#include <cstdint>
#include <string>
#include <vector>

namespace qwen35::plan {

/// What the command line asks for; no MLIR here, as in tools/qwen35c/Driver.h.
struct PlanRequest {
  std::string model;             ///< preset, config.json or Hugging Face folder
  Recipe recipe;                 ///< resolved; with the mesh
  std::string hardware = "h200"; ///< a built-in description or a file
  int64_t rows = 0;       ///< of a step over all ranks; 0: four per GPU, or one
                          ///< per data rank of a given mesh
  int64_t zero = -1;      ///< what data ranks split, 0 to 3; -1: choose
  int64_t top = 5;        ///< meshes to compile and to print of a ranking
  bool oneStream = false; ///< kernels wait for every collective
  int64_t prefetch = 0;   ///< layers
};

/// Plans and prints. Returns the exit status.
int plan(const PlanRequest &request);

} // namespace qwen35::plan

#endif // QWEN35_TOOLS_QWEN35_PLAN_PLAN_H
