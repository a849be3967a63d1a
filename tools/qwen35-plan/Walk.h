#ifndef QWEN35_TOOLS_QWEN35_PLAN_WALK_H
#define QWEN35_TOOLS_QWEN35_PLAN_WALK_H

#include "tools/qwen35-plan/Timeline.h"

#include <algorithm>
#include <functional>

namespace qwen35::plan {

/// A program with what its entries cost: what prediction and simulation share.
struct CostedProgram {
  struct Entry {
    double seconds = 0;
    Bound bound = Bound::Memory;
    bool collective = false;
    int opClass = 0;    ///< into CostedStep::classes
    int issueAfter = 0; ///< of a collective: it may start once this one does
    const PlannedOp *op = nullptr;
  };
  std::string name;
  std::vector<Entry> entries;
};

struct CostedStep {
  std::vector<std::string> classes;
  std::map<std::string, CostedProgram> programs;
  std::vector<const CostedProgram *> order; ///< of one step

  CostedStep(const LocalStep &step, int64_t microbatches,
             const Hardware &hardware, const Overlap &overlap);
  CostedStep(const CostedStep &) = delete;
};

/// One rank on its way through a step.
///
/// `run` goes up to a collective or the end. There `arrival` says when the rank
/// could start it; whoever knows the other ranks calls `finish`.
class Walker {
public:
  Walker(const CostedStep &step, bool twoStreams, double slowdown = 1)
      : step(step), twoStreams(twoStreams), slowdown(slowdown) {
    enter();
  }

  /// False at the end of the step.
  bool run();
  double arrival() const { return arrivalTime; }
  const CostedProgram::Entry &entry() const {
    return step.order[program]->entries[index];
  }
  void finish(double start, double end);
  double seconds() const { return std::max(compute, comm); }

  /// Called with everything that ran, in the order in which it was walked:
  /// entry, start, end, seconds that the kernels' stream waited for it, and of
  /// a kernel the collective it waited for, or null.
  std::function<void(const CostedProgram::Entry &, double, double, double,
                     const CostedProgram::Entry *)>
      observe;
  /// A factor of single kernels on this rank, if set.
  std::function<double(const CostedProgram::Entry &)> factor;

  size_t programIndex() const { return program; }
  size_t entryIndex() const { return index; }

private:
  void enter();
  double ready(const CostedProgram::Entry &entry, int &last) const;

  const CostedStep &step;
  bool twoStreams;
  double slowdown;
  size_t program = 0, index = 0;
  double compute = 0, comm = 0, arrivalTime = 0;
  std::vector<double> done, started;
};

} // namespace qwen35::plan

#endif // QWEN35_TOOLS_QWEN35_PLAN_WALK_H
