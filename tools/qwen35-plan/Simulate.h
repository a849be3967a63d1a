#ifndef QWEN35_TOOLS_QWEN35_PLAN_SIMULATE_H
#define QWEN35_TOOLS_QWEN35_PLAN_SIMULATE_H

#include "tools/qwen35-plan/Timeline.h"

#include "llvm/Support/raw_ostream.h"

namespace qwen35::plan {

struct SimulateOptions {
  double jitter = 0; ///< kernels take up to so much longer, a share; uniform
  uint64_t seed = 1;
  int64_t slowRank = -1;
  double slowdown = 1;
};

/// A step of all ranks.
struct Simulation {
  double seconds = 0;
  int64_t events = 0; ///< collectives, counted once per group
  /// Of every rank: seconds that it was in a collective before the last of the
  /// group came.
  std::vector<double> waited;
  /// The same by class of collective, over all ranks; most first.
  std::vector<std::pair<std::string, double>> waitedFor;
};

/// Replays the plans of all ranks: each walks through its own, and a collective
/// starts when the last rank of its group is there.
///
/// Errors  A sentence that names rank, program, sequence number and op, where
///         ranks wait for each other forever. `steps` has one plan, which all
///         ranks have, or one for each.
std::string simulate(const std::vector<const LocalStep *> &steps,
                     int64_t microbatches, const Hardware &hardware,
                     const Overlap &overlap, const SimulateOptions &options,
                     Simulation &result);

void printSimulation(const Simulation &simulation, double predicted,
                     llvm::raw_ostream &out);

} // namespace qwen35::plan

#endif // QWEN35_TOOLS_QWEN35_PLAN_SIMULATE_H
