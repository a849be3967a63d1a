#include "runtime/train/describe.h"

#include <algorithm>
#include <ctime>
#include <map>
#include <unistd.h>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "runtime/bundle/format_bytes.h"
#include "runtime/checkpoint/json.h"
#include "runtime/records/step_record.h"

namespace qwen35 {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

/// The layer that a launch's tag names, layers.3.linear_attn/..., or -1.
int64_t layerOf(absl::string_view tag) {
  size_t at = tag.find("layers.");
  if (at == absl::string_view::npos)
    return -1;
  tag.remove_prefix(at + 7);
  int64_t layer = -1;
  return absl::SimpleAtoi(tag.substr(0, tag.find_first_not_of("0123456789")),
                          &layer)
             ? layer
             : -1;
}

std::string shortDigest(const BundleFile &bundle) {
  return bundle.digest().substr(0, 12);
}

const char *dtypeText(const ParamSpec &param) {
  return nameOf(param.fileType);
}

} // namespace

std::vector<LayerPath> layerPaths(const bundle::Bundle &message) {
  std::vector<LayerPath> paths;
  auto pathOf = [&](const std::string &kind) -> LayerPath & {
    for (LayerPath &path : paths)
      if (path.kind == kind)
        return path;
    paths.push_back({kind, 0, {}});
    return paths.back();
  };
  for (const std::string &kind : message.model().layer_types())
    ++pathOf(kind).layers;
  for (const bundle::Program &program : message.programs()) {
    if (program.name() != "finish")
      continue;
    for (const bundle::PlanEntry &entry : program.entries()) {
      if (!entry.has_launch())
        continue;
      int64_t layer = layerOf(entry.launch().tag());
      if (layer < 0 || layer >= message.model().layer_types_size())
        continue;
      const std::string &op =
          message.kernels(static_cast<int>(entry.launch().kernel())).op();
      std::vector<std::string> &ops =
          pathOf(message.model().layer_types(static_cast<int>(layer))).ops;
      if (std::find(ops.begin(), ops.end(), op) == ops.end())
        ops.push_back(op);
    }
  }
  return paths;
}

/// "cpu x86-64-v3, 4 threads", "cuda sm_90a on NVIDIA H200".
static std::string describeTarget(const bundle::Target &target, int threads,
                                  const Step *step) {
  if (target.kind() == "cuda")
    return step ? step->targetText() : absl::StrCat("cuda ", target.arch());
  return absl::StrCat("cpu ", target.cpu(), ", ",
                      threads == 0   ? "one thread per CPU"
                      : threads == 1 ? "1 thread"
                                     : absl::StrCat(threads, " threads"));
}

std::string describeRun(const RunSetup &setup, int threads, const Step *step) {
  const bundle::Bundle &message = setup.bundle->message();
  const Recipe &recipe = setup.recipe;
  std::string text = absl::StrCat(
      "model   ", message.model().name(), ": ",
      groupDigits(static_cast<int64_t>(message.model().parameters())),
      " parameters in ", setup.params.size(),
      setup.params.size() == 1 ? " tensor\n" : " tensors\n", "bundle  ",
      shortDigest(*setup.bundle), ", ", formatBytes(setup.bundle->size()),
      ", by ", message.provenance().compiler(), "\n", "target  ",
      describeTarget(message.targets(0), threads, step), "\n");
  if (!setup.targetNote.empty())
    absl::StrAppend(&text, "note: not the GPU: ", setup.targetNote, "\n");
  if (step)
    for (const std::string &note : step->notes())
      absl::StrAppend(&text, note, "\n");
  for (const LayerPath &path : layerPaths(message))
    absl::StrAppend(&text, "layers  ", path.layers, " x ", path.kind,
                    path.ops.empty() ? "" : ": ", absl::StrJoin(path.ops, " "),
                    "\n");
  absl::StrAppend(
      &text, "memory  ", formatBytes(message.provenance().planned_peak()),
      " planned (",
      absl::StrJoin(message.arenas(), ", ",
                    [](std::string *out, const bundle::Arena &arena) {
                      absl::StrAppend(out, arena.name(), " ",
                                      formatBytes(arena.bytes()));
                    }),
      ")\n");
  if (std::optional<StepDevice> device =
          step ? step->device() : std::nullopt) {
    if (device->peakFlops > 0)
      absl::StrAppend(
          &text, "mfu     tokens/s x ",
          shortNumber(message.model().flops_per_token() * 1e-9, 4),
          " GFLOP of a token / ",
          absl::StrFormat("%.1f", device->peakFlops * 1e-12),
          " TFLOP/s, the dense bf16 peak of ", device->name,
          "; a token's count is of forward and backward, recomputation left "
          "out, attention over documents of ",
          groupDigits(message.io().tokens()), " tokens\n");
    else
      absl::StrAppend(&text, "mfu     not known: no dense bf16 peak of ",
                      device->name, " is on record\n");
  }
  // A rank of a context-parallel group sees a part of every row.
  bool ranks = message.has_mesh();
  int64_t dataRanks =
      ranks ? message.mesh().dpr() * message.mesh().dps() : 1;
  int64_t rowTokens = message.io().tokens() * (ranks ? message.mesh().cp() : 1);
  absl::StrAppend(&text, "step    ", groupDigits(recipe.train.rows),
                  recipe.train.rows == 1 ? " row of " : " rows of ",
                  groupDigits(rowTokens), " tokens = ",
                  groupDigits(recipe.train.rows * rowTokens),
                  " slots: microbatch 1 row x accumulation ",
                  recipe.train.rows / dataRanks, " x ", dataRanks,
                  ranks ? " data" : "", dataRanks == 1 ? " rank\n" : " ranks\n");
  return text;
}

