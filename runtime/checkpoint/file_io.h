#ifndef QWEN35_RUNTIME_CHECKPOINT_FILE_IO_H
#define QWEN35_RUNTIME_CHECKPOINT_FILE_IO_H

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/checkpoint/sha256.h"

namespace qwen35 {

/// A file mapped for reading, private to this process.
///
/// A file that is replaced by rename stays as it was opened. One that another
/// program shortens in place raises SIGBUS on access, as any mapping does.
class MappedFile {
public:
  /// Errors  NotFound, PermissionDenied, ...; InvalidArgument for anything
  ///         but a regular file (a pipe is refused, never waited for).
  static absl::StatusOr<MappedFile> open(const std::string &path);

  MappedFile(MappedFile &&other) noexcept;
  MappedFile &operator=(MappedFile &&other) noexcept;
  ~MappedFile();

  const std::string &path() const { return name; }
  const char *data() const { return bytes; }
  int64_t size() const { return length; }
  absl::string_view text() const {
    return absl::string_view(bytes, static_cast<size_t>(length));
  }

private:
  MappedFile() = default;
  std::string name;
  const char *bytes = nullptr;
  int64_t length = 0;
};

/// What a finished file holds.
struct FileDigest {
  int64_t bytes = 0;
  std::string sha256;
};

/// A file that appears under its name complete and on disk, or not at all.
///
/// Bytes go to a temporary file beside it; `commit` syncs it, renames it and
/// syncs the folder. Without commit the destructor removes the temporary file.
class FileWriter {
public:
  static absl::StatusOr<FileWriter> create(const std::string &path);

  FileWriter(FileWriter &&) noexcept;
  FileWriter &operator=(FileWriter &&) = delete;
  ~FileWriter();

  /// Errors  ResourceExhausted when the disk (or quota, or file size limit) is
  ///         full, naming the file, the bytes written and those that did not
  ///         fit; otherwise what errno says.
  absl::Status append(const char *bytes, int64_t size);
  absl::Status append(absl::string_view text) {
    return append(text.data(), static_cast<int64_t>(text.size()));
  }
  absl::StatusOr<FileDigest> commit();

private:
  FileWriter(std::string path, std::string temporary, int fd);
  std::string path, temporary;
  int fd;
  int64_t written = 0;
  Sha256 hash;
};

/// Writes a whole small file through FileWriter.
absl::Status writeFile(const std::string &path, absl::string_view text);

/// Reads a whole regular file. `limit` caps what a hostile file can cost.
absl::StatusOr<std::string> readFile(const std::string &path, int64_t limit);

/// Copies a regular file (following a symbolic link) through FileWriter.
absl::Status copyFile(const std::string &from, const std::string &to);

/// Makes the folder and its parents; an existing folder is fine.
absl::Status makeFolders(const std::string &path);

/// Makes the names in a folder durable.
absl::Status syncFolder(const std::string &path);

/// Removes a file or a folder with all it holds; nothing there is fine.
/// Symbolic links are removed, never followed.
absl::Status removeAll(const std::string &path);

/// Gives the folder `from` the name `to` and syncs the parent; a folder that
/// has the name already is exchanged in one step and then removed, so that at
/// every moment a whole folder has the name.
absl::Status replaceFolder(const std::string &from, const std::string &to);

/// The folder that holds a path: "." for a plain name.
std::string folderOf(const std::string &path);

/// Names in a folder, sorted, without "." and "..".
absl::StatusOr<std::vector<std::string>> listFolder(const std::string &path);

bool isFolder(const std::string &path);
bool exists(const std::string &path); // also for a dangling link

/// "writing /run/x: No space left on device"; the code follows errno.
absl::Status errnoStatus(int error, absl::string_view doing,
                         absl::string_view path);

/// folder + "/" + name
std::string joinPath(absl::string_view folder, absl::string_view name);

/// Turns SIGXFSZ off for this process, so that a file size limit shows as a
/// failed write instead of a killed run. Tools call it once at start.
void ignoreFileSizeSignal();

} // namespace qwen35

#endif // QWEN35_RUNTIME_CHECKPOINT_FILE_IO_H
