#include "runtime/step/arena.h"

#include "absl/strings/str_cat.h"
#include "runtime/bundle/format_bytes.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <sys/mman.h>
#include <utility>

namespace qwen35 {
namespace {

constexpr uint64_t kPage = 4096;

/// The number that `format` finds in a line of the file, or UINT64_MAX.
uint64_t numberIn(const char *path, const char *format) {
  uint64_t number = UINT64_MAX;
  std::FILE *file = std::fopen(path, "re");
  if (!file)
    return number;
  char line[256];
  unsigned long long value = 0;
  while (std::fgets(line, sizeof(line), file))
    if (std::sscanf(line, format, &value) == 1) {
      number = value;
      break;
    }
  std::fclose(file);
  return number;
}

} // namespace

absl::StatusOr<Arena> Arena::allocate(const std::string &name, uint64_t bytes) {
  Arena arena;
  arena.size = bytes;
  if (bytes == 0)
    return arena;
  uint64_t pages = (bytes + kPage - 1) / kPage * kPage;
  // Room to move the start up to an aligned address behind a guard page.
  uint64_t length = pages + kAlign + 2 * kPage;
  void *mapping = ::mmap(nullptr, length, PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED)
    return absl::ResourceExhaustedError(absl::StrCat(
        "arena ", name, " needs ", formatBytes(bytes),
        ", which the system does not give: ", std::strerror(errno)));
  arena.mapping = mapping;
  arena.mappedBytes = length;
  uint64_t first = reinterpret_cast<uint64_t>(mapping) + kPage;
  arena.base =
      reinterpret_cast<uint8_t *>((first + kAlign - 1) / kAlign * kAlign);
  if (::mprotect(arena.base, pages, PROT_READ | PROT_WRITE) != 0)
    return absl::ResourceExhaustedError(absl::StrCat(
        "arena ", name, " needs ", formatBytes(bytes),
        ", which the system does not give: ", std::strerror(errno)));
  if (pages >= kAlign) // A hint: without huge pages it is only slower.
    ::madvise(arena.base, pages, MADV_HUGEPAGE);
  return arena;
}

Arena::~Arena() {
  if (mapping)
    ::munmap(mapping, mappedBytes);
}

void Arena::swap(Arena &other) {
  std::swap(base, other.base);
  std::swap(size, other.size);
  std::swap(mapping, other.mapping);
  std::swap(mappedBytes, other.mappedBytes);
}

uint64_t availableMemory() {
  uint64_t kilobytes = numberIn("/proc/meminfo", "MemAvailable: %llu kB");
  uint64_t available =
      kilobytes > UINT64_MAX / 1024 ? UINT64_MAX : kilobytes * 1024;
  uint64_t limit = numberIn("/sys/fs/cgroup/memory.max", "%llu");
  return std::min(available, limit);
}

} // namespace qwen35
