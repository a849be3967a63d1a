#ifndef QWEN35_RUNTIME_RECIPE_RECIPE_H
#define QWEN35_RUNTIME_RECIPE_RECIPE_H

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace qwen35 {

/// AdamW. All but `lr` are constants of the compiled optimizer kernels.
struct OptimRecipe {
  double lr = 3e-4; // peak; the schedule scales it
  std::array<double, 2> betas{0.9, 0.95};
  double eps = 1e-8;
  double weightDecay = 0.1;
  double gradClip = 1.0; // max global norm; 0: no clipping
};

/// How lr follows the steps; runtime/schedule/schedule.h has the formulas.
struct ScheduleRecipe {
  std::string kind = "cosine"; // constant, linear, cosine, wsd
  int64_t warmupSteps = 0;
  double minLr = 0;
  int64_t decaySteps = 0; // wsd; 0: a tenth of train.steps
};

struct LossRecipe {
  std::string aux = "none"; // none, pooled, per_layer
  double auxCoef = 1e-3;
};

struct TrainRecipe {
  int64_t steps = 1000;
  int64_t rows = 8;      // packed rows per optimizer step, over all ranks
  int64_t saveEvery = 0; // steps between checkpoints; 0: at the end only
  int64_t keepLast = 2;  // checkpoints kept; 0: all
  int64_t seed = 0;      // of the data order
};

struct DataRecipe {
  int64_t tokens = 2048; // slots of a packed row
  int64_t maxDocs = 16;  // documents in it, padding not counted
};

/// The mesh, outermost axis first; ep is a view of (dps, cp, tp).
struct ParallelRecipe {
  int64_t pp = 1, dpr = 1, dps = 1, cp = 1, tp = 1, ep = 1;
  int64_t zero = 1; // dps and cp split: 1 moments, 2 gradients, 3 weights too
};

struct ComputeRecipe {
  std::string dtype = "auto"; // of activations: fp32, bf16; auto: the target's
};

struct MemoryRecipe {
  std::string remat = "none"; // none, selective, full
  double budgetGb = 0;        // 1e9 bytes; 0: no budget
};

/// Everything a run can be told, resolved.
///
/// Units   Steps, rows, tokens and documents count; budgetGb is 1e9 bytes.
/// Order   Defaults, then files in the order given, then --set and flags: a
///         later value wins. `origin` remembers who set a key, for messages.
/// Source  The key names are the issue's; docs of each key: `recipeKeys()`.
struct Recipe {
  OptimRecipe optim;
  ScheduleRecipe schedule;
  LossRecipe loss;
  TrainRecipe train;
  DataRecipe data;
  ParallelRecipe parallel;
  ComputeRecipe compute;
  MemoryRecipe memory;

  /// "section.key" to "run.toml:12", "--set" or the flag; absent: a default.
  std::map<std::string, std::string> origin;
};

/// One key, for --help and the docs.
struct RecipeKeyInfo {
  std::string name;         // optim.weight_decay
  std::string rule;         // a number, at least 0
  std::string defaultValue; // as TOML
  std::string help;
  bool baked; // fixed by qwen35c; a run cannot change it
};

/// All keys in printing order.
std::vector<RecipeKeyInfo> recipeKeys();

/// Sets the keys that a TOML text names. `fileName` is used in messages only.
///
/// Errors  InvalidArgument "FILE:LINE: ..." for a syntax error, an unknown key
///         (with the nearest known one), a wrong type or a value out of range.
///         `recipe` is unchanged then.
absl::Status applyRecipeText(const std::string &text,
                             const std::string &fileName, Recipe &recipe);

/// The same for a file. Errors: also NotFound or Unavailable, naming the path.
absl::Status applyRecipeFile(const std::string &path, Recipe &recipe);

/// Sets one key from "section.key=value". The value is TOML; a bare word does
/// for a string and `a,b` for a pair. `origin` is the flag it came from: a tool
/// with `--tokens N` calls applyRecipeSet("data.tokens=N", recipe, "--tokens").
absl::Status applyRecipeSet(const std::string &assignment, Recipe &recipe,
                            const std::string &origin = "--set");

/// Checks what relates several keys (min_lr <= lr, rows over the data ranks,
/// ep over the mesh). Call once, after the last file and flag.
absl::Status validateRecipe(const Recipe &recipe);

/// Every key with its value as TOML: fixed order, shortest exact numbers, so
/// equal recipes give equal bytes and reading it back gives an equal recipe.
std::string printRecipe(const Recipe &recipe);

/// The value of one key as printRecipe writes it. Errors: as for --set.
absl::StatusOr<std::string> recipeValue(const Recipe &recipe,
                                        const std::string &key);

/// Errors with FailedPrecondition if `run` has another value than the bundle's
/// recipe in a key that compilation fixed (optim except lr, loss, data,
/// parallel, memory): names key, both values, who set it and the way out.
absl::Status checkBakedKeys(const Recipe &bundle, const Recipe &run);

} // namespace qwen35

#endif // QWEN35_RUNTIME_RECIPE_RECIPE_H
