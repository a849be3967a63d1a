#ifndef QWEN35_RUNTIME_TRAIN_PROFILE_RUN_H
#define QWEN35_RUNTIME_TRAIN_PROFILE_RUN_H

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/api/step.h"

namespace qwen35 {

/// What `--profile` does to the steps of a run on a GPU, and what it found.
///
/// Steps   Of three or more the first is warm-up and not counted; of six or
///         more the last half, at most five, are captured as without a profile,
///         for their wall time. All others are launch by launch with an event
///         between launches; nothing waits within a program. Results have the
///         same bits either way.
/// Bound   Of a launch, the larger of its flops over the dense bf16 peak and
///         its bytes over the bandwidth, both theoretical (data sheet).
class ProfileRun {
public:
  /// `steps` is how many will follow.
  ProfileRun(Step &step, int64_t steps);

  void beforeStep();
  /// `seconds` is the wall time of the step, data not included.
  void afterStep(double seconds);

  /// Tables by class of op and by kernel, longest first, the latter cut to
  /// `most` rows (0: all), and a line that sums up.
  std::string report(size_t most) const;

private:
  Step &step;
  int64_t warmUp = 0, captured = 0; // how many
  int64_t steps, done = 0, measured = 0;
  std::optional<double> wall; // shortest step that was captured before
};

/// Launches as a Chrome trace, for Perfetto and chrome://tracing: one complete
/// event each, on the track of its stream.
std::string chromeTrace(const std::vector<TraceEvent> &events,
                        const std::string &device);

} // namespace qwen35

#endif // QWEN35_RUNTIME_TRAIN_PROFILE_RUN_H
