#include "runtime/recipe/RecipeKeys.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

namespace qwen35::impl {

/// Shortest text that reads back as the same double, and as a TOML float.
static std::string printDouble(double value) {
  char buffer[32];
  auto end = std::to_chars(buffer, buffer + sizeof(buffer), value).ptr;
  std::string text(buffer, end);
  if (text.find_first_of(".e") == std::string::npos)
    text += ".0";
  return text;
}

static std::string printBound(double value) {
  char buffer[32];
  auto end = std::to_chars(buffer, buffer + sizeof(buffer), value).ptr;
  return std::string(buffer, end);
}

bool Range::contains(double value) const {
  if (!std::isfinite(value))
    return false;
  return (aboveLow ? value > low : value >= low) &&
         (belowHigh ? value < high : value <= high);
}

std::string Range::text() const {
  bool lower = std::isfinite(low), upper = std::isfinite(high);
  if (lower && upper)
    return absl::StrCat("from ", aboveLow ? "above " : "", printBound(low),
                        " to ", belowHigh ? "below " : "", printBound(high));
  if (lower)
    return absl::StrCat(aboveLow ? "greater than " : "at least ",
                        printBound(low));
  return "finite";
}

std::string RecipeKey::fullName() const {
  return absl::StrCat(section, ".", name);
}

std::string RecipeKey::rule() const {
  Recipe scratch;
  Slot value = slot(scratch);
  if (std::holds_alternative<double *>(value))
    return absl::StrCat("a number, ", range.text());
  if (std::holds_alternative<int64_t *>(value))
    return absl::StrCat("an integer, ", range.text());
  if (std::holds_alternative<std::string *>(value))
    return absl::StrCat("one of \"", absl::StrJoin(choices, "\", \""), "\"");
  return absl::StrCat("a list of two numbers, each ", range.text());
}

std::string RecipeKey::print(const Recipe &recipe) const {
  // The table's slots point into a mutable recipe; nothing is written here.
  Slot value = slot(const_cast<Recipe &>(recipe));
  if (auto *number = std::get_if<double *>(&value))
    return printDouble(**number);
  if (auto *integer = std::get_if<int64_t *>(&value))
    return absl::StrCat(**integer);
  if (auto *text = std::get_if<std::string *>(&value))
    return absl::StrCat("\"", **text, "\"");
  const auto &pair = **std::get_if<std::array<double, 2> *>(&value);
  return absl::StrCat("[", printDouble(pair[0]), ", ", printDouble(pair[1]),
                      "]");
}

#define QWEN35_SLOT(field) [](Recipe &r) -> Slot { return &r.field; }

const std::vector<RecipeKey> &recipeKeyTable() {
  // A table of words has int32 offsets, so a row stays below 2^28 slots.
  static constexpr double kMaxTokens = 1 << 28;
  static constexpr double kMaxCount = 1e12;
  static constexpr double kMaxAxis = 65536;
  static const Range atLeastZero{0};
  static const Range aboveZero{.low = 0, .aboveLow = true};
  static const Range belowOne{.low = 0, .high = 1, .belowHigh = true};
  static const Range count{0, kMaxCount};
  static const Range positive{1, kMaxCount};
  static const Range axis{1, kMaxAxis};
  static const std::vector<RecipeKey> table = {
      {"optim",
       "lr",
       false,
       QWEN35_SLOT(optim.lr),
       atLeastZero,
       {},
       "peak learning rate"},
      {"optim",
       "betas",
       true,
       QWEN35_SLOT(optim.betas),
       belowOne,
       {},
       "AdamW's decay rates of the two moments"},
      {"optim",
       "eps",
       true,
       QWEN35_SLOT(optim.eps),
       aboveZero,
       {},
       "added to the root of the second moment"},
      {"optim",
       "weight_decay",
       true,
       QWEN35_SLOT(optim.weightDecay),
       atLeastZero,
       {},
       "decoupled decay of the parameters that decay"},
      {"optim",
       "grad_clip",
       true,
       QWEN35_SLOT(optim.gradClip),
       atLeastZero,
       {},
       "largest global gradient norm; 0 does not clip"},
      {"schedule",
       "kind",
       false,
       QWEN35_SLOT(schedule.kind),
       {},
       {"constant", "linear", "cosine", "wsd"},
       "shape of the learning rate after warmup"},
      {"schedule",
       "warmup_steps",
       false,
       QWEN35_SLOT(schedule.warmupSteps),
       count,
       {},
       "steps of linear warmup"},
      {"schedule",
       "min_lr",
       false,
       QWEN35_SLOT(schedule.minLr),
       atLeastZero,
       {},
       "learning rate at the end of the schedule"},
      {"schedule",
       "decay_steps",
       false,
       QWEN35_SLOT(schedule.decaySteps),
       count,
       {},
       "steps of wsd's last phase; 0 takes a tenth of train.steps"},
      {"loss",
       "aux",
       true,
       QWEN35_SLOT(loss.aux),
       {},
       {"none", "pooled", "per_layer"},
       "load-balance loss of MoE models: over all layers pooled, or per layer"},
      {"loss",
       "aux_coef",
       true,
       QWEN35_SLOT(loss.auxCoef),
       atLeastZero,
       {},
       "its weight"},
      {"train",
       "steps",
       false,
       QWEN35_SLOT(train.steps),
       positive,
       {},
       "optimizer steps of the whole run"},
      {"train",
       "rows",
       false,
       QWEN35_SLOT(train.rows),
       {1, 1 << 24},
       {},
       "packed rows per optimizer step over all ranks"},
      {"train",
       "save_every",
       false,
       QWEN35_SLOT(train.saveEvery),
       count,
       {},
       "steps between checkpoints; 0 saves at the end only"},
      {"train",
       "keep_last",
       false,
       QWEN35_SLOT(train.keepLast),
       count,
       {},
       "newest checkpoints that are kept; 0 keeps all"},
      {"train",
       "seed",
       false,
       QWEN35_SLOT(train.seed),
       {0, 0x1p53},
       {},
       "seed of the data order"},
      {"data",
       "tokens",
       true,
       QWEN35_SLOT(data.tokens),
       {1, kMaxTokens},
       {},
       "slots of a packed row"},
      {"data",
       "max_docs",
       true,
       QWEN35_SLOT(data.maxDocs),
       {1, kMaxTokens},
       {},
       "most documents in a row"},
      {"parallel",
       "pp",
       true,
       QWEN35_SLOT(parallel.pp),
       axis,
       {},
       "pipeline stages"},
      {"parallel",
       "dpr",
       true,
       QWEN35_SLOT(parallel.dpr),
       axis,
       {},
       "data ranks that replicate the parameters"},
      {"parallel",
       "dps",
       true,
       QWEN35_SLOT(parallel.dps),
       axis,
       {},
       "data ranks that shard the parameters"},
      {"parallel",
       "cp",
       true,
       QWEN35_SLOT(parallel.cp),
       axis,
       {},
       "ranks that share a row"},
      {"parallel",
       "tp",
       true,
       QWEN35_SLOT(parallel.tp),
       axis,
       {},
       "ranks that share heads and columns"},
      {"parallel",
       "ep",
       true,
       QWEN35_SLOT(parallel.ep),
       axis,
       {},
       "ranks that share the experts, a part of dps x cp x tp"},
      {"parallel",
       "zero",
       true,
       QWEN35_SLOT(parallel.zero),
       {0, 3},
       {},
       "what dps and cp split: 0 nothing, 1 the moments of AdamW (ZeRO-1), 2 "
       "gradients too, 3 weights too (FSDP)"},
      {"compute",
       "dtype",
       true,
       QWEN35_SLOT(compute.dtype),
       {},
       {"auto", "fp32", "bf16"},
       "element type of activations; auto is fp32 on the CPU, bf16 on GPUs"},
      {"memory",
       "remat",
       true,
       QWEN35_SLOT(memory.remat),
       {},
       {"none", "selective", "full"},
       "what backward recomputes rather than keeps"},
      {"memory",
       "budget_gb",
       true,
       QWEN35_SLOT(memory.budgetGb),
       atLeastZero,
       {},
       "memory to plan for, in 1e9 bytes; 0 sets no limit"},
  };
  return table;
}

#undef QWEN35_SLOT

const RecipeKey *findRecipeKey(const std::string &fullName) {
  for (const RecipeKey &key : recipeKeyTable())
    if (key.fullName() == fullName)
      return &key;
  return nullptr;
}

/// Insertions, deletions, substitutions and swaps of neighbours.
static size_t editDistance(const std::string &a, const std::string &b) {
  std::vector<std::vector<size_t>> d(a.size() + 1,
                                     std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i)
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      size_t change = a[i - 1] == b[j - 1] ? 0 : 1;
      d[i][j] = std::min(
          {d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  return d[a.size()][b.size()];
}

std::string nearestRecipeKey(const std::string &name) {
  // A key may be longer than any of ours by accident or malice.
  std::string asked = name.substr(0, 64);
  size_t dot = asked.find('.');
  std::string own = dot == std::string::npos ? asked : asked.substr(dot + 1);
  std::string best;
  size_t bestScore = 0;
  for (const RecipeKey &key : recipeKeyTable()) {
    // The key's own name counts twice: a right key in a wrong section is a
    // likelier slip than a wrong key in a right one.
    size_t score = 2 * editDistance(own, key.name);
    if (dot != std::string::npos)
      score += editDistance(asked.substr(0, dot), key.section);
    if (best.empty() || score < bestScore) {
      best = key.fullName();
      bestScore = score;
    }
  }
  return best;
}

} // namespace qwen35::impl
