// qwen35-run: trains with a bundle. This file parses flags; the run itself is
// runtime/train/run.h.
#include "runtime/train/run.h"

#include <cstdio>
#include <string>

#include <CLI/CLI.hpp>

#include "runtime/checkpoint/file_io.h"
#include "runtime/cuda/tune.h"
#include "runtime/recipe/recipe.h"

namespace {

constexpr int kFailed = 1, kUsage = 2;

std::string recipeHelp() {
  std::string text = "\nRecipe keys (--set section.key=value, --recipe "
                     "F.toml); * is fixed by qwen35c:\n";
  for (const qwen35::RecipeKeyInfo &key : qwen35::recipeKeys())
    text += "  " + std::string(key.baked ? "* " : "  ") + key.name + " = " +
            key.defaultValue + "  " + key.help + "; " + key.rule + "\n";
  return text;
}

/// CLI11 would wrap -1 around to a large seed.
std::string isSeed(const std::string &text) {
  if (!text.empty() && text.size() <= 19 &&
      text.find_first_not_of("0123456789") == std::string::npos)
    return "";
  return "found " + text + ", expected a whole number of at most 19 digits";
}

} // namespace

int main(int argc, char **argv) {
  qwen35::RunOptions options;
  std::string resume, tuneTable;
  double tuneSeconds = 40;
  CLI::App app("Trains the model of a bundle that qwen35c made.", "qwen35-run");
  app.get_formatter()->column_width(34);
  app.footer(recipeHelp);
  app.add_option("BUNDLE", options.bundle, "the compiled step, OUT.q35")
      ->required();

  app.add_option("--weights", options.weights,
                 "start from a Hugging Face folder (safetensors)")
      ->type_name("DIR")
      ->group("Weights");
  app.add_option("--init", options.initSeed,
                 "start from fresh weights drawn with this seed")
      ->type_name("SEED")
      ->check(isSeed)
      ->group("Weights");
  app.add_option("--resume", resume,
                 "auto: go on from the newest valid checkpoint in --out, or "
                 "start when there is none")
      ->type_name("auto")
      ->check(CLI::IsMember({"auto"}))
      ->group("Weights");

  app.add_option("--data", options.data,
                 "token files of qwen35-data; plain text for a byte vocabulary")
      ->type_name("FILE...")
      ->group("Training");
  app.add_option("--steps", options.steps,
                 "optimizer steps of the whole run (train.steps); 0 trains "
                 "nothing; with --batch: repetitions")
      ->type_name("N")
      ->group("Training");
  app.add_option("--recipe", options.recipeFiles,
                 "recipe files, later ones win")
      ->type_name("F.toml")
      ->group("Training");
  app.add_option("--set", options.sets,
                 "one recipe key, after all files: optim.lr=1e-4")
      ->type_name("section.key=value")
      ->group("Training");
  app.add_option("--target", options.target,
                 "which plan of the bundle: auto takes a GPU that fits, else "
                 "the CPU")
      ->type_name("auto|cpu|cuda")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str()
      ->group("Execution");
  app.add_option("--virtual-ranks", options.virtualRanks,
                 "all ranks of the bundle's mesh as threads of this process; "
                 "without it ranks are processes of mpirun or torchrun")
      ->type_name("N")
      ->check(CLI::Range(1, 4096))
      ->group("Execution");
  app.add_flag(
         "--ranks-over-host", options.overHost,
         "GPU: ranks exchange through memory of the host instead of NCCL, "
         "as virtual ranks do: for processes that share a GPU")
      ->group("Execution");
  app.add_option("--rank-silence", options.rankSilence,
                 "seconds without a sign of life until a rank is lost")
      ->type_name("S")
      ->check(CLI::Range(0.5, 3600.0))
      ->capture_default_str()
      ->group("Execution");
  app.add_option("--rank-wait", options.rankWait,
                 "seconds that a rank may keep the others waiting: longer than "
                 "the longest save takes between two pieces")
      ->type_name("S")
      ->check(CLI::Range(0.5, 86400.0))
      ->capture_default_str()
      ->group("Execution");
  app.add_flag("--eager", options.eager,
               "GPU: launch by launch instead of one graph per step")
      ->group("Execution");
  app.add_flag("--sync", options.sync,
               "GPU: eager, and wait after every launch, so that a fault names "
               "its kernel")
      ->group("Execution");
  app.add_flag("--poison", options.poison,
               "fill memory with NaN first; results do not depend on it")
      ->group("Execution");
  app.add_option("--threads", options.threads,
                 "0: one per CPU; results do not depend on it")
      ->type_name("N")
      ->group("Training");
  app.add_option("--max-skipped", options.maxSkipped,
                 "give up after so many steps in a row whose gradient norm is "
                 "not finite")
      ->type_name("K")
      ->capture_default_str()
      ->group("Training");

  app.add_option("--out", options.out,
                 "run folder: checkpoints, metrics.jsonl, tensorboard")
      ->type_name("RUN_DIR")
      ->group("Output");
  app.add_flag("--no-save", options.noSave,
               "write no checkpoint, not even at the end: for measurements")
      ->group("Output");
  app.add_option("--export-hf", options.exportHf,
                 "write the trained model as a Hugging Face folder")
      ->type_name("DIR")
      ->group("Output");
  app.add_flag("--eval-loss", options.evalLoss,
               "show the loss of the first batch at the start, after the last "
               "step and from the exported folder")
      ->group("Output");
  app.add_flag(
         "--profile", options.profile,
         "show time per class of op; on a GPU per kernel too, against the "
         "roofline, and write trace.json")
      ->group("Output");
  app.add_flag("--dry-run", options.dryRun,
               "check everything, print recipe, parameters and memory plan, "
               "and stop")
      ->group("Output");

  CLI::Option *tune =
      app.add_option("--tune", tuneTable,
                     "GPU: instead of training, time cuBLASLt's algorithms for "
                     "every product of the bundle and merge the best into this "
                     "table (of codegen/cuda/tuning)")
          ->type_name("TABLE")
          ->group("Tuning");
  app.add_option("--tune-seconds", tuneSeconds,
                 "time for all products together")
      ->type_name("S")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str()
      ->needs(tune)
      ->group("Tuning");

  app.add_option("--batch", options.batch,
                 "run on this batch alone (input_ids, labels, cu_seqlens)")
      ->type_name("FILE.safetensors")
      ->group("Black box");
  app.add_option("--dump", options.dump,
                 "write loss, gradients and parameters of --batch")
      ->type_name("FILE.safetensors")
      ->group("Black box");

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError &error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  options.resume = !resume.empty();
  qwen35::ignoreFileSizeSignal();
  absl::Status status =
      tuneTable.empty()
          ? qwen35::runBundle(options, stdout)
          : qwen35::cuda::tuneProducts(options.bundle, tuneTable, tuneSeconds,
                                       stdout);
  if (status.ok())
    return 0;
  std::fflush(stdout);
  std::fprintf(stderr, "qwen35-run: error: %s\n",
               std::string(status.message()).c_str());
  return kFailed;
}
