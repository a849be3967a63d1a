#include "tools/qwen35-verify/report.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "runtime/bundle/format_bytes.h"
#include "runtime/bundle/plan_report.h"
#include "runtime/bundle/quoted.h"
#include "runtime/bundle/ranks.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>

namespace qwen35 {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kLargest = 10;

/// "32000000" as "32.0 M": counts of elements and tasks.
std::string formatCount(uint64_t count) {
  if (count < 100000)
    return absl::StrCat(count);
  const char *units[] = {"k", "M", "G", "T", "P", "E"};
  double value = static_cast<double>(count) / 1000;
  int unit = 0;
  for (; value >= 999.95 && unit < 5; ++unit)
    value /= 1000;
  return absl::StrFormat("%.1f %s", value, units[unit]);
}

std::map<std::string, int> layerCounts(const bundle::Model &model) {
  std::map<std::string, int> counts;
  for (const std::string &type : model.layer_types())
    ++counts[type];
  return counts;
}

uint64_t codeBytes(const bundle::Bundle &plan) {
  return plan.blobs(static_cast<int>(plan.targets(0).blob())).size();
}

std::string shapeText(const bundle::Buffer &buffer) {
  return absl::StrCat(dtypeName(buffer.dtype()), "[",
                      absl::StrJoin(buffer.shape(), ", "), "]");
}

std::string line(const std::string &name, const std::string &text) {
  return absl::StrFormat("  %-9s %s\n", name, text);
}

std::string modelText(const bundle::Model &model) {
  std::string layers = absl::StrJoin(
      layerCounts(model), ", ", [](std::string *out, const auto &entry) {
        absl::StrAppend(out, entry.second, " ", entry.first);
      });
  return absl::StrCat(
      quoted(model.name()), ", ", model.layer_types_size(), " layers",
      layers.empty() ? "" : absl::StrCat(" (", layers, ")"), ", ",
      formatCount(model.parameters()), " parameters, vocabulary ",
      model.vocab_size(), model.byte_vocabulary() ? " (bytes)" : "", ", ",
      formatCount(
          static_cast<uint64_t>(std::min(model.flops_per_token(), 1.8e19))),
      " flops per token");
}

/// "12 collectives (1.2 MB sent), "; nothing where there are none.
std::string collectivesText(const PlanReport::Program &program) {
  if (program.collectives == 0)
    return "";
  return absl::StrCat(program.collectives, " collectives (",
                      formatBytes(program.sentBytes), " sent), ");
}

/// The mesh, and per communicator what goes over it in all programs.
std::string ranksText(const bundle::Bundle &plan) {
  if (!plan.has_mesh())
    return "";
  const bundle::Mesh &m = plan.mesh();
  std::string text = line(
      "ranks",
      absl::StrCat(
          printMeshShape({m.pp(), m.dpr(), m.dps(), m.cp(), m.tp(), m.ep(),
                          m.kv()}),
          "; one plan, so all of them run its collectives in one order"));
  for (int i = 0; i < plan.communicators_size(); ++i) {
    const bundle::Communicator &communicator = plan.communicators(i);
    int64_t ranks = communicator.groups(0).ranks_size();
    std::map<std::string, std::pair<uint64_t, uint64_t>> kinds;
    for (const bundle::Program &program : plan.programs())
      for (const bundle::PlanEntry &entry : program.entries())
        if (entry.has_collective() &&
            entry.collective().communicator() == static_cast<uint32_t>(i)) {
          auto &[count, bytes] = kinds[kindName(entry.collective().kind())];
          ++count;
          bytes += sentBytes(entry.collective(), ranks);
        }
    text += line(
        absl::StrCat("  comm ", i),
        absl::StrCat("{", absl::StrJoin(communicator.axes(), ", "), "}, ",
                     communicator.groups_size(), " groups of ", ranks, ": ",
                     kinds.empty()
                         ? std::string("coordinates only")
                         : absl::StrJoin(
                               kinds, ", ",
                               [](std::string *out, const auto &kind) {
                                 absl::StrAppend(
                                     out, kind.second.first, " ", kind.first,
                                     " (", formatBytes(kind.second.second),
                                     " sent)");
                               })));
  }
  return text;
}

std::string peakText(const bundle::Bundle &plan, const PlanReport &report) {
  const PlanReport::Program &peak = report.programs[report.peakProgram];
  std::string text =
      absl::StrJoin(report.peak, ", ", [](std::string *out, const auto &sum) {
        absl::StrAppend(out, absl::CHexEscape(sum.name), " ",
                        formatBytes(sum.bytes));
      });
  if (peak.peakEntry < 0)
    return text;
  const bundle::Program &program = plan.programs(report.peakProgram);
  return absl::StrCat(text, "\n            at entry ", peak.peakEntry, " of ",
                      peak.name, " (",
                      describeEntry(plan, program.entries(peak.peakEntry)),
                      "), where act holds ", formatBytes(peak.liveBytes),
                      " of its ", formatBytes(report.actBytes));
}

std::string lifeText(const bundle::Buffer &entry,
                     const PlanReport::Buffer &buffer,
                     const bundle::Bundle &plan) {
  const std::string &arena =
      plan.arenas(static_cast<int>(entry.arena())).name();
  if (arena != "act")
    return arena;
  return absl::StrCat("act, entries ", buffer.first, " to ", buffer.last);
}

Json bufferJson(const bundle::Bundle &plan, const PlanReport::Buffer &buffer) {
  const bundle::Buffer &entry = plan.buffers(static_cast<int>(buffer.index));
  Json shape = Json::array();
  for (int64_t size : entry.shape())
    shape.push_back(size);
  Json json = {{"name", entry.name()},
               {"bytes", entry.bytes()},
               {"dtype", dtypeName(entry.dtype())},
               {"shape", shape},
               {"category", entry.category()},
               {"arena", plan.arenas(static_cast<int>(entry.arena())).name()},
               {"offset", entry.offset()}};
  if (buffer.first >= 0) {
    json["first_entry"] = buffer.first;
    json["last_entry"] = buffer.last;
  }
  return json;
}

std::string dump(const Json &json) {
  // Names come from a file; the schema's strings are UTF-8, a path need not be.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

} // namespace

std::string textReport(const std::string &path, const BundleFile &file) {
  const bundle::Bundle &plan = file.message();
  PlanReport report = reportPlan(plan, kLargest);
  std::string text = absl::StrCat(path, ": ok\n");
  text += line("digest", file.digest());
  text += line("schema",
               absl::StrCat(plan.header().major(), ".", plan.header().minor(),
                            ", ", formatBytes(file.size()), ", by ",
                            quoted(plan.provenance().compiler())));
  text += line("target",
               absl::StrCat(plan.targets(0).kind(), " ", plan.targets(0).cpu(),
                            ", ", plan.kernels_size(), " kernels in ",
                            formatBytes(codeBytes(plan)), " of code"));
  text += line("model", modelText(plan.model()));
  int decayed = 0;
  for (const bundle::Param &param : plan.params())
    decayed += param.decay();
  text += line("params", absl::StrCat(plan.params_size(), " tensors, ", decayed,
                                      " of them with weight decay"));
  text += line("row",
               absl::StrCat(plan.io().tokens(), " tokens, at most ",
                            plan.io().max_docs(), " documents with padding"));
  text += line(
      "arenas",
      absl::StrCat(absl::StrJoin(plan.arenas(), ", ",
                                 [](std::string *out, const auto &arena) {
                                   absl::StrAppend(out, arena.name(), " ",
                                                   formatBytes(arena.bytes()));
                                 }),
                   "; together ", formatBytes(report.arenaBytes)));
  text += ranksText(plan);
  text += line("peak", peakText(plan, report));
  for (const PlanReport::Program &program : report.programs)
    text += line(program.name,
                 absl::StrCat(program.launches, " launches (",
                              formatCount(program.tasks), " tasks), ",
                              program.memsets, " memsets, ",
                              collectivesText(program), "act ",
                              formatBytes(program.liveBytes), " at most"));
  text += "  largest buffers at the peak\n";
  for (const PlanReport::Buffer &buffer : report.largest) {
    const bundle::Buffer &entry = plan.buffers(static_cast<int>(buffer.index));
    text += absl::StrFormat(
        "    %9s  %s, %s, %s (%s)\n", formatBytes(entry.bytes()),
        quoted(entry.name()), shapeText(entry),
        absl::CHexEscape(entry.category()), lifeText(entry, buffer, plan));
  }
  return text;
}

std::string jsonReport(const std::string &path, const BundleFile &file) {
  const bundle::Bundle &plan = file.message();
  PlanReport report = reportPlan(plan, kLargest);
  Json json = {{"file", path}, {"ok", true}, {"digest", file.digest()}};
  json["bytes"] = file.size();
  json["schema"] = {{"major", plan.header().major()},
                    {"minor", plan.header().minor()},
                    {"compiler", plan.provenance().compiler()}};
  json["target"] = {{"kind", plan.targets(0).kind()},
                    {"triple", plan.targets(0).triple()},
                    {"cpu", plan.targets(0).cpu()},
                    {"kernels", plan.kernels_size()},
                    {"code_bytes", codeBytes(plan)}};
  Json layers = Json::object();
  for (const auto &[type, count] : layerCounts(plan.model()))
    layers[type] = count;
  json["model"] = {{"name", plan.model().name()},
                   {"parameters", plan.model().parameters()},
                   {"params", plan.params_size()},
                   {"layers", layers},
                   {"vocab_size", plan.model().vocab_size()},
                   {"byte_vocabulary", plan.model().byte_vocabulary()},
                   {"flops_per_token", plan.model().flops_per_token()}};
  json["row"] = {{"tokens", plan.io().tokens()},
                 {"max_docs", plan.io().max_docs()}};
  Json arenas = Json::object(), categories = Json::object();
  for (const bundle::Arena &arena : plan.arenas())
    arenas[arena.name()] = arena.bytes();
  for (const PlanReport::Sum &sum : report.peak)
    categories[sum.name] = sum.bytes;
  const PlanReport::Program &peak = report.programs[report.peakProgram];
  json["memory"] = {{"arenas", arenas},
                    {"bytes", report.arenaBytes},
                    {"peak_by_category", categories},
                    {"peak_program", peak.name},
                    {"peak_entry", peak.peakEntry},
                    {"peak_act_bytes", peak.liveBytes}};
  json["programs"] = Json::array();
  for (const PlanReport::Program &program : report.programs) {
    json["programs"].push_back({{"name", program.name},
                                {"launches", program.launches},
                                {"memsets", program.memsets},
                                {"tasks", program.tasks},
                                {"act_bytes", program.liveBytes}});
    if (!plan.has_mesh())
      continue;
    json["programs"].back()["collectives"] = program.collectives;
    json["programs"].back()["sent_bytes"] = program.sentBytes;
  }
  if (plan.has_mesh()) {
    const bundle::Mesh &m = plan.mesh();
    json["ranks"] = {{"pp", m.pp()}, {"dpr", m.dpr()}, {"dps", m.dps()},
                     {"cp", m.cp()}, {"tp", m.tp()},   {"ep", m.ep()}};
  }
  json["largest_buffers"] = Json::array();
  for (const PlanReport::Buffer &buffer : report.largest)
    json["largest_buffers"].push_back(bufferJson(plan, buffer));
  return dump(json);
}

std::string jsonFailure(const std::string &path, const std::string &check,
                        const std::string &error) {
  return dump(
      {{"file", path}, {"ok", false}, {"check", check}, {"error", error}});
}

} // namespace qwen35
