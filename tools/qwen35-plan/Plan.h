#ifndef QWEN35_TOOLS_QWEN35_PLAN_PLAN_H
#define QWEN35_TOOLS_QWEN35_PLAN_PLAN_H

#include "runtime/recipe/recipe.h"

#include <cstdint>
#include <string>
#include <vector>

namespace qwen35::plan {

/// What the command line asks for; no MLIR here, as in tools/qwen35c/Driver.h.
struct PlanRequest {
  std::string model; ///< preset, config.json or Hugging Face folder
  Recipe recipe;     ///< resolved; its mesh counts unless `gpus` is set
  std::string hardware = "h200"; ///< a built-in description or a file
  int64_t gpus = 0;              ///< rank the meshes of so many; 0: one mesh
  int64_t candidates = 24;       ///< meshes of a ranking that are compiled
  int64_t top = 8;               ///< lines of a ranking
  int64_t rows = 0;  ///< of a step over all ranks; 0: one per GPU of a ranking,
                     ///< one per data rank of a mesh
  int64_t zero = -1; ///< what data ranks split, 0 to 3; -1: the fastest of a
                     ///< ranking, 1 on a mesh
  bool anyRemat = true;   ///< a ranking tries all of memory.remat
  bool oneStream = false; ///< kernels wait for every collective
  int64_t prefetch = 0;   ///< layers
  bool simulate = false;  ///< all ranks, event by event
  double jitter = 0;      ///< of a kernel's time in a simulation, a share of it
  int64_t slowRank = -1;  ///< of a simulation; -1: none
  double slowdown = 1;    ///< of its kernels
  std::string svg, json;  ///< files; empty: none
};

/// Plans and prints. Returns the exit status.
int plan(const PlanRequest &request);

} // namespace qwen35::plan

#endif // QWEN35_TOOLS_QWEN35_PLAN_PLAN_H
