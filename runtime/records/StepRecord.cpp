#include "runtime/records/step_record.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace qwen35 {

static constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

std::string groupDigits(int64_t value) {
  std::string digits = absl::StrCat(value);
  size_t first = digits[0] == '-' ? 1 : 0;
  for (size_t at = digits.size(); at > first + 3; at -= 3)
    digits.insert(at - 3, ",");
  return digits;
}

std::string shortNumber(double value, int digits) {
  std::string text = absl::StrFormat("%.*g", digits, value);
  size_t exponent = text.find('e');
  if (exponent == std::string::npos)
    return text;
  // e-05 to e-5, e+10 to e10
  std::string rest = text.substr(exponent + 1);
  std::string sign = rest[0] == '-' ? "-" : "";
  rest.erase(0, std::min(rest.find_first_not_of("+-0"), rest.size() - 1));
  return absl::StrCat(text.substr(0, exponent), "e", sign, rest);
}

std::string formatDuration(double seconds) {
  if (!(seconds >= 0 && seconds < 1e12))
    return "?";
  int64_t s = std::llround(seconds);
  if (s < 60)
    return absl::StrCat(s, "s");
  if (s < 3600)
    return absl::StrFormat("%dm%02ds", s / 60, s % 60);
  int64_t minutes = s / 60;
  if (minutes < 24 * 60)
    return absl::StrFormat("%dh%02dm", minutes / 60, minutes % 60);
  return absl::StrFormat("%dd%02dh", minutes / 1440, minutes / 60 % 24);
}

