#include "tools/qwen35-plan/Predict.h"

#include "frontend/config/Parameters.h"

namespace qwen35::plan {

MeshLimits meshLimits(const ModelConfig &c, int64_t rowTokens) {
  MeshLimits limits;
  if (c.numLayers(LayerType::FullAttention)) {
    limits.queryHeads = c.numAttentionHeads;
    limits.kvHeads = c.numKeyValueHeads;
  }
  if (c.numLayers(LayerType::LinearAttention)) {
    limits.keyHeads = c.linearNumKeyHeads;
    limits.valueHeads = c.linearNumValueHeads;
  }
  limits.ffn = c.moe ? c.sharedExpertIntermediateSize : c.intermediateSize;
  limits.experts = c.numExperts;
  limits.vocab = c.vocabSize;
  limits.rowTokens = rowTokens;
  return limits;
}

Overlap overlapOf(const PlanRequest &request) {
  return {.twoStreams = !request.oneStream,
          .prefetch = static_cast<int>(request.prefetch)};
}

std::optional<PlannedMesh>
predictMesh(const ModelConfig &config, const PlanRequest &request,
            const Hardware &hardware, const MeshShape &shape, int64_t zero,
            int64_t rows, bool keepEntries, std::string &error) {
  CompileOptions options;
  options.recipe = request.recipe;
  options.mesh = shape;
  options.zero = zero;
  std::unique_ptr<LocalStep> step = compileStep(config, options, error);
  if (!step)
    return std::nullopt;
  PlannedMesh mesh;
  mesh.step = std::move(*step);
  mesh.rows = rows;
  mesh.microbatches = rows / (shape.dpr * shape.dps);
  Overlap overlap = overlapOf(request);
  mesh.timeline =
      predictStep(mesh.step, mesh.microbatches, hardware, overlap, keepEntries);
  overlap.twoStreams = false;
  mesh.oneStream = predictStep(mesh.step, mesh.microbatches, hardware, overlap);
  double tokens = double(rows) * double(mesh.step.rowTokens);
  mesh.tokensPerSecond = tokens / mesh.timeline.seconds;
  mesh.mfu =
      trainingFlops(config, mesh.step.rowTokens, DeltaRuleCount::Useful) *
      mesh.perGpu() / (hardware.peakTflops * 1e12);
  mesh.fits = mesh.step.totalBytes <= hardware.plannedGb * 1e9;
  return mesh;
}

} // namespace qwen35::plan