std::string describePlan(const RunSetup &setup) {
  const bundle::Bundle &message = setup.bundle->message();
  std::string text =
      absl::StrCat("# recipe, resolved\n", printRecipe(setup.recipe), "\n");
  size_t width = 4;
  for (const ParamSpec &param : setup.params)
    width = std::max(width, param.name.size());
  absl::StrAppend(&text, absl::StrFormat("# parameters\n%-*s  %-18s %14s  %-5s "
                                         "%-5s %s\n",
                                         width, "name", "shape", "elements",
                                         "file", "decay", "init"));
  int64_t total = 0;
  for (size_t i = 0; i < setup.params.size(); ++i) {
    const ParamSpec &param = setup.params[i];
    total += param.elements();
    absl::StrAppend(
        &text, absl::StrFormat(
                   "%-*s  %-18s %14s  %-5s %-5s %s\n", width, param.name,
                   shapeText(param.shape), groupDigits(param.elements()),
                   dtypeText(param),
                   message.params(static_cast<int>(i)).decay() ? "yes" : "no",
                   param.init));
  }
  absl::StrAppend(&text, groupDigits(total), " elements in ",
                  setup.params.size(), " tensors\n\n# memory plan\n");
  for (const bundle::Arena &arena : message.arenas())
    absl::StrAppend(&text, absl::StrFormat("arena %-12s %12s\n", arena.name(),
                                           formatBytes(arena.bytes())));
  std::map<std::string, uint64_t> categories;
  std::vector<const bundle::Buffer *> largest;
  for (const bundle::Buffer &buffer : message.buffers()) {
    categories[buffer.category()] += buffer.bytes();
    largest.push_back(&buffer);
  }
  std::stable_sort(largest.begin(), largest.end(), [](auto *a, auto *b) {
    return a->bytes() > b->bytes();
  });
  absl::StrAppend(&text, "buffers by category (those of act share bytes):\n");
  for (const auto &[category, bytes] : categories)
    absl::StrAppend(&text, absl::StrFormat("  %-16s %12s\n", category,
                                           formatBytes(bytes)));
  absl::StrAppend(&text, "largest buffers:\n");
  for (size_t i = 0; i < std::min<size_t>(largest.size(), 8); ++i)
    absl::StrAppend(&text, absl::StrFormat(
                               "  %-16s %12s  %s\n", largest[i]->category(),
                               formatBytes(largest[i]->bytes()),
                               largest[i]->name()));
  absl::StrAppend(&text, "planned peak ",
                  formatBytes(message.provenance().planned_peak()), "\n");
  for (const bundle::Program &program : message.programs())
    absl::StrAppend(&text, absl::StrFormat("program %-12s %6d launches\n",
                                           program.name(),
                                           program.entries_size()));
  return text;
}

