#include "runtime/train/profile_run.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/records/step_record.h"

namespace qwen35 {
namespace {

/// "4.21", or "-" where there is nothing to say.
std::string orDash(double value, int digits) {
  return value > 0 ? absl::StrFormat("%.*f", digits, value) : "-";
}

std::string row(const std::string &name, const OpTime &time, double total,
                int64_t steps) {
  double perStep = 1.0 / static_cast<double>(steps);
  double seconds = time.seconds > 0 ? time.seconds : 1e-30;
  return absl::StrFormat(
      "%-44s %8.0f %9.3f %6.1f%% %9.1f %9s %8s %8s %8s\n", name,
      static_cast<double>(time.calls) * perStep, 1e3 * time.seconds * perStep,
      total > 0 ? 100 * time.seconds / total : 0.0,
      1e6 * time.seconds / static_cast<double>(time.calls),
      orDash(1e-6 * time.bytes * perStep, 1),
      orDash(1e-9 * time.bytes / seconds, 0),
      orDash(1e-12 * time.flops / seconds, 1),
      time.bound > 0 ? absl::StrFormat("%.0f%%", 100 * time.bound / seconds)
                     : "-");
}

std::string header(const char *what) {
  return absl::StrFormat("%-44s %8s %9s %7s %9s %9s %8s %8s %8s\n", what,
                         "calls", "ms", "share", "mean us", "MB", "GB/s",
                         "TFLOP/s", "of bound");
}

} // namespace

ProfileRun::ProfileRun(Step &step, int64_t steps) : step(step), steps(steps) {
  if (!step.device())
    return;
  warmUp = steps >= 3 ? 1 : 0;
  captured = steps >= 6 ? std::min<int64_t>(steps / 2, 5) : 0;
}

void ProfileRun::beforeStep() {
  step.setProfiling(done < steps - captured);
  if (done == warmUp)
    step.resetProfile();
}

void ProfileRun::afterStep(double seconds) {
  ++done;
  if (done <= steps - captured)
    measured = done > warmUp ? done - warmUp : done;
  else if (done > steps - captured + 1) // the first one pays for the capture
    wall = std::min(wall.value_or(seconds), seconds);
}

std::string ProfileRun::report(size_t most) const {
  std::vector<OpTime> classes = step.profile();
  std::vector<OpTime> kernels = step.kernelProfile();
  StepDevice device = step.device().value_or(StepDevice{});
  int64_t counted = std::max<int64_t>(measured, 1);
  double total = 0, bound = 0;
  for (const OpTime &time : classes) {
    total += time.seconds;
    bound += time.bound;
  }
  std::string text = absl::StrCat(
      "profile of ", counted, counted == 1 ? " step" : " steps",
      " launch by launch, figures per step; MB: operands read and written "
      "once; bound: ");
  if (device.peakFlops > 0)
    absl::StrAppend(&text,
                    absl::StrFormat("%.1f TFLOP/s bf16 and %.0f GB/s, "
                                    "theoretical, of %s\n",
                                    1e-12 * device.peakFlops,
                                    1e-9 * device.peakBandwidth, device.name));
  else
    absl::StrAppend(&text, "not known for ", device.name, "\n");
  absl::StrAppend(&text, header("class"));
  for (const OpTime &time : classes)
    absl::StrAppend(&text, row(time.op, time, total, counted));
  absl::StrAppend(&text, header("kernel"));
  size_t shown = most ? std::min(most, kernels.size()) : kernels.size();
  for (size_t i = 0; i < shown; ++i)
    absl::StrAppend(&text, row(kernels[i].symbol, kernels[i], total, counted));
  if (shown < kernels.size())
    absl::StrAppend(&text, "and ", kernels.size() - shown, " more\n");
  double sum = total / static_cast<double>(counted);
  absl::StrAppend(&text, absl::StrFormat("sum of launches %.3f ms", 1e3 * sum));
  if (bound > 0)
    absl::StrAppend(&text,
                    absl::StrFormat(" (bound %.3f ms)", 1e3 * bound / counted));
  if (wall)
    absl::StrAppend(&text,
                    absl::StrFormat("; captured step %.3f ms, GPU idle %.1f%% "
                                    "of it",
                                    1e3 * *wall, 100 * (*wall - sum) / *wall));
  else
    absl::StrAppend(&text, "; with 6 steps or more, captured ones are timed "
                           "too");
  return absl::StrCat(text, "\n");
}

std::string chromeTrace(const std::vector<TraceEvent> &events,
                        const std::string &device) {
  nlohmann::json list = {{{"name", "process_name"},
                          {"ph", "M"},
                          {"pid", 1},
                          {"args", {{"name", device}}}},
                         {{"name", "thread_name"},
                          {"ph", "M"},
                          {"pid", 1},
                          {"tid", 1},
                          {"args", {{"name", "stream of the step"}}}}};
  for (const TraceEvent &event : events)
    list.push_back({{"name", event.name},
                    {"cat", event.op},
                    {"ph", "X"},
                    {"pid", 1},
                    {"tid", 1},
                    {"ts", 1e6 * event.start},
                    {"dur", 1e6 * event.seconds},
                    {"args",
                     {{"op", event.op},
                      {"kernel", event.symbol},
                      {"blocks", event.grid},
                      {"bytes", event.bytes},
                      {"flops", event.flops}}}});
  return nlohmann::json{{"traceEvents", std::move(list)},
                        {"displayTimeUnit", "ms"}}
             .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) +
         "\n";
}

} // namespace qwen35
