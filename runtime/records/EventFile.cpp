#include "runtime/records/event_file.h"

#include "runtime/crc/crc32c.h"

#include "absl/strings/str_cat.h"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <unistd.h>

namespace qwen35 {

namespace {

/// The wire format of the few fields an Event needs.
struct Encoder {
  std::string bytes;

  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7)
      bytes.push_back(static_cast<char>(value | 0x80));
    bytes.push_back(static_cast<char>(value));
  }
  void key(int field, int wireType) { varint(field << 3 | wireType); }
  void integer(int field, uint64_t value) {
    key(field, 0);
    varint(value);
  }
  template <typename Real> void real(int field, Real value) {
    key(field, sizeof(Real) == 8 ? 1 : 5);
    raw(value);
  }
  void text(int field, absl::string_view value) {
    key(field, 2);
    varint(value.size());
    bytes.append(value.data(), value.size());
  }
  template <typename Value> void raw(Value value) { // little endian machines
    bytes.append(reinterpret_cast<const char *>(&value), sizeof(value));
  }
};

double unixTime() {
  return std::chrono::duration<double>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

Encoder startEvent(double wallTime, int64_t step) {
  Encoder event;
  event.real(1, wallTime);
  if (step != 0)
    event.integer(2, static_cast<uint64_t>(step));
  return event;
}

} // namespace

std::string impl::tfRecordFrame(absl::string_view data) {
  Encoder frame;
  frame.raw(static_cast<uint64_t>(data.size()));
  frame.raw(maskedCrc32c(frame.bytes.data(), frame.bytes.size()));
  frame.bytes.append(data.data(), data.size());
  frame.raw(maskedCrc32c(data.data(), data.size()));
  return frame.bytes;
}

std::string impl::encodeScalarEvent(
    double wallTime, int64_t step,
    const std::vector<std::pair<std::string, double>> &scalars) {
  Encoder summary;
  for (const auto &[tag, number] : scalars) {
    Encoder value;
    value.text(1, tag);
    value.real(2, static_cast<float>(number));
    summary.text(1, value.bytes);
  }
  Encoder event = startEvent(wallTime, step);
  event.text(5, summary.bytes);
  return event.bytes;
}

absl::StatusOr<std::unique_ptr<EventFile>>
EventFile::create(const std::string &directory, int64_t resumedStep) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error)
    return absl::ErrnoToStatus(
        error.value(), absl::StrCat("cannot create folder ", directory));
  char host[256] = "localhost";
  gethostname(host, sizeof(host) - 1);
  static std::atomic<int> files{0};
  double now = unixTime();
  std::unique_ptr<EventFile> events(new EventFile);
  absl::Status status =
      events->file.open(absl::StrCat(directory, "/events.out.tfevents.",
                                     static_cast<int64_t>(now), ".", host, ".",
                                     getpid(), ".", files++),
                        O_CREAT | O_EXCL);
  if (!status.ok())
    return status;

  Encoder version = startEvent(now, 0);
  version.text(3, "brain.Event:2");
  status = events->file.append(impl::tfRecordFrame(version.bytes));
  if (status.ok() && resumedStep > 0) {
    Encoder session;
    session.integer(1, 1); // START
    Encoder event = startEvent(now, resumedStep + 1);
    event.text(7, session.bytes);
    status = events->file.append(impl::tfRecordFrame(event.bytes));
  }
  if (!status.ok())
    return status;
  return events;
}

absl::Status EventFile::appendScalars(
    int64_t step, const std::vector<std::pair<std::string, double>> &scalars) {
  return file.append(
      impl::tfRecordFrame(impl::encodeScalarEvent(unixTime(), step, scalars)));
}

absl::Status EventFile::append(const StepRecord &record) {
  std::vector<std::pair<std::string, double>> scalars = {
      {"loss/total", record.loss}};
  for (const auto &[name, value] : record.lossTerms)
    scalars.emplace_back("loss/" + name, value);
  scalars.insert(scalars.end(),
                 {{"optim/lr", record.lr},
                  {"optim/grad_norm", record.gradNorm},
                  {"optim/skipped", record.committed ? 0.0 : 1.0},
                  {"perf/tokens_per_second", record.tokensPerSecond()},
                  {"perf/slots_per_second", record.slotsPerSecond()}});
  if (record.flops > 0)
    scalars.emplace_back("perf/flops", record.flops);
  if (record.flops > 0 && record.peakFlops > 0)
    scalars.emplace_back("perf/mfu", record.flops / record.peakFlops);
  if (record.onDevice)
    scalars.insert(scalars.end(),
                   {{"memory/device_planned",
                     static_cast<double>(record.devicePlannedBytes)},
                    {"memory/device_actual",
                     static_cast<double>(record.deviceActualBytes)}});
  if (record.memoryBytes > 0)
    scalars.emplace_back("memory/resident",
                         static_cast<double>(record.memoryBytes));
  scalars.insert(scalars.end(),
                 {{"time/step", record.stepSeconds},
                  {"time/data", record.dataSeconds},
                  {"data/epoch", static_cast<double>(record.epoch)}});
  return appendScalars(record.step, scalars);
}

} // namespace qwen35
