#include "runtime/checkpoint/run_lock.h"

#include <csignal>
#include <sys/wait.h>
#include <unistd.h>

#include "test/unit/checkpoint/checkpoint_test_util.h"

namespace qwen35 {
namespace {

using namespace test;

TEST(RunLockTest, TwoRunsInOneFolderAreOneClearError) {
  TempFolder folder;
  std::string run = folder.in("run");
  auto first = RunLock::acquire(run);
  ASSERT_OK(first);
  auto second = RunLock::acquire(run);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  expectError(second.status(),
              {"run folder " + run + " is in use by process ",
               absl::StrCat(::getpid()), "choose another folder"});
}

TEST(RunLockTest, TheFolderIsFreeAgainAfterwards) {
  TempFolder folder;
  { ASSERT_OK(RunLock::acquire(folder.path)); }
  ASSERT_OK(RunLock::acquire(folder.path));
}

TEST(RunLockTest, AKilledRunLetsGo) {
  TempFolder folder;
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  pid_t child = ::fork();
  if (child == 0) {
    auto lock = RunLock::acquire(folder.path);
    (void)!::write(ready[1], "x", 1);
    ::pause();
    ::_exit(lock.ok() ? 0 : 1);
  }
  char byte;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  expectError(RunLock::acquire(folder.path).status(),
              {absl::StrCat("process ", child)});
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ASSERT_OK(RunLock::acquire(folder.path));
  ::close(ready[0]);
  ::close(ready[1]);
}

} // namespace
} // namespace qwen35
