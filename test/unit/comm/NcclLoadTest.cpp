#include "runtime/nccl/nccl.h"

#include "gmock/gmock.h"

#include <cstdlib>
#include <string>

#include <sys/wait.h>
#include <unistd.h>

using namespace qwen35;
using testing::AllOf;
using testing::HasSubstr;

namespace {

TEST(NcclLoadTest, AMissingOrOldLibraryIsNamedWithWhatIsNeeded) {
  // Libraries are opened once per process: each time in another.
  auto load = [](const std::string &path, const char *settings) {
    int ends[2];
    if (pipe(ends) != 0)
      return std::string("no pipe");
    pid_t pid = fork();
    if (pid == 0) {
      setenv("QWEN35_LIBNCCL", path.c_str(), 1);
      setenv("QWEN35_FAKE_NCCL", settings, 1);
      auto nccl = nccl::Nccl::load();
      std::string found = nccl.ok()
                              ? "version " + nccl::versionText((*nccl)->version)
                              : std::string(nccl.status().message());
      _exit(write(ends[1], found.data(), found.size()) < 0);
    }
    close(ends[1]);
    char found[4096] = "";
    ssize_t length = read(ends[0], found, sizeof found - 1);
    close(ends[0]);
    waitpid(pid, nullptr, 0);
    return std::string(found, length > 0 ? static_cast<size_t>(length) : 0);
  };
  EXPECT_THAT(load("/no/such.so", ""),
              AllOf(HasSubstr("cannot load /no/such.so"),
                    HasSubstr("several GPUs need NCCL 2.18 or newer")));
  EXPECT_THAT(load(QWEN35_FAKE_NCCL_LIBRARY, "version=21602"),
              HasSubstr("is NCCL 2.16.2; several GPUs need NCCL 2.18 or "
                        "newer (libnccl.so.2"));
  EXPECT_THAT(load(QWEN35_FAKE_CUDA_LIBRARY, ""),
              HasSubstr("has no ncclGetVersion, "));
  EXPECT_THAT(load(QWEN35_FAKE_NCCL_LIBRARY, ""), HasSubstr("version 2.28.9"));
}

} // namespace
