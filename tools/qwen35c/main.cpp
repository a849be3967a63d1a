// qwen35c: compiles a Qwen3.5 training step ahead of time into one file.

#include "runtime/recipe/recipe.h"
#include "runtime/schema/mesh.h"
#include "tools/qwen35c/Driver.h"

#include <CLI/CLI.hpp>

#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace {

int fail(const absl::Status &status) {
  std::fprintf(stderr, "qwen35c: %s\n",
               std::string(status.message()).c_str());
  return 1;
}

/// All axes of --mesh, also those that it leaves at 1.
absl::Status applyMesh(const std::string &text, qwen35::Recipe &recipe) {
  std::string error;
  std::optional<qwen35::MeshShape> shape = qwen35::parseMeshShape(text, error);
  if (!shape)
    return absl::InvalidArgumentError("--mesh: " + error);
  for (auto [axis, size] :
       {std::pair("pp", shape->pp), std::pair("dpr", shape->dpr),
        std::pair("dps", shape->dps), std::pair("cp", shape->cp),
        std::pair("tp", shape->tp), std::pair("ep", shape->ep)})
    if (absl::Status set = applyRecipeSet(std::string("parallel.") + axis +
                                              "=" + std::to_string(size),
                                          recipe, "--mesh");
        !set.ok())
      return set;
  return absl::OkStatus();
}

} // namespace

int main(int argc, char **argv) {
  qwen35::CompileRequest request;
  std::string recipeFile, emit, mesh;
  bool noCache = false;
  std::vector<std::string> sets;
  int64_t tokens = 0, maxDocs = 0;

  CLI::App app{"Compiles a Qwen3.5 training step (forward, backward, clip, "
               "AdamW) into a bundle that qwen35-run executes."};
  app.add_option("model", request.model,
                 "Preset (debug, debug-moe, 0.8b, 2b, 4b, 9b, 27b, 35b-a3b, "
                 "122b-a10b, 397b-a17b), config.json, or Hugging Face folder")
      ->required();
  app.add_option("--target", request.targets,
                 "What to compile for: cpu, or a GPU as sm_90a (also sm_80, "
                 "sm_100a, sm_120: compiled, never run by us); several with "
                 "commas make one bundle, its first the default of a run")
      ->delimiter(',')
      ->default_str("cpu");
  app.add_option("--cpu", request.cpu,
                 "Instruction set of the cpu target: x86-64-v3 (AVX2), "
                 "x86-64-v4 (AVX-512), or native: the better of the two here")
      ->default_str("x86-64-v3");
  CLI::Option *tokensFlag =
      app.add_option("--tokens", tokens, "Slots of a packed row (data.tokens)");
  CLI::Option *docsFlag = app.add_option(
      "--max-docs", maxDocs, "Documents a row may hold (data.max_docs)");
  app.add_option("--recipe", recipeFile, "TOML file of settings");
  app.add_option("--set", sets,
                 "section.key=value: one setting; wins over --recipe")
      ->expected(1)
      ->take_all();
  CLI::Option *meshFlag =
      app.add_option("--mesh", mesh,
                     "Ranks, as pp=1,dpr=1,dps=2,cp=1,tp=2,ep=4, absent axes "
                     "are 1 (parallel.*); wins over --recipe and --set");
  CLI::Option *output =
      app.add_option("-o,--output", request.output, "Bundle to write");
  app.add_option("--dump-ir", request.dumpIr,
                 "Folder for the IR of every stage, S0 to S6");
  app.add_option("--emit", emit,
                 "cuda=FOLDER: also write the device sources, their headers "
                 "and the launch plan there");
  app.add_option("--kernel-cache", request.kernelCache,
                 "Folder of compiled GPU kernels, by content")
      ->default_str("$QWEN35_CACHE_DIR, ~/.cache/qwen35");
  app.add_flag("--no-kernel-cache", noCache, "Compile every GPU kernel anew");
  app.add_flag("!--untuned-products", request.tunedProducts,
               "Leave products to the library's first answer at load, not to "
               "the table that qwen35-run --tune made");
  app.add_option("-j,--threads", request.threads,
                 "GPU kernels compiled at a time; 0: one per CPU");
  app.add_flag("--dry-run", request.dryRun,
               "Go as far as the memory plan; print recipe, parameters and "
               "plan; write nothing");
  app.add_flag("-q,--quiet", request.quiet, "No progress lines");
  std::string keys = "Settings (--set, --recipe), with their defaults:\n";
  for (const qwen35::RecipeKeyInfo &key : qwen35::recipeKeys())
    if (key.baked)
      keys += "  " + key.name + " = " + key.defaultValue + "   " + key.help +
              "\n";
  app.footer(keys);
  CLI11_PARSE(app, argc, argv);

  if (request.cpu.empty())
    request.cpu = "x86-64-v3";
  if (request.targets.empty())
    request.targets = {"cpu"};
  if (!emit.empty()) {
    constexpr const char *kCuda = "cuda=";
    if (emit.rfind(kCuda, 0) != 0 || emit.size() == std::strlen(kCuda)) {
      std::fprintf(stderr, "qwen35c: --emit is \"%s\", expected cuda=FOLDER\n",
                   emit.c_str());
      return 1;
    }
    request.emitCuda = emit.substr(std::strlen(kCuda));
  }
  request.useKernelCache = !noCache;
  if (request.dryRun == (output->count() > 0)) {
    std::fprintf(stderr, "qwen35c: expected either -o FILE or --dry-run\n");
    return 1;
  }
  if (!recipeFile.empty())
    if (absl::Status read = applyRecipeFile(recipeFile, request.recipe);
        !read.ok())
      return fail(read);
  for (const std::string &assignment : sets)
    if (absl::Status set = applyRecipeSet(assignment, request.recipe);
        !set.ok())
      return fail(set);
  if (meshFlag->count() > 0)
    if (absl::Status set = applyMesh(mesh, request.recipe); !set.ok())
      return fail(set);
  if (tokensFlag->count() > 0)
    if (absl::Status set =
            applyRecipeSet("data.tokens=" + std::to_string(tokens),
                           request.recipe, "--tokens");
        !set.ok())
      return fail(set);
  if (docsFlag->count() > 0)
    if (absl::Status set =
            applyRecipeSet("data.max_docs=" + std::to_string(maxDocs),
                           request.recipe, "--max-docs");
        !set.ok())
      return fail(set);
  if (absl::Status valid = validateRecipe(request.recipe); !valid.ok())
    return fail(valid);
  return qwen35::compile(request);
}
