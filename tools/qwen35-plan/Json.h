#ifndef QWEN35_TOOLS_QWEN35_PLAN_JSON_H
#define QWEN35_TOOLS_QWEN35_PLAN_JSON_H

#include "tools/qwen35-plan/Ranking.h"
#include "tools/qwen35-plan/Simulate.h"

namespace qwen35::plan {

/// All figures for programs, units in the names; what is null is left out.
void writeJson(const PlannedMesh *mesh, const Ranking *ranking,
               const Simulation *simulation, const std::string &model,
               const Hardware &hardware, llvm::raw_ostream &out);

} // namespace qwen35::plan

#endif // QWEN35_TOOLS_QWEN35_PLAN_JSON_H
