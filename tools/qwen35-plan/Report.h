#ifndef QWEN35_TOOLS_QWEN35_PLAN_REPORT_H
#define QWEN35_TOOLS_QWEN35_PLAN_REPORT_H

#include "tools/qwen35-plan/Predict.h"

#include "llvm/Support/raw_ostream.h"

namespace qwen35::plan {

std::string formatSeconds(double seconds);
std::string formatGb(double bytes);

/// Tables for people: memory, the step by class, collectives, layers.
void printMesh(const PlannedMesh &mesh, const Hardware &hardware,
               llvm::raw_ostream &out);

/// What decides the time of the step, in a few words.
std::string limitOf(const PlannedMesh &mesh);

} // namespace qwen35::plan

#endif // QWEN35_TOOLS_QWEN35_PLAN_REPORT_H
