#include "runtime/records/metrics_file.h"

#include "absl/strings/str_cat.h"

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <fcntl.h>
#include <nlohmann/json.hpp>

namespace qwen35 {

/// The step of a line, or -1 when it is no record.
static int64_t stepOf(const std::string &line) {
  auto object =
      nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object() || line.back() != '\n')
    return -1;
  auto step = object.find("step");
  return step != object.end() && step->is_number_unsigned()
             ? step->get<int64_t>()
             : -1;
}

/// Bytes of the file up to its first record past `lastStep`.
static absl::StatusOr<int64_t> findCut(const std::string &path,
                                       int64_t lastStep) {
  FILE *stream = std::fopen(path.c_str(), "rb");
  if (!stream && errno == ENOENT)
    return 0;
  if (!stream)
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path));
  int64_t kept = 0, number = 0, torn = 0;
  char *text = nullptr;
  size_t capacity = 0;
  ssize_t length;
  while ((length = getline(&text, &capacity, stream)) > 0 && !torn) {
    ++number;
    std::string line(text, static_cast<size_t>(length));
    int64_t step = stepOf(line);
    if (step < 0) {
      torn = number;
    } else if (step > lastStep) {
      break;
    } else {
      kept += length;
    }
  }
  // A line was read after the bad one: it is no torn end.
  bool inside = torn && length > 0;
  bool failed = std::ferror(stream);
  std::free(text);
  std::fclose(stream);
  if (failed)
    return absl::UnavailableError(absl::StrCat("cannot read ", path));
  if (inside)
    return absl::InvalidArgumentError(
        absl::StrCat(path, ":", torn, ": is no metrics record"));
  return kept;
}

absl::StatusOr<std::unique_ptr<MetricsFile>>
MetricsFile::open(const std::string &path, int64_t resumedStep) {
  int64_t kept = 0;
  if (resumedStep > 0) {
    auto found = findCut(path, resumedStep);
    if (!found.ok())
      return found.status();
    kept = *found;
  }
  std::unique_ptr<MetricsFile> metrics(new MetricsFile);
  absl::Status status = metrics->file.open(path, O_CREAT);
  if (status.ok())
    status = metrics->file.cut(kept);
  if (!status.ok())
    return status;
  return metrics;
}

absl::Status MetricsFile::append(const StepRecord &record) {
  double now = std::chrono::duration<double>(
                   std::chrono::system_clock::now().time_since_epoch())
                   .count();
  return file.append(formatStepJson(record, now) + "\n");
}

absl::Status MetricsFile::sync() { return file.sync(); }

} // namespace qwen35
