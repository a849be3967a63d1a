#ifndef QWEN35_RUNTIME_RECORDS_APPENDFILE_H
#define QWEN35_RUNTIME_RECORDS_APPENDFILE_H

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include <cstdint>
#include <string>

namespace qwen35::impl {

/// A file that grows by whole records: one that does not fit on the disk leaves
/// nothing behind.
class AppendFile {
public:
  AppendFile() = default;
  ~AppendFile();
  AppendFile(const AppendFile &) = delete;
  AppendFile &operator=(const AppendFile &) = delete;

  /// `flags` of open(2) beside writing and appending.
  absl::Status open(const std::string &path, int flags);
  /// Cuts the file to `bytes`, which it has at least.
  absl::Status cut(int64_t bytes);
  absl::Status append(absl::string_view record);
  absl::Status sync();

  const std::string &path() const { return name; }

private:
  absl::Status failed(const char *what) const;

  std::string name;
  int fd = -1;
  int64_t size = 0;
};

} // namespace qwen35::impl

#endif // QWEN35_RUNTIME_RECORDS_APPENDFILE_H
