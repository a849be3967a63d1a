#include "tools/qwen35-plan/Simulate.h"

#include "tools/qwen35-plan/Report.h"
#include "tools/qwen35-plan/Walk.h"

#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <numeric>
#include <random>

namespace qwen35::plan {
namespace {

struct Rank {
  std::unique_ptr<Walker> walker;
  const CostedStep *costed = nullptr;
  std::mt19937_64 random;
  bool ended = false;
  // Of the collective that it is at.
  std::vector<int64_t> group;

  const CostedProgram &program() const {
    return *costed->order[walker->programIndex()];
  }
  std::string describe(int64_t number) const {
    if (ended)
      return llvm::formatv("rank {0} has ended its step", number).str();
    const PlannedOp &op = *walker->entry().op;
    std::string over;
    for (const std::string &axis : op.axes)
      over += (over.empty() ? "" : ",") + axis;
    return llvm::formatv("rank {0} is in {1}, number {2}, {3} of {4:F0} bytes "
                         "over {5}",
                         number, program().name, op.sequence, op.op,
                         op.fullBytes, over)
        .str();
  }
};

} // namespace

std::string simulate(const std::vector<const LocalStep *> &steps,
                     int64_t microbatches, const Hardware &hardware,
                     const Overlap &overlap, const SimulateOptions &options,
                     Simulation &result) {
  std::string error;
  std::optional<Mesh> mesh = Mesh::make(steps[0]->mesh, error);
  if (!mesh)
    return error;
  std::map<const LocalStep *, std::unique_ptr<CostedStep>> costed;
  for (const LocalStep *step : steps)
    if (std::unique_ptr<CostedStep> &one = costed[step]; !one)
      one =
          std::make_unique<CostedStep>(*step, microbatches, hardware, overlap);

  std::vector<Rank> ranks(static_cast<size_t>(mesh->ranks()));
  for (size_t r = 0; r < ranks.size(); ++r) {
    Rank &rank = ranks[r];
    rank.costed = costed[steps[steps.size() == 1 ? 0 : r]].get();
    rank.random.seed(options.seed * 1000003 + r);
    rank.walker = std::make_unique<Walker>(
        *rank.costed, overlap.twoStreams,
        static_cast<int64_t>(r) == options.slowRank ? options.slowdown : 1);
    if (options.jitter > 0)
      rank.walker->factor = [&](const CostedProgram::Entry &) {
        return 1 + options.jitter * double(rank.random() >> 11) * 0x1p-53;
      };
  }

  result.waited.assign(ranks.size(), 0);
  std::map<std::string, double> waitedFor;
  // A rank goes up to a collective. The last one of a group to come to it sends
  // all of them on.
  std::deque<size_t> toRun(ranks.size());
  std::iota(toRun.begin(), toRun.end(), 0);
  auto same = [](const Rank &a, const Rank &b) {
    if (b.ended || a.group != b.group)
      return false;
    const PlannedOp &x = *a.walker->entry().op, &y = *b.walker->entry().op;
    return a.walker->programIndex() == b.walker->programIndex() &&
           x.sequence == y.sequence && x.op == y.op &&
           x.fullBytes == y.fullBytes;
  };
  while (!toRun.empty()) {
    size_t r = toRun.front();
    toRun.pop_front();
    Rank &rank = ranks[r];
    rank.group.clear();
    if (!rank.walker->run()) {
      rank.ended = true;
      result.seconds = std::max(result.seconds, rank.walker->seconds());
      continue;
    }
    MeshAxes axes = 0;
    for (const std::string &axis : rank.walker->entry().op->axes)
      axes |= mesh->axes(axis).value_or(0);
    rank.group = mesh->group(static_cast<int64_t>(r), axes);
    bool all = true;
    double start = 0;
    for (int64_t other : rank.group) {
      all &= same(rank, ranks[other]);
      if (all)
        start = std::max(start, ranks[other].walker->arrival());
    }
    if (!all)
      continue;
    ++result.events;
    std::vector<int64_t> group = rank.group;
    for (int64_t member : group) {
      Walker &walker = *ranks[member].walker;
      double waited = start - walker.arrival();
      result.waited[member] += waited;
      waitedFor[ranks[member].costed->classes[walker.entry().opClass]] +=
          waited;
      walker.finish(start, start + walker.entry().seconds);
      ranks[member].group.clear();
      toRun.push_back(static_cast<size_t>(member));
    }
  }
  for (size_t r = 0; r < ranks.size(); ++r) {
    if (ranks[r].ended)
      continue;
    // Name one that it waits for.
    for (int64_t other : ranks[r].group)
      if (!same(ranks[r], ranks[other]))
        return llvm::formatv("ranks wait for each other forever: {0}; {1}",
                             ranks[r].describe(static_cast<int64_t>(r)),
                             ranks[other].describe(other))
            .str();
  }
  for (const auto &[name, seconds] : waitedFor)
    result.waitedFor.emplace_back(name, seconds);
  std::sort(result.waitedFor.begin(), result.waitedFor.end(),
            [](auto &a, auto &b) { return a.second > b.second; });
  return "";
}

void printSimulation(const Simulation &simulation, double predicted,
                     llvm::raw_ostream &out) {
  const std::vector<double> &waited = simulation.waited;
  auto [least, most] = std::minmax_element(waited.begin(), waited.end());
  double mean = std::accumulate(waited.begin(), waited.end(), 0.0) /
                double(waited.size());
  out << llvm::formatv(
      "simulated {0} ranks, {1} collectives: step {2} ({3:F1} % over one rank "
      "alone)\n",
      waited.size(), simulation.events, formatSeconds(simulation.seconds),
      100 * (simulation.seconds / predicted - 1));
  out << llvm::formatv(
      "  a rank waits for others {0} on average; least rank {1} ({2}), most "
      "rank {3} ({4})\n",
      formatSeconds(mean), least - waited.begin(), formatSeconds(*least),
      most - waited.begin(), formatSeconds(*most));
  for (size_t i = 0; i < std::min<size_t>(simulation.waitedFor.size(), 5); ++i)
    if (simulation.waitedFor[i].second > 0)
      out << llvm::format(
          "  in %-40s %12s of a rank\n", simulation.waitedFor[i].first.c_str(),
          formatSeconds(simulation.waitedFor[i].second / double(waited.size()))
              .c_str());
}

} // namespace qwen35::plan
