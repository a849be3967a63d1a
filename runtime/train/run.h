#ifndef QWEN35_RUNTIME_TRAIN_RUN_H
#define QWEN35_RUNTIME_TRAIN_RUN_H

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace qwen35 {

/// What the flags of qwen35-run say.
struct RunOptions {
  std::string bundle; // OUT.q35

  // Where weights come from: one of the two, unless the run is resumed.
  std::string weights; // a Hugging Face folder
  std::optional<uint64_t> initSeed;

  std::vector<std::string> data;
  std::string out;       // the run folder
  bool resume = false;   // --resume auto
  std::string exportHf;  // folder of the trained model
  std::optional<int64_t> steps; // wins over train.steps; 0 trains nothing

  std::vector<std::string> recipeFiles; // in order; later ones win
  std::vector<std::string> sets;        // section.key=value, after the files

  // Ranks of the bundle's mesh as threads of this process; 0: this process is
  // one, as the environment says (comm/environment.h).
  int virtualRanks = 0;
  bool overHost = false;   // GPU: ranks exchange through memory of the host
  double rankSilence = 10; // seconds until a rank that gives no sign is lost
  double rankWait = 300;   // seconds that a rank may keep others waiting

  std::string target = "auto"; // "cpu", "cuda"; auto: a GPU if there is one
  bool eager = false;    // GPU: launch by launch, not one graph per step
  bool sync = false;     // GPU: eager, wait after every launch
  bool poison = false;   // memory starts as NaN
  int threads = 0;       // 0: one per CPU
  bool dryRun = false;   // stop after the plan
  bool evalLoss = false; // loss of the eval program on the first batch
  bool profile = false;  // time per class of op, on a GPU per kernel
  bool noSave = false;   // write no checkpoint, for measurements
  int maxSkipped = 5;    // non-finite steps in a row before the run gives up

  // The black-box door: one given batch, everything dumped.
  std::string batch, dump;
};

/// Runs a bundle as the options say and reports on `out`, step by step.
///
/// A run folder holds recipe.toml (resolved), run.json (bundle, machine, which
/// kernels every kind of layer runs on), metrics.jsonl, summary.json (of a run
/// that ended), profile.txt and trace.json (of a profile on a GPU),
/// tensorboard/, checkpoints/ and lock. A signal (SIGTERM, SIGINT) ends a run
/// in order: the step under way is finished, a checkpoint is saved, the result
/// is ok.
///
/// Ranks   A bundle for a mesh runs on as many ranks (rank_world.h). All read
/// the
///         data and the weights; rank 0 alone reports and writes, what the
///         others have sent by them, so that run folder, checkpoints and
///         export are those of one rank and any mesh goes on from them.
/// Errors  One sentence each. What is wrong with options, files or folders is
///         found before the first step; a checkpoint that cannot be saved is
///         reported and training goes on, but the last one must succeed.
///         Aborted after `maxSkipped` steps in a row without a finite gradient.
absl::Status runBundle(const RunOptions &options, FILE *out);

} // namespace qwen35

#endif // QWEN35_RUNTIME_TRAIN_RUN_H
