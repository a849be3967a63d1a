#ifndef QWEN35_TOOLS_QWEN35_PLAN_TIMELINE_H
#define QWEN35_TOOLS_QWEN35_PLAN_TIMELINE_H

#include "tools/qwen35-plan/Hardware.h"
#include "tools/qwen35-plan/LocalStep.h"

namespace qwen35::plan {

/// What bounds an entry.
enum class Bound { Tensor, Memory, Launch, Chain, Nvlink, Nic, Latency };
const char *boundName(Bound bound);

struct Cost {
  double seconds = 0;
  Bound bound = Bound::Memory;
  std::string opClass; ///< of the hardware file; of a collective its kind
};

/// Time of a kernel or fill alone on the device: the larger of operations over
/// the rate of its class and bytes over its bandwidth (or of its chain), plus
/// what a launch costs.
Cost kernelCost(const PlannedOp &entry, double chunks,
                const Hardware &hardware);

/// Time of a collective of n ranks on N nodes. Source: DESIGN.md 11, with
/// `ranks` / `nodes` of a group on each node.
Cost collectiveCost(const std::string &kind, double fullBytes, int64_t ranks,
                    int64_t nodes, const Hardware &hardware);

/// How many nodes of consecutive ranks a group touches at most.
int64_t nodesOf(const Mesh &mesh, MeshAxes axes, int gpusPerNode);

/// How much of the communication may run beside kernels.
struct Overlap {
  /// False: one stream, as plans of this build run: nothing is hidden.
  bool twoStreams = true;
  /// Layers that a collective may start ahead of its place in the plan, if what
  /// it reads is there: what more memory in flight could buy.
  int prefetch = 0;
};

/// The programs of one step of so many microbatches, in order, with repetition.
std::vector<std::string> stepPrograms(const LocalStep &step,
                                      int64_t microbatches);

struct ClassTime {
  std::string name;
  int64_t count = 0;
  double seconds = 0, flops = 0, bytes = 0;
  std::map<Bound, double> bySeconds;
  double exposed = 0; ///< seconds that kernels wait for them
};

struct TimelineEntry {
  double start = 0, end = 0; // seconds from the start of the step
  bool communication = false;
  std::string opClass;
  int layer = -1;
  double liveBytes = 0;
};

struct Timeline {
  double seconds = 0; ///< of a step
  double compute = 0; ///< of kernels in it
  double communication = 0, exposed = 0;
  double nicSeconds = 0;
  std::vector<ClassTime> kernels, collectives; ///< most seconds first
  /// Mean seconds of a layer of this kind per microbatch, with its collectives:
  /// by (layer, class).
  std::map<int, std::map<std::string, double>> perLayer;
  std::vector<TimelineEntry> entries; ///< if asked for
};

/// A rank's step when all ranks are as fast as it is.
Timeline predictStep(const LocalStep &step, int64_t microbatches,
                     const Hardware &hardware, const Overlap &overlap,
                     bool keepEntries = false);

} // namespace qwen35::plan

#endif // QWEN35_TOOLS_QWEN35_PLAN_TIMELINE_H