static double perSecond(int64_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

double StepRecord::tokensPerSecond() const {
  return perSecond(realTokens, stepSeconds);
}

double StepRecord::slotsPerSecond() const {
  return perSecond(slots, stepSeconds);
}

static std::string formatSeconds(double seconds) {
  return absl::StrFormat("%.*f", seconds < 1 ? 4 : 2, seconds);
}

std::string formatStepLine(const StepRecord &record) {
  std::string line = absl::StrFormat("step %d/%d | loss %.4f", record.step,
                                     record.totalSteps, record.loss);
  if (record.lossTerms.size() > 1) {
    const char *separator = " (";
    for (const auto &[name, value] : record.lossTerms) {
      absl::StrAppend(&line, separator, name, " ",
                      absl::StrFormat("%.4f", value));
      separator = ", ";
    }
    line += ")";
  }
  absl::StrAppend(&line, " | lr ", shortNumber(record.lr, 3), " | grad_norm ",
                  shortNumber(record.gradNorm, 3));
  if (!record.committed)
    line += " | skipped: gradient norm is not finite";

  absl::StrAppend(&line, " | tok/s ",
                  groupDigits(std::llround(record.tokensPerSecond())));
  if (record.ranks > 1)
    absl::StrAppend(
        &line, " (",
        groupDigits(std::llround(record.tokensPerSecond() / record.ranks)),
        "/rank)");
  if (record.slots > record.realTokens)
    absl::StrAppend(&line, " (slots/s ",
                    groupDigits(std::llround(record.slotsPerSecond())), ")");
  if (record.flops > 0) {
    double each = record.flops / record.ranks;
    bool tera = each >= 1e12;
    absl::StrAppend(&line, tera ? " | TFLOP/s" : " | GFLOP/s",
                    record.ranks > 1 ? "/rank " : " ",
                    absl::StrFormat("%.1f", each / (tera ? 1e12 : 1e9)));
    if (record.peakFlops > 0)
      absl::StrAppend(&line,
                      absl::StrFormat(" | mfu %.1f%%",
                                      100 * record.flops / record.peakFlops));
  }
  if (record.onDevice && record.deviceActualBytes > 0) {
    double used = static_cast<double>(record.deviceActualBytes);
    double total = static_cast<double>(record.deviceTotalBytes);
    absl::StrAppend(&line, absl::StrFormat(
                               " | mem %.2f/%.1f GiB (%.0f%%, planned %.2f)",
                               used / kGiB, total / kGiB, 100 * used / total,
                               record.devicePlannedBytes / kGiB));
  } else if (record.memoryBytes > 0) {
    double used = static_cast<double>(record.memoryBytes);
    double total = static_cast<double>(record.memoryTotalBytes);
    if (total > 0)
      absl::StrAppend(&line, absl::StrFormat(" | mem %.2f/%.1f GiB (%.0f%%)",
                                             used / kGiB, total / kGiB,
                                             100 * used / total));
    else
      absl::StrAppend(&line, absl::StrFormat(" | mem %.2f GiB", used / kGiB));
  }
  absl::StrAppend(&line, " | step ", formatSeconds(record.stepSeconds),
                  " s (data ", formatSeconds(record.dataSeconds), ") | eta ",
                  formatDuration(record.etaSeconds));
  return line;
}

std::string formatStepJson(const StepRecord &record, double unixTime) {
  nlohmann::ordered_json object;
  auto number = [](double value) -> nlohmann::ordered_json {
    if (std::isfinite(value))
      return value;
    return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
  };
  object["step"] = record.step;
  object["loss"] = number(record.loss);
  for (const auto &[name, value] : record.lossTerms)
    object["loss_" + name] = number(value);
  object["lr"] = number(record.lr);
  object["grad_norm"] = number(record.gradNorm);
  object["committed"] = record.committed;
  object["tokens"] = record.realTokens;
  object["slots"] = record.slots;
  object["documents"] = record.documents;
  object["epoch"] = record.epoch;
  object["tokens_per_second"] = number(record.tokensPerSecond());
  object["slots_per_second"] = number(record.slotsPerSecond());
  object["step_seconds"] = number(record.stepSeconds);
  object["data_seconds"] = number(record.dataSeconds);
  object["eta_seconds"] = number(record.etaSeconds);
  if (record.flops > 0)
    object["flops"] = number(record.flops);
  if (record.flops > 0 && record.peakFlops > 0)
    object["mfu"] = number(record.flops / record.peakFlops);
  else if (record.onDevice)
    object["mfu"] = nullptr;
  if (record.onDevice) {
    object["device_mem_planned_bytes"] = record.devicePlannedBytes;
    object["device_mem_actual_bytes"] = record.deviceActualBytes;
    object["device_mem_total_bytes"] = record.deviceTotalBytes;
    object["launches"] = record.launches;
    object["graph_nodes"] = record.graphNodes;
    object["graph_captures"] = record.graphCaptures;
    object["graph_launches"] = record.graphLaunches;
  }
  if (record.memoryBytes > 0)
    object["memory_bytes"] = record.memoryBytes;
  if (record.memoryTotalBytes > 0)
    object["memory_total_bytes"] = record.memoryTotalBytes;
  object["time"] = number(unixTime);
  using Json = nlohmann::ordered_json;
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

StepPrinter::StepPrinter(FILE *stream)
    : stream(stream), terminal(isatty(fileno(stream)) == 1) {}

void StepPrinter::print(const StepRecord &record) {
  if (first)
    std::fprintf(stream,
                 "step %lld includes warm-up (first touch of memory, cold "
                 "caches); judge speed from the next one\n",
                 static_cast<long long>(record.step));
  first = false;
  std::string line = formatStepLine(record);
  if (terminal) {
    // Bold up to the first figure people look for.
    size_t end = line.find(" | lr ");
    line = absl::StrCat("\033[1m", line.substr(0, end), "\033[0m",
                        line.substr(end));
  }
  std::fprintf(stream, "%s\n", line.c_str());
  std::fflush(stream);
}

double EtaClock::update(int64_t step, int64_t totalSteps, double stepSeconds) {
  ++seen;
  // Until a second step is known the first is all there is.
  if (seen <= 2) {
    mean = stepSeconds;
  } else {
    double weight = std::max(1.0 / static_cast<double>(seen - 1), 0.05);
    mean += weight * (stepSeconds - mean);
  }
  return static_cast<double>(std::max<int64_t>(totalSteps - step, 0)) * mean;
}

int64_t residentBytes() {
  FILE *statm = std::fopen("/proc/self/statm", "r");
  if (!statm)
    return 0;
  long long total = 0, resident = 0;
  int fields = std::fscanf(statm, "%lld %lld", &total, &resident);
  std::fclose(statm);
  return fields == 2 ? resident * sysconf(_SC_PAGESIZE) : 0;
}

int64_t machineBytes() {
  long pages = sysconf(_SC_PHYS_PAGES);
  return pages > 0 ? static_cast<int64_t>(pages) * sysconf(_SC_PAGESIZE) : 0;
}

} // namespace qwen35
