#ifndef QWEN35_RUNTIME_RECORDS_STEP_RECORD_H
#define QWEN35_RUNTIME_RECORDS_STEP_RECORD_H

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace qwen35 {

/// What is known about a step after it ran; line, jsonl and TensorBoard are
/// three views of it.
///
/// Units   Seconds, bytes, tokens; flops are floating point operations per
///         second. A value that does not apply is left 0 and not shown.
struct StepRecord {
  int64_t step = 0, totalSteps = 0; // step counts from 1
  double loss = 0;                  // all terms, as the gradient sees it
  std::vector<std::pair<std::string, double>>
      lossTerms; // {"lm", x}, {"aux", y}
  double lr = 0, gradNorm = 0;
  bool committed = true;             // false: non-finite, step skipped
  int64_t realTokens = 0, slots = 0; // of the step, over all ranks
  int64_t documents = 0, epoch = 0;
  int ranks = 1;
  double stepSeconds = 0; // data included
  double dataSeconds = 0;
  double etaSeconds = 0;
  double flops = 0;     // achieved, over all ranks
  double peakFlops = 0; // of the machine when known; gives mfu
  int64_t memoryBytes = 0, memoryTotalBytes = 0; // of the host
  // On a GPU:
  bool onDevice = false;
  int64_t devicePlannedBytes = 0, deviceActualBytes = 0, deviceTotalBytes = 0;
  int64_t launches = 0; // of the step's plan
  int64_t graphNodes = 0, graphCaptures = 0, graphLaunches = 0;

  double tokensPerSecond() const;
  double slotsPerSecond() const;
};

/// `step 120/2000 | loss 0.8243 | lr 1.2e-5 | grad_norm 0.71 | tok/s 87,012 |
/// step 6.03 s (data 0.01) | eta 3h09m`. Loss terms by name when there are
/// several, slots/s when rows have padding, tok/s per rank when there are
/// several, GFLOP/s, mfu and memory when known, "skipped" when not committed.
/// Memory is the device's on a GPU, `mem 30.5/139.8 GiB (22%, planned 30.1)`,
/// else the process'.
std::string formatStepLine(const StepRecord &record);

/// One JSON object without a line break. Keys: step, loss, loss_<term>, lr,
/// grad_norm, committed, tokens, slots, documents, epoch, tokens_per_second,
/// slots_per_second, step_seconds, data_seconds, eta_seconds, flops, mfu,
/// memory_bytes, memory_total_bytes (of the host), time (seconds since 1970). A
/// loss or norm that is not finite is a string, "nan", "inf" or "-inf": JSON has
/// no number. On a GPU also device_mem_planned_bytes, device_mem_actual_bytes,
/// device_mem_total_bytes, launches, graph_nodes, graph_captures and
/// graph_launches (the last three 0 when eager), and mfu is null when the peak
/// of the device is not known.
std::string formatStepJson(const StepRecord &record, double unixTime);

/// Prints step lines to rank 0's terminal or log, flushed; the first one of an
/// attempt is preceded by a line that says it includes warm-up. Colour only on
/// a terminal.
class StepPrinter {
public:
  explicit StepPrinter(FILE *stream);
  void print(const StepRecord &record);

private:
  FILE *stream;
  bool terminal, first = true;
};

/// Time left: remaining steps times a running mean of step times that leaves
/// out the first step of an attempt, which pays for warm-up.
class EtaClock {
public:
  /// Notes a finished step and returns the seconds left.
  double update(int64_t step, int64_t totalSteps, double stepSeconds);

private:
  int64_t seen = 0;
  double mean = 0;
};

/// Bytes of memory this process holds (0 when the system does not tell), and
/// that the machine has.
int64_t residentBytes();
int64_t machineBytes();

// Shared by messages: 87012 to "87,012"; 0.000012 to "1.2e-5"; seconds to
// "45s", "3m05s", "3h09m", "2d04h".
std::string groupDigits(int64_t value);
std::string shortNumber(double value, int digits);
std::string formatDuration(double seconds);

} // namespace qwen35

#endif // QWEN35_RUNTIME_RECORDS_STEP_RECORD_H