std::string describeProfile(const std::vector<OpTime> &times, int64_t steps) {
  double total = 0;
  for (const OpTime &time : times)
    total += time.seconds;
  std::string text = absl::StrFormat(
      "time per class of op over %d steps, %.4f s in all\n", steps, total);
  for (const OpTime &time : times)
    absl::StrAppend(&text, absl::StrFormat(
                               "  %-28s %10d calls %10.4f s %5.1f%%\n", time.op,
                               time.calls, time.seconds,
                               total > 0 ? 100 * time.seconds / total : 0.0));
  return text;
}

std::string describeLaunches(int64_t launches, const StepGraph &graph) {
  if (graph.captures == 0)
    return absl::StrCat("launch  ", groupDigits(launches),
                        " per step, one by one\n");
  return absl::StrCat(
      "graph   ", groupDigits(graph.nodes), " nodes for ",
      groupDigits(launches), " launches of the plan (kernels ",
      groupDigits(graph.kernels), ", of them for ",
      groupDigits(graph.products), " products of cuBLASLt; memsets ",
      graph.memsets, ", copies ", graph.copies, "), captured in ",
      absl::StrFormat("%.3f", graph.seconds), " s\n");
}

std::string describeMemory(const StepMemory &memory) {
  double planned = static_cast<double>(memory.planned);
  double actual = static_cast<double>(memory.device);
  return absl::StrFormat(
      "memory  planned %.2f GiB, actual %.2f GiB (%.1f%% apart) of %.1f GiB\n",
      planned / kGiB, actual / kGiB,
      planned > 0 ? 100 * (actual - planned) / planned : 0.0,
      static_cast<double>(memory.deviceTotal) / kGiB);
}

/// What is known of a GPU and its graph, for records.
static nlohmann::json deviceJson(const Step &step) {
  std::optional<StepDevice> device = step.device();
  if (!device)
    return nullptr;
  auto known = [](double value) {
    return value > 0 ? nlohmann::json(value) : nlohmann::json(nullptr);
  };
  return {{"name", device->name},
          {"peak_flops", known(device->peakFlops)},
          {"peak_bandwidth", known(device->peakBandwidth)}};
}

std::string summaryRecord(const Step &step, int64_t before, int64_t last,
                          double seconds, int64_t rows) {
  nlohmann::json record = {{"first_step", before + 1},
                           {"last_step", last},
                           {"seconds", seconds},
                           {"device", deviceJson(step)}};
  if (step.device()) {
    StepMemory memory = step.memory();
    StepGraph graph = step.graph();
    record["device_mem_planned_bytes"] = memory.planned;
    record["device_mem_actual_bytes"] = memory.device;
    record["device_mem_total_bytes"] = memory.deviceTotal;
    record["launches"] = step.launchesPerStep(rows);
    record["graph"] = {{"nodes", graph.nodes},
                       {"kernels", graph.kernels},
                       {"products", graph.products},
                       {"memsets", graph.memsets},
                       {"copies", graph.copies},
                       {"captures", graph.captures},
                       {"launches", graph.launches},
                       {"capture_seconds", graph.seconds}};
  }
  return jsonText(record) + "\n";
}

std::string runRecord(const RunSetup &setup, const RunOptions &options,
                      int threads, int64_t resumedStep, const Step *step) {
  const bundle::Bundle &message = setup.bundle->message();
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  nlohmann::json layers = nlohmann::json::object();
  for (const LayerPath &path : layerPaths(message))
    layers[path.kind] = {{"layers", path.layers}, {"kernels", path.ops}};
  nlohmann::json record = {
      {"bundle",
       {{"path", options.bundle},
        {"sha256", setup.bundle->digest()},
        {"compiler", message.provenance().compiler()},
        {"llvm", message.provenance().llvm()},
        {"pipeline", message.provenance().pipeline()},
        {"planned_bytes", message.provenance().planned_peak()}}},
      {"model",
       {{"name", message.model().name()},
        {"parameters", message.model().parameters()}}},
      {"target",
       {{"kind", message.targets(0).kind()},
        {"cpu", message.targets(0).cpu()},
        {"arch", message.targets(0).arch()},
        {"threads", threads},
        {"device", step ? deviceJson(*step) : nlohmann::json(nullptr)}}},
      {"host", host},
      {"layers", std::move(layers)},
      {"data", options.data},
      {"resumed_step", resumedStep},
      {"started", static_cast<int64_t>(std::time(nullptr))}};
  return jsonText(record) + "\n";
}

} // namespace qwen35
