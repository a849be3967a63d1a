#ifndef QWEN35_TOOLS_QWEN35_PLAN_SVG_H
#define QWEN35_TOOLS_QWEN35_PLAN_SVG_H

#include "tools/qwen35-plan/Predict.h"

#include "llvm/Support/raw_ostream.h"

namespace qwen35::plan {

/// A picture of a step: kernels and collectives over time, and below them what
/// the rank has in memory. The mesh was predicted with its entries.
void drawStep(const PlannedMesh &mesh, const Hardware &hardware,
              const std::string &title, llvm::raw_ostream &out);

} // namespace qwen35::plan

#endif // QWEN35_TOOLS_QWEN35_PLAN_SVG_H
