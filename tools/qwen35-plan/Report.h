#ifndef QWEN35_TOOLS_QWEN35_PLAN_REPORT_H
#define QWEN35_TOOLS_QWEN35_PLAN_REPORT_H

#include "tools/qwen35-plan/Timeline.h"

#include "llvm/Support/raw_ostream.h"

namespace qwen35::plan {

/// One mesh, planned.
struct PlannedMesh {
  LocalStep step;
  Timeline timeline, oneStream;
  int64_t rows = 0, microbatches = 1;
  double tokensPerSecond = 0, mfu = 0;
  bool fits = true;

  double perGpu() const { return tokensPerSecond / double(step.mesh.ranks()); }
};

std::string formatSeconds(double seconds);
std::string formatGb(double bytes);

/// Tables for people: memory, the step by class, collectives, layers.
void printMesh(const PlannedMesh &mesh, const Hardware &hardware,
               llvm::raw_ostream &out);

/// What decides the time of the step, in a few words.
std::string limitOf(const PlannedMesh &mesh);

} // namespace qwen35::plan

#endif // QWEN35_TOOLS_QWEN35_PLAN_REPORT_H
