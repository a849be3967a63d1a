#ifndef QWEN35_RUNTIME_RECORDS_EVENT_FILE_H
#define QWEN35_RUNTIME_RECORDS_EVENT_FILE_H

#include "runtime/records/AppendFile.h"
#include "runtime/records/step_record.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace qwen35 {

/// A TensorBoard event file: TFRecord frames of Event messages, encoded here.
///
/// Frame   u64 length, masked CRC-32C of those 8 bytes, data, masked CRC-32C of
///         the data. Event: wall_time 1, step 2, file_version 3, summary 5
///         {value 1 {tag 1, simple_value 2}}, session_log 7 {status 1}.
/// Source  tensorflow/core/util/event.proto, summary.proto, io/record_writer.
class EventFile {
public:
  /// Creates DIR/events.out.tfevents.<seconds>.<host>.<pid>.<n>, one per
  /// attempt. With resumedStep > 0 it starts with a session start at the next
  /// step, which makes TensorBoard drop what an earlier attempt wrote past it.
  static absl::StatusOr<std::unique_ptr<EventFile>>
  create(const std::string &directory, int64_t resumedStep);

  /// Tags: loss/total and loss/<term>, optim/lr, optim/grad_norm,
  /// optim/skipped, perf/tokens_per_second, perf/slots_per_second, perf/mfu,
  /// perf/flops, memory/resident, memory/device_planned, memory/device_actual,
  /// time/step, time/data, data/epoch.
  absl::Status append(const StepRecord &record);
  absl::Status
  appendScalars(int64_t step,
                const std::vector<std::pair<std::string, double>> &scalars);
  const std::string &path() const { return file.path(); }

private:
  EventFile() = default;
  impl::AppendFile file;
};

namespace impl {
/// One TFRecord frame around `data`.
std::string tfRecordFrame(absl::string_view data);
/// An Event with scalars; `step` 0 is left out as proto3 does.
std::string
encodeScalarEvent(double wallTime, int64_t step,
                  const std::vector<std::pair<std::string, double>> &scalars);
} // namespace impl

} // namespace qwen35

#endif // QWEN35_RUNTIME_RECORDS_EVENT_FILE_H
