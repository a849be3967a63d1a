#ifndef QWEN35_RUNTIME_BUNDLE_PLAN_REPORT_H
#define QWEN35_RUNTIME_BUNDLE_PLAN_REPORT_H

#include "runtime/schema/bundle.pb.h"

#include <cstdint>
#include <string>
#include <vector>

namespace qwen35 {

/// What a plan costs, read off the plan alone. Sizes are bytes.
struct PlanReport {
  struct Program {
    std::string name;
    uint64_t launches = 0, memsets = 0, collectives = 0;
    uint64_t sentBytes = 0; // of a rank to others
    uint64_t tasks = 0;     // over all launches
    uint64_t liveBytes = 0; // most bytes of act in use at one entry
    int peakEntry = -1;     // the first such entry
  };
  struct Sum {
    std::string name;
    uint64_t bytes = 0;
  };
  struct Buffer {
    uint32_t index = 0;        // into Bundle.buffers
    int first = -1, last = -1; // entries that use it, in the peak program
  };

  std::vector<Program> programs; // in the bundle's order
  uint64_t arenaBytes = 0;       // over all arenas
  uint64_t actBytes = 0;         // of the act arena
  /// The program and entry with the most bytes of act in use; -1 for none.
  int peakProgram = -1;
  /// Bytes in use at that entry by category, largest first: buffers of act that
  /// are live there, and everything in the other arenas.
  std::vector<Sum> peak;
  /// The largest buffers in use there, largest first.
  std::vector<Buffer> largest;
};

/// Reads off the report. A buffer of act counts from the first entry of a
/// program that uses it to the last. The message must have passed
/// validateBundle.
PlanReport reportPlan(const bundle::Bundle &message, size_t largest);

/// An entry in words: "layers.3.mlp/matmul, kernel matmul_f32", or "memset of
/// 'x'". Names are escaped.
std::string describeEntry(const bundle::Bundle &message,
                          const bundle::PlanEntry &entry);

} // namespace qwen35

#endif // QWEN35_RUNTIME_BUNDLE_PLAN_REPORT_H
