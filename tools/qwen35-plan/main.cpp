// qwen35-plan: predicts memory and time of a training step on many GPUs.

#include "runtime/recipe/recipe.h"
#include "runtime/schema/mesh.h"
#include "tools/qwen35-plan/Plan.h"

#include <CLI/CLI.hpp>

#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace {

int fail(const absl::Status &status) {
  std::fprintf(stderr, "qwen35-plan: %s\n",
               std::string(status.message()).c_str());
  return 1;
}

/// All axes of --mesh, also those that it leaves at 1.
absl::Status applyMesh(const std::string &text, qwen35::Recipe &recipe) {
  std::string error;
  std::optional<qwen35::MeshShape> shape = qwen35::parseMeshShape(text, error);
  if (!shape)
    return absl::InvalidArgumentError("--mesh: " + error);
  qwen35::ParallelRecipe &p = recipe.parallel;
  p.pp = shape->pp;
  p.dpr = shape->dpr;
  p.dps = shape->dps;
  p.cp = shape->cp;
  p.tp = shape->tp;
  p.ep = shape->ep;
  return absl::OkStatus();
}

} // namespace

int main(int argc, char **argv) {
  qwen35::plan::PlanRequest request;
  std::string recipeFile, mesh, zero = "auto";
  std::vector<std::string> sets;
  int64_t tokens = 0, maxDocs = 0;
  std::string remat, dtype;

  CLI::App app{
      "Predicts memory and time of a Qwen3.5 training step on a mesh of "
      "GPUs."};
  app.add_option("model", request.model,
                 "Preset (debug, debug-moe, 0.8b, 2b, 4b, 9b, 27b, 35b-a3b, "
                 "122b-a10b, 397b-a17b), config.json, or Hugging Face folder")
      ->required();
  app.add_option("--hardware", request.hardware,
                 "h200, h100, or a TOML file as tools/qwen35-plan/hardware/ "
                 "has them")
      ->default_str("h200");
  CLI::Option *meshFlag =
      app.add_option("--mesh", mesh,
                     "Ranks, as dpr=1,dps=2,cp=1,tp=2,ep=4, absent axes are 1 "
                     "(parallel.*); wins over --recipe and --set");
  CLI::Option *gpusFlag =
      app.add_option("--gpus", request.gpus,
                     "Rank the meshes that so many GPUs can form, and plan the "
                     "first")
          ->excludes(meshFlag)
          ->check(CLI::Range(int64_t(1), int64_t(65536)));
  app.add_option("--candidates", request.candidates,
                 "Meshes of a ranking that are compiled, the most promising by "
                 "closed forms")
      ->needs(gpusFlag)
      ->check(CLI::PositiveNumber)
      ->default_str("24");
  app.add_option("--top", request.top, "Lines of a ranking")
      ->needs(gpusFlag)
      ->check(CLI::PositiveNumber)
      ->default_str("8");
  app.add_option("--rows", request.rows,
                 "Rows of a step over all ranks; else one per data rank, with "
                 "--gpus one per GPU")
      ->check(CLI::PositiveNumber);
  app.add_option(
         "--zero", zero,
         "Split over data ranks are 1: moments, 2: gradients too, 3: "
         "weights too; 0: nothing; auto: 1 where there is more than one "
         "rank")
      ->check(CLI::IsMember({"auto", "0", "1", "2", "3"}))
      ->default_str("auto");
  CLI::Option *tokensFlag =
      app.add_option("--tokens", tokens, "Slots of a packed row (data.tokens)");
  CLI::Option *docsFlag = app.add_option(
      "--max-docs", maxDocs, "Documents a row may hold (data.max_docs)");
  CLI::Option *rematFlag = app.add_option(
      "--remat", remat,
      "none, selective or full (memory.remat); else --gpus tries all");
  CLI::Option *dtypeFlag =
      app.add_option("--dtype", dtype, "bf16 or fp32 (compute.dtype)");
  app.add_option("--recipe", recipeFile, "TOML file of settings");
  app.add_option("--set", sets,
                 "section.key=value: one setting; wins over --recipe")
      ->expected(1)
      ->take_all();
  app.add_option("--prefetch", request.prefetch,
                 "Layers that a collective may start ahead of its place in the "
                 "plan, if memory in flight were free")
      ->check(CLI::NonNegativeNumber)
      ->default_str("0");
  app.add_flag("--one-stream", request.oneStream,
               "Kernels wait for every collective");
  CLI::Option *simulateFlag =
      app.add_flag("--simulate", request.simulate,
                   "Replay the plans of all ranks event by event");
  app.add_option("--jitter", request.jitter,
                 "Of --simulate: kernels take up to this share longer, at "
                 "random")
      ->needs(simulateFlag)
      ->check(CLI::NonNegativeNumber);
  CLI::Option *slowFlag =
      app.add_option("--slow-rank", request.slowRank,
                     "Of --simulate: a rank whose kernels take longer")
          ->needs(simulateFlag)
          ->check(CLI::NonNegativeNumber);
  app.add_option("--slowdown", request.slowdown, "Of --slow-rank: how much")
      ->needs(slowFlag)
      ->check(CLI::Range(1.0, 1e3))
      ->default_str("1");
  app.add_option("--svg", request.svg,
                 "File for a picture of time and memory of the step");
  app.add_option("--json", request.json, "File for all figures");
  CLI11_PARSE(app, argc, argv);

  request.anyRemat = rematFlag->count() == 0;
  request.zero = zero == "auto" ? -1 : std::stoi(zero);
  if (!recipeFile.empty())
    if (absl::Status read = applyRecipeFile(recipeFile, request.recipe);
        !read.ok())
      return fail(read);
  for (const std::string &assignment : sets)
    if (absl::Status set = applyRecipeSet(assignment, request.recipe);
        !set.ok())
      return fail(set);
  auto flag = [&](CLI::Option *option, const std::string &assignment) {
    return option->count() > 0
               ? applyRecipeSet(assignment, request.recipe, option->get_name())
               : absl::OkStatus();
  };
  for (auto [option, assignment] :
       {std::pair(tokensFlag, "data.tokens=" + std::to_string(tokens)),
        std::pair(docsFlag, "data.max_docs=" + std::to_string(maxDocs)),
        std::pair(rematFlag, "memory.remat=" + remat),
        std::pair(dtypeFlag, "compute.dtype=" + dtype)})
    if (absl::Status set = flag(option, assignment); !set.ok())
      return fail(set);
  if (meshFlag->count() > 0)
    if (absl::Status set = applyMesh(mesh, request.recipe); !set.ok())
      return fail(set);
  return qwen35::plan::plan(request);
}
