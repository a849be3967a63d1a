#ifndef QWEN35_TOOLS_QWEN35_PLAN_PREDICT_H
#define QWEN35_TOOLS_QWEN35_PLAN_PREDICT_H

#include "frontend/config/ModelConfig.h"
#include "tools/qwen35-plan/Plan.h"
#include "tools/qwen35-plan/Timeline.h"

#include <optional>

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

/// What a mesh has to divide of this model with rows of so many tokens.
MeshLimits meshLimits(const ModelConfig &config, int64_t rowTokens);

Overlap overlapOf(const PlanRequest &request);

/// Compiles the step for a mesh and predicts it. `rows` of a step over all
/// ranks is a multiple of dpr x dps. Nothing, with `error` set, where the
/// compiler refuses.
std::optional<PlannedMesh>
predictMesh(const ModelConfig &config, const PlanRequest &request,
            const Hardware &hardware, const MeshShape &shape, int64_t zero,
            int64_t rows, bool keepEntries, std::string &error);

} // namespace qwen35::plan

#endif // QWEN35_TOOLS_QWEN35_PLAN_PREDICT_H
