#ifndef QWEN35_RUNTIME_RECORDS_METRICS_FILE_H
#define QWEN35_RUNTIME_RECORDS_METRICS_FILE_H

#include "runtime/records/AppendFile.h"
#include "runtime/records/step_record.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include <cstdint>
#include <memory>
#include <string>

namespace qwen35 {

/// metrics.jsonl: one object per step, appended whole with one write.
class MetricsFile {
public:
  /// Opens for appending after step `resumedStep` (0: a fresh run, the file
  /// becomes empty). Records of later steps, which the resumed run will write
  /// again, and a torn last line are cut off.
  /// Errors  InvalidArgument naming file and line when a line before the last
  ///         is no record: the file is left as it is. Else the file system's.
  static absl::StatusOr<std::unique_ptr<MetricsFile>>
  open(const std::string &path, int64_t resumedStep);

  /// Errors  Unavailable or ResourceExhausted naming the path (disk full); a
  ///         partly written line is cut off again.
  absl::Status append(const StepRecord &record);
  /// To disk, before a checkpoint counts as complete.
  absl::Status sync();

private:
  MetricsFile() = default;
  impl::AppendFile file;
};

} // namespace qwen35

#endif // QWEN35_RUNTIME_RECORDS_METRICS_FILE_H
