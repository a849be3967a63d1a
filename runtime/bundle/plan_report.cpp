#include "runtime/bundle/plan_report.h"

#include "absl/strings/str_cat.h"
#include "runtime/bundle/quoted.h"
#include "runtime/bundle/ranks.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace qwen35 {
namespace {

/// First and last entry that uses each buffer; -1 for those not used.
struct Lives {
  std::vector<int> first, last;
};

Lives livesIn(const bundle::Bundle &message, const bundle::Program &program) {
  Lives lives;
  lives.first.assign(message.buffers_size(), -1);
  lives.last.assign(message.buffers_size(), -1);
  auto use = [&](uint32_t buffer, int entry) {
    if (lives.first[buffer] < 0)
      lives.first[buffer] = entry;
    lives.last[buffer] = entry;
  };
  std::map<uint64_t, const bundle::Collective *> flying;
  for (int i = 0; i < program.entries_size(); ++i) {
    const bundle::PlanEntry &entry = program.entries(i);
    if (entry.has_memset())
      use(entry.memset().buffer(), i);
    for (const bundle::Arg &arg : entry.launch().args())
      use(arg.buffer(), i);
    // What flies is used until its wait.
    if (entry.has_collective() && entry.collective().async())
      flying[entry.collective().sequence()] = &entry.collective();
    const bundle::Collective &exchange =
        entry.has_wait() && flying.count(entry.wait().sequence())
            ? *flying[entry.wait().sequence()]
            : entry.collective();
    for (const bundle::Collective::Part &part : exchange.parts()) {
      use(part.send().buffer(), i);
      use(part.receive().buffer(), i);
    }
    if (exchange.has_send_stage())
      use(exchange.send_stage().buffer(), i);
    if (exchange.has_receive_stage())
      use(exchange.receive_stage().buffer(), i);
  }
  return lives;
}

bool isAct(const bundle::Bundle &message, const bundle::Buffer &buffer) {
  return message.arenas(static_cast<int>(buffer.arena())).name() == "act";
}

PlanReport::Program count(const bundle::Bundle &message,
                          const bundle::Program &program, const Lives &lives) {
  PlanReport::Program result;
  result.name = program.name();
  for (const bundle::PlanEntry &entry : program.entries()) {
    result.launches += entry.has_launch();
    result.memsets += entry.has_memset();
    if (entry.has_collective()) {
      const bundle::Collective &collective = entry.collective();
      ++result.collectives;
      result.sentBytes += sentBytes(
          collective,
          message.communicators(static_cast<int>(collective.communicator()))
              .groups(0)
              .ranks_size());
    }
    if (entry.has_launch())
      result.tasks += static_cast<uint64_t>(entry.launch().grid());
  }
  // What begins at an entry and what has ended before it.
  std::vector<uint64_t> begins(program.entries_size() + 1, 0);
  std::vector<uint64_t> ends(program.entries_size() + 1, 0);
  for (int i = 0; i < message.buffers_size(); ++i)
    if (lives.first[i] >= 0 && isAct(message, message.buffers(i))) {
      begins[lives.first[i]] += message.buffers(i).bytes();
      ends[lives.last[i] + 1] += message.buffers(i).bytes();
    }
  uint64_t live = 0;
  for (int i = 0; i < program.entries_size(); ++i) {
    live += begins[i] - ends[i];
    if (live > result.liveBytes) {
      result.liveBytes = live;
      result.peakEntry = i;
    }
  }
  return result;
}

void listPeak(const bundle::Bundle &message, const Lives &lives, int entry,
              size_t largest, PlanReport &report) {
  std::map<std::string, uint64_t> categories;
  for (int i = 0; i < message.buffers_size(); ++i) {
    const bundle::Buffer &buffer = message.buffers(i);
    bool live = lives.first[i] >= 0 && lives.first[i] <= entry &&
                entry <= lives.last[i];
    if (isAct(message, buffer) && !live)
      continue;
    categories[buffer.category()] += buffer.bytes();
    report.largest.push_back(
        {static_cast<uint32_t>(i), lives.first[i], lives.last[i]});
  }
  for (const auto &[name, bytes] : categories)
    report.peak.push_back({name, bytes});
  // Ties go by name and by index, so that equal bundles give equal reports.
  std::sort(report.peak.begin(), report.peak.end(),
            [](const PlanReport::Sum &a, const PlanReport::Sum &b) {
              return std::tie(b.bytes, a.name) < std::tie(a.bytes, b.name);
            });
  std::sort(report.largest.begin(), report.largest.end(),
            [&](const PlanReport::Buffer &a, const PlanReport::Buffer &b) {
              uint64_t bytesOfA = message.buffers(a.index).bytes();
              uint64_t bytesOfB = message.buffers(b.index).bytes();
              return std::tie(bytesOfB, a.index) < std::tie(bytesOfA, b.index);
            });
  if (report.largest.size() > largest)
    report.largest.resize(largest);
}

} // namespace

PlanReport reportPlan(const bundle::Bundle &message, size_t largest) {
  PlanReport report;
  for (const bundle::Arena &arena : message.arenas()) {
    report.arenaBytes += arena.bytes();
    if (arena.name() == "act")
      report.actBytes = arena.bytes();
  }
  Lives peakLives;
  for (const bundle::Program &program : message.programs()) {
    Lives lives = livesIn(message, program);
    report.programs.push_back(count(message, program, lives));
    if (report.peakProgram < 0 ||
        report.programs.back().liveBytes >
            report.programs[report.peakProgram].liveBytes) {
      report.peakProgram = static_cast<int>(report.programs.size()) - 1;
      peakLives = std::move(lives);
    }
  }
  if (report.peakProgram >= 0)
    listPeak(message, peakLives, report.programs[report.peakProgram].peakEntry,
             largest, report);
  return report;
}

std::string describeEntry(const bundle::Bundle &message,
                          const bundle::PlanEntry &entry) {
  if (entry.has_memset())
    return absl::StrCat(
        "memset of ",
        quoted(
            message.buffers(static_cast<int>(entry.memset().buffer())).name()));
  if (entry.has_collective())
    return describeCollective(message, entry.collective());
  if (entry.has_wait())
    return absl::StrCat("wait for collective ", entry.wait().sequence());
  const bundle::Launch &launch = entry.launch();
  return absl::StrCat(
      launch.tag().empty() ? "" : absl::StrCat(quoted(launch.tag()), ", "),
      "kernel ", message.kernels(static_cast<int>(launch.kernel())).symbol());
}

} // namespace qwen35
