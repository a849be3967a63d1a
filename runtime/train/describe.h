#ifndef QWEN35_RUNTIME_TRAIN_DESCRIBE_H
#define QWEN35_RUNTIME_TRAIN_DESCRIBE_H

#include <string>
#include <vector>

#include "runtime/api/step.h"
#include "runtime/train/run_setup.h"

namespace qwen35 {

/// The kernels that one kind of layer runs on.
struct LayerPath {
  std::string kind;             // linear_attention
  int64_t layers = 0;           // of this kind
  std::vector<std::string> ops; // classes of the kernels in the step, in order
};

/// What the plan launches for every kind of layer: all of it was decided by
/// the compiler, so this is the whole truth about fast and slow paths.
std::vector<LayerPath> layerPaths(const bundle::Bundle &message);

/// Bundle, target, layers, memory and step size: the head of a run's report.
/// `step` may be absent: nothing is known of a device then.
std::string describeRun(const RunSetup &setup, int threads, const Step *step);

/// The resolved recipe, the parameter table and the memory plan.
std::string describePlan(const RunSetup &setup);

/// Time per class of op, longest first, with calls and share.
std::string describeProfile(const std::vector<OpTime> &times, int64_t steps);

/// Launches of a step and the graph that they became: one line.
std::string describeLaunches(int64_t launches, const StepGraph &graph);

/// What the plan holds of the device and what was taken from it: one line.
std::string describeMemory(const StepMemory &memory);

/// run.json: the same for machines, one object.
std::string runRecord(const RunSetup &setup, const RunOptions &options,
                      int threads, int64_t resumedStep, const Step *step);

/// summary.json: what a run did from step `before` to step `last`, in `seconds`
/// of the loop, saves included.
std::string summaryRecord(const Step &step, int64_t before, int64_t last,
                          double seconds, int64_t rows);

} // namespace qwen35

#endif // QWEN35_RUNTIME_TRAIN_DESCRIBE_H
