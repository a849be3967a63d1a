#include "tools/qwen35-plan/Plan.h"

#include "frontend/config/ModelFiles.h"
#include "frontend/config/Parameters.h"
#include "tools/qwen35-plan/Report.h"

#include "llvm/Support/FormatVariadic.h"

namespace qwen35::plan {
namespace {

class Planner {
public:
  explicit Planner(const PlanRequest &request) : request(request) {}

  int run() {
    absl::StatusOr<Hardware> read = loadHardware(request.hardware);
    if (!read.ok())
      return fail(std::string(read.status().message()));
    hardware = std::move(*read);
    llvm::Expected<ModelSource> parsed = parseModel(request.model);
    if (!parsed)
      return fail(llvm::toString(parsed.takeError()));
    source = std::move(*parsed);
    for (const std::string &warning : source.warnings)
      llvm::errs() << "qwen35-plan: warning: " << warning << "\n";
    return planOne();
  }

private:
  MeshLimits limits() const {
    const ModelConfig &c = source.config;
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
    limits.rowTokens = request.recipe.data.tokens;
    return limits;
  }

  int planOne() {
    const ParallelRecipe &p = request.recipe.parallel;
    MeshShape shape{p.pp, p.dpr, p.dps, p.cp, p.tp, p.ep};
    if (shape.pp != 1)
      return fail(llvm::formatv("pp is {0}, but pipeline stages are not built: "
                                "expected 1",
                                shape.pp));
    if (std::string why = explainMesh(shape, limits()); !why.empty())
      return fail("the model cannot be split so: " + why);
    int64_t data = shape.dpr * shape.dps;
    int64_t rows = request.rows ? request.rows : data;
    if (rows % data != 0)
      return fail(llvm::formatv("{0} rows do not split over {1} data ranks "
                                "(dpr x dps): expected a multiple",
                                rows, data));
    PlannedMesh mesh;
    std::string error;
    int64_t zero = request.zero >= 0 ? request.zero : shape.ranks() > 1;
    if (!planMesh(shape, zero, rows, mesh, error))
      return fail(error);
    header();
    printMesh(mesh, hardware, llvm::outs());
    return mesh.fits ? 0 : 2;
  }

  void header() {
    llvm::outs() << llvm::formatv(
        "{0}, {1} parameters, on {2}\n\n", source.name,
        countParameters(source.config).total, hardware.name);
  }

  bool planMesh(const MeshShape &shape, int64_t zero, int64_t rows,
                PlannedMesh &mesh, std::string &error) {
    CompileOptions options;
    options.recipe = request.recipe;
    options.mesh = shape;
    options.zero = zero;
    std::unique_ptr<LocalStep> step =
        compileStep(source.config, options, error);
    if (!step)
      return false;
    mesh.step = std::move(*step);
    mesh.rows = rows;
    mesh.microbatches = rows / (shape.dpr * shape.dps);
    Overlap overlap;
    overlap.twoStreams = !request.oneStream;
    overlap.prefetch = static_cast<int>(request.prefetch);
    mesh.timeline =
        predictStep(mesh.step, mesh.microbatches, hardware, overlap);
    overlap.twoStreams = false;
    mesh.oneStream =
        predictStep(mesh.step, mesh.microbatches, hardware, overlap);
    double tokens = double(rows) * double(mesh.step.rowTokens);
    mesh.tokensPerSecond = tokens / mesh.timeline.seconds;
    mesh.mfu = trainingFlops(source.config, mesh.step.rowTokens,
                             DeltaRuleCount::Useful) *
               mesh.perGpu() / (hardware.peakTflops * 1e12);
    mesh.fits = mesh.step.totalBytes <= hardware.plannedGb * 1e9;
    return true;
  }

  static int fail(const std::string &message) {
    llvm::errs() << "qwen35-plan: " << message << "\n";
    return 1;
  }

  const PlanRequest &request;
  Hardware hardware;
  ModelSource source;
};

} // namespace

int plan(const PlanRequest &request) { return Planner(request).run(); }

} // namespace qwen35::plan
