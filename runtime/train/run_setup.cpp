#include "runtime/train/run_setup.h"

#include <climits>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/bundle/status_macros.h"
#include "runtime/checkpoint/file_io.h"
#include "runtime/checkpoint/json.h"

namespace qwen35 {
namespace {

absl::Status wrong(absl::string_view message) {
  return absl::InvalidArgumentError(message);
}

/// A name that still leads there when the next run starts elsewhere.
std::string absolutePath(const std::string &path) {
  char resolved[PATH_MAX];
  return ::realpath(path.c_str(), resolved) ? std::string(resolved) : path;
}

absl::Status checkDoorOptions(const RunOptions &options) {
  if (options.batch.empty() || options.dump.empty())
    return wrong("--batch and --dump go together: the batch to run and the "
                 "file to write");
  if (!options.data.empty() || !options.out.empty() || options.resume ||
      !options.exportHf.empty() || options.evalLoss)
    return wrong("--batch runs the given batch alone; --data, --out, --resume, "
                 "--export-hf and --eval-loss do not go with it");
  if (options.steps && *options.steps < 1)
    return wrong(absl::StrCat("--steps ", *options.steps,
                              " with --batch, expected at least 1"));
  return absl::OkStatus();
}

absl::Status checkOptions(const RunOptions &options) {
  if (!options.weights.empty() && options.initSeed)
    return wrong("give --weights or --init, not both");
  bool hasWeights = !options.weights.empty() || options.initSeed.has_value();
  if (!hasWeights && !options.resume && !options.dryRun)
    return wrong("where do the weights come from? Give --weights DIR or --init "
                 "SEED");
  if (options.steps && *options.steps < 0)
    return wrong(absl::StrCat("--steps ", *options.steps,
                              ", expected at least 0"));
  if (options.virtualRanks < 0 || options.virtualRanks > 4096)
    return wrong(absl::StrCat("--virtual-ranks ", options.virtualRanks,
                              ", expected 1 to 4096"));
  if (options.maxSkipped < 1)
    return wrong(absl::StrCat("--max-skipped ", options.maxSkipped,
                              ", expected at least 1"));
  if (!options.batch.empty() || !options.dump.empty())
    return checkDoorOptions(options);
  if (options.dryRun)
    return absl::OkStatus();
  if (options.out.empty())
    return wrong("--out RUN_DIR is missing: where checkpoints and metrics go");
  bool trains = !options.steps || *options.steps > 0;
  if (options.data.empty() && (trains || options.evalLoss))
    return wrong("--data FILE is missing: what to train on");
  return absl::OkStatus();
}

absl::StatusOr<Recipe> resolveRecipe(const RunOptions &options,
                                     const bundle::Bundle &message) {
  Recipe compiled;
  if (message.recipe().toml().empty()) {
    compiled.data.tokens = message.io().tokens();
    compiled.data.maxDocs = message.io().max_docs() - 1;
  } else {
    QWEN35_RETURN_IF_ERROR(applyRecipeText(message.recipe().toml(),
                                           "the bundle's recipe", compiled));
  }
  Recipe recipe = compiled;
  for (const std::string &file : options.recipeFiles)
    QWEN35_RETURN_IF_ERROR(applyRecipeFile(file, recipe));
  for (const std::string &assignment : options.sets)
    QWEN35_RETURN_IF_ERROR(applyRecipeSet(assignment, recipe));
  // A given batch is repeated; the schedule still follows train.steps.
  if (options.steps && *options.steps > 0 && options.batch.empty())
    QWEN35_RETURN_IF_ERROR(applyRecipeSet(
        absl::StrCat("train.steps=", *options.steps), recipe, "--steps"));
  QWEN35_RETURN_IF_ERROR(checkBakedKeys(compiled, recipe));
  QWEN35_RETURN_IF_ERROR(validateRecipe(recipe));
  return recipe;
}

} // namespace

std::string WeightsOrigin::toJson(int64_t dataSeed) const {
  nlohmann::json init;
  if (seed)
    init["seed"] = *seed;
  else
    init["weights"] = folder;
  return jsonText({{"data_seed", dataSeed}, {"init", std::move(init)}}, -1);
}

absl::StatusOr<WeightsOrigin>
WeightsOrigin::fromJson(const std::string &text) {
  absl::StatusOr<nlohmann::json> parsed =
      parseJson(text, "rng state of the checkpoint");
  QWEN35_RETURN_IF_ERROR(parsed.status());
  WeightsOrigin origin;
  if (parsed->is_object() && parsed->contains("init")) {
    const nlohmann::json &init = (*parsed)["init"];
    if (init.is_object() && init.contains("seed") &&
        init["seed"].is_number_unsigned()) {
      origin.seed = init["seed"].get<uint64_t>();
      return origin;
    }
    if (init.is_object() && init.contains("weights") &&
        init["weights"].is_string()) {
      origin.folder = init["weights"].get<std::string>();
      return origin;
    }
  }
  return absl::DataLossError("the checkpoint does not say where the weights of "
                             "the run came from");
}

std::string WeightsOrigin::text() const {
  return seed ? absl::StrCat("seed ", *seed) : folder;
}

StepOptions stepOptionsOf(const RunOptions &options) {
  StepOptions result;
  result.target = options.target;
  result.threads = options.threads;
  result.profile = options.profile;
  result.eager = options.eager;
  result.sync = options.sync;
  result.poison = options.poison;
  return result;
}

WeightsOrigin originOf(const RunOptions &options) {
  WeightsOrigin origin;
  origin.seed = options.initSeed;
  if (!options.weights.empty())
    origin.folder = absolutePath(options.weights);
  return origin;
}

absl::StatusOr<RunSetup> setUpRun(const RunOptions &options) {
  QWEN35_RETURN_IF_ERROR(checkOptions(options));
  RunSetup setup;
  absl::StatusOr<std::shared_ptr<const BundleFile>> bundle =
      BundleFile::open(options.bundle);
  QWEN35_RETURN_IF_ERROR(bundle.status());
  // A dry run only describes: there need be no device for it.
  bool describes = options.dryRun && options.target == "auto";
  bundle = describes
               ? (*bundle)->plan(0)
               : selectPlan(*std::move(bundle), options.target,
                            &setup.targetNote);
  if (!bundle.ok())
    return absl::Status(
        bundle.status().code(),
        absl::StrCat(options.bundle, ": ", bundle.status().message()));
  setup.bundle = std::move(*bundle);
  absl::StatusOr<std::vector<ParamSpec>> params =
      paramTable(setup.bundle->message());
  if (!params.ok())
    return absl::Status(params.status().code(),
                        absl::StrCat(options.bundle, ": ",
                                     params.status().message()));
  setup.params = std::move(*params);
  absl::StatusOr<Recipe> recipe =
      resolveRecipe(options, setup.bundle->message());
  QWEN35_RETURN_IF_ERROR(recipe.status());
  setup.recipe = std::move(*recipe);
  setup.steps =
      options.steps == int64_t{0} ? 0 : setup.recipe.train.steps;
  if (!options.weights.empty()) {
    absl::StatusOr<HfCheckpoint> original =
        HfCheckpoint::open(options.weights, setup.params);
    QWEN35_RETURN_IF_ERROR(original.status());
    setup.original = std::make_shared<HfCheckpoint>(std::move(*original));
  }
  if (!options.exportHf.empty())
    QWEN35_RETURN_IF_ERROR(checkExportTarget(options.exportHf));
  return setup;
}

} // namespace qwen35
