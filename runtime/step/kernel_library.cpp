#include "runtime/step/kernel_library.h"

#include "absl/strings/str_cat.h"
#include "runtime/bundle/elf_image.h"
#include "runtime/bundle/quoted.h"
#include "runtime/bundle/status_macros.h"

#include <sodium/crypto_hash_sha256.h>

#include <cerrno>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace qwen35 {
namespace {

absl::Status systemError(const char *what, int error) {
  return absl::UnavailableError(
      absl::StrCat("cannot ", what,
                   " the memory file of the kernels: ", std::strerror(error)));
}

int createMemoryFile() {
  constexpr unsigned kExec = 0x10; // MFD_EXEC, Linux 6.3; older ones refuse it
  int fd =
      ::memfd_create("qwen35-kernels", MFD_CLOEXEC | MFD_ALLOW_SEALING | kExec);
  if (fd < 0 && errno == EINVAL)
    fd = ::memfd_create("qwen35-kernels", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  return fd;
}

} // namespace

absl::StatusOr<std::unique_ptr<KernelLibrary>>
KernelLibrary::load(absl::Span<const uint8_t> image, const std::string &sha256,
                    absl::Span<const std::string> symbols) {
  std::unique_ptr<KernelLibrary> library(new KernelLibrary);
  QWEN35_RETURN_IF_ERROR(library->seal(image));
  QWEN35_RETURN_IF_ERROR(library->check(sha256, symbols, image.size()));
  QWEN35_RETURN_IF_ERROR(library->open(symbols));
  return library;
}

KernelLibrary::~KernelLibrary() {
  if (handle)
    ::dlclose(handle);
  if (fd >= 0)
    ::close(fd);
}

absl::Status KernelLibrary::seal(absl::Span<const uint8_t> image) {
  fd = createMemoryFile();
  if (fd < 0)
    return systemError("create", errno);
  for (size_t done = 0; done < image.size();) {
    ssize_t count = ::write(fd, image.data() + done, image.size() - done);
    if (count < 0 && errno == EINTR)
      continue;
    if (count < 0)
      return systemError("write", errno);
    done += static_cast<size_t>(count);
  }
  if (::fcntl(fd, F_ADD_SEALS,
              F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) != 0)
    return systemError("seal", errno);
  return absl::OkStatus();
}

absl::Status KernelLibrary::check(const std::string &sha256,
                                  absl::Span<const std::string> symbols,
                                  size_t size) const {
  if (size == 0)
    return checkElfImage({}, symbols);
  void *data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (data == MAP_FAILED)
    return systemError("map", errno);
  absl::Span<const uint8_t> sealed(static_cast<const uint8_t *>(data), size);
  unsigned char digest[crypto_hash_sha256_BYTES];
  crypto_hash_sha256(digest, sealed.data(), sealed.size());
  bool same = sha256.size() == sizeof(digest) &&
              std::memcmp(digest, sha256.data(), sizeof(digest)) == 0;
  absl::Status status =
      same ? checkElfImage(sealed, symbols)
           : absl::DataLossError("the kernels changed after the bundle was "
                                 "read: their SHA-256 is another");
  ::munmap(data, size);
  return status;
}

absl::Status KernelLibrary::open(absl::Span<const std::string> symbols) {
  std::string path = absl::StrCat("/proc/self/fd/", fd);
  handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char *reason = ::dlerror();
    return absl::UnavailableError(absl::StrCat(
        "cannot load the kernels: ", reason ? reason : "no reason given"));
  }
  for (const std::string &symbol : symbols) {
    void *address = ::dlsym(handle, symbol.c_str());
    if (!address)
      return absl::UnavailableError(
          absl::StrCat("cannot find the kernel ", quoted(symbol)));
    kernels.push_back(reinterpret_cast<CpuKernel>(address));
  }
  return absl::OkStatus();
}

} // namespace qwen35
