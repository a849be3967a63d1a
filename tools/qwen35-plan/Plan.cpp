#include "tools/qwen35-plan/Plan.h"

#include "frontend/config/ModelFiles.h"
#include "frontend/config/Parameters.h"
#include "tools/qwen35-plan/Json.h"
#include "tools/qwen35-plan/Report.h"
#include "tools/qwen35-plan/Svg.h"

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
    return request.gpus > 0 ? planAll() : planOne();
  }

private:
  int planOne() {
    const ParallelRecipe &p = request.recipe.parallel;
    MeshShape shape{p.pp, p.dpr, p.dps, p.cp, p.tp, p.ep};
    if (shape.pp != 1)
      return fail(llvm::formatv("pp is {0}, but pipeline stages are not built: "
                                "expected 1",
                                shape.pp));
    if (std::string why = explainMesh(
            shape, meshLimits(source.config, request.recipe.data.tokens));
        !why.empty())
      return fail("the model cannot be split so: " + why);
    int64_t data = shape.dpr * shape.dps;
    int64_t rows = request.rows ? request.rows : data;
    if (rows % data != 0)
      return fail(llvm::formatv("{0} rows do not split over {1} data ranks "
                                "(dpr x dps): expected a multiple",
                                rows, data));
    int64_t zero = request.zero >= 0 ? request.zero : shape.ranks() > 1;
    header();
    return report(shape, zero, rows, nullptr);
  }

  int planAll() {
    std::string error;
    std::optional<Ranking> ranking =
        rankMeshes(source.config, request, hardware, error);
    if (!ranking)
      return fail(error);
    header();
    printRanking(source.config, request, hardware, *ranking, llvm::outs());
    if (ranking->meshes.empty() || !ranking->meshes.front().fits) {
      llvm::outs()
          << "no mesh fits: more GPUs, memory.remat, or shorter rows\n";
      return 2;
    }
    const RankedMesh &best = ranking->meshes.front();
    llvm::outs() << "the first, all of its layers:\n\n";
    request.recipe.memory.remat = best.remat;
    return report(best.shape, best.zero, ranking->rows, &*ranking);
  }

  int report(const MeshShape &shape, int64_t zero, int64_t rows,
             const Ranking *ranking) {
    std::string error;
    std::optional<PlannedMesh> mesh =
        predictMesh(source.config, request, hardware, shape, zero, rows,
                    /*keepEntries=*/!request.svg.empty(), error);
    if (!mesh)
      return fail(error);
    printMesh(*mesh, hardware, llvm::outs());
    std::optional<Simulation> simulation;
    if (request.simulate) {
      simulation.emplace();
      SimulateOptions options{.jitter = request.jitter,
                              .slowRank = request.slowRank,
                              .slowdown = request.slowdown};
      if (request.slowRank >= shape.ranks())
        return fail(
            llvm::formatv("--slow-rank is {0}: expected a rank below {1}",
                          request.slowRank, shape.ranks()));
      error = simulate({&mesh->step}, mesh->microbatches, hardware,
                       overlapOf(request), options, *simulation);
      if (!error.empty())
        return fail(error);
      printSimulation(*simulation, mesh->timeline.seconds, llvm::outs());
    }
    auto write = [&](const std::string &path, auto what) {
      if (path.empty())
        return true;
      std::error_code code;
      llvm::raw_fd_ostream out(path, code);
      if (!code) {
        what(out);
        out.flush();
        code = out.error();
        out.clear_error();
      }
      if (code)
        llvm::errs() << "qwen35-plan: cannot write " << path << ": "
                     << code.message() << "\n";
      return !code;
    };
    std::string title = llvm::formatv("{0} on {1} x {2}: {3}, zero {4}",
                                      source.name, shape.ranks(), hardware.name,
                                      printMeshShape(shape), zero);
    bool wrote = write(request.svg, [&](llvm::raw_ostream &out) {
      drawStep(*mesh, hardware, title, out);
    });
    wrote &= write(request.json, [&](llvm::raw_ostream &out) {
      writeJson(&*mesh, ranking, simulation ? &*simulation : nullptr,
                source.name, hardware, out);
    });
    return !wrote ? 1 : mesh->fits ? 0 : 2;
  }

  void header() {
    llvm::outs() << llvm::formatv(
        "{0}, {1} parameters, on {2}\n\n", source.name,
        countParameters(source.config).total, hardware.name);
  }

  static int fail(const std::string &message) {
    llvm::errs() << "qwen35-plan: " << message << "\n";
    return 1;
  }

  PlanRequest request;
  Hardware hardware;
  ModelSource source;
};

} // namespace

int plan(const PlanRequest &request) { return Planner(request).run(); }

} // namespace qwen35::plan
