#include "runtime/step/thread_pool.h"

#include <gtest/gtest.h>

#include <chrono>
#include <ctime>
#include <immintrin.h>
#include <sched.h>
#include <sys/resource.h>
#include <thread>

namespace qwen35 {
namespace {

/// Counts how often each task ran, without atomics: two threads on one task
/// would be a race that the thread sanitizer sees and the count shows.
void count(void *const *args, int64_t task) {
  ++static_cast<int *>(args[0])[task];
}

void nothing(void *const *, int64_t) {}

using Param = std::tuple<int, bool>; // threads, fixed ranges

class ThreadPoolTest : public ::testing::TestWithParam<Param> {
protected:
  void SetUp() override {
    auto [threads, fixedRanges] = GetParam();
    auto created = ThreadPool::create(threads, fixedRanges);
    ASSERT_TRUE(created.ok()) << created.status();
    pool = *std::move(created);
    EXPECT_EQ(pool->threads(), threads);
  }

  /// Runs one launch and expects every task to have run once.
  void launch(int64_t grid) {
    std::vector<int> counts(size_t(grid) + 1, 0);
    void *args[] = {counts.data()};
    pool->run(count, args, grid);
    for (int64_t i = 0; i < grid; ++i)
      ASSERT_EQ(counts[size_t(i)], 1) << "task " << i << " of " << grid;
    ASSERT_EQ(counts.back(), 0);
  }

  std::unique_ptr<ThreadPool> pool;
};

TEST_P(ThreadPoolTest, RunsEveryTaskOnce) {
  for (int64_t grid : {1, 2, 3, 5, 7, 8, 64, 1000, 100000})
    launch(grid);
}

TEST_P(ThreadPoolTest, KeepsLaunchesApart) {
  for (int i = 0; i < 2000; ++i)
    launch(1 + i % 17);
}

TEST_P(ThreadPoolTest, WakesThreadsThatWentToSleep) {
  for (int i = 0; i < 20; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    launch(50);
  }
}

TEST_P(ThreadPoolTest, StopsWithoutEverRunning) { pool.reset(); }

// An idle pool costs no time: its threads sleep until the next launch.
TEST_P(ThreadPoolTest, SleepsWhenIdle) {
  launch(100);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  auto cpuTime = [] {
    timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
  };
  double before = cpuTime();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_LT(cpuTime() - before, 0.02); // one thread spinning: 0.05
}

void readMode(void *const *args, int64_t task) {
  static_cast<unsigned *>(args[0])[task] = _mm_getcsr() & 0xffc0;
}

// Flush-to-zero set by some other library must not reach the results.
TEST_P(ThreadPoolTest, ComputesInTheDefaultFloatingPointMode) {
  unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040); // flush to zero, denormals are zero
  {
    FloatModeScope scope;
    unsigned modes[64] = {};
    void *args[] = {modes};
    auto [threads, fixedRanges] = GetParam();
    auto created = ThreadPool::create(threads, fixedRanges);
    (*created)->run(readMode, args, 64);
    for (unsigned mode : modes)
      EXPECT_EQ(mode, 0x1f80u);
  }
  EXPECT_EQ(_mm_getcsr() & 0x8040, 0x8040u);
  _mm_setcsr(before);
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4, 8),
                                            ::testing::Bool()),
                         [](const auto &info) {
                           return std::to_string(std::get<0>(info.param)) +
                                  (std::get<1>(info.param) ? "Static"
                                                           : "Dynamic");
                         });

TEST(ThreadPoolLimitTest, SaysWhichThreadCouldNotStart) {
  // Stacks of the default size: this many do not fit in the address space.
  rlimit before, small;
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  small = {uint64_t(1) << 30, before.rlim_max};
  if (setrlimit(RLIMIT_AS, &small) != 0)
    GTEST_SKIP() << "this system sets no limit on address space";
  auto created = ThreadPool::create(4000, false);
  setrlimit(RLIMIT_AS, &before);
  ASSERT_FALSE(created.ok());
  EXPECT_EQ(created.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(created.status().message().find(" of 4000: "),
            absl::string_view::npos);
}

TEST(ThreadPoolLimitTest, RunsOnOneCpuWithoutStarving) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &before)) {
      CPU_SET(cpu, &one);
      break;
    }
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(ThreadPool::availableCpus(), 1);
  for (bool fixedRanges : {false, true}) {
    auto pool = ThreadPool::create(4, fixedRanges);
    ASSERT_TRUE(pool.ok());
    auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 500; ++i)
      (*pool)->run(nothing, nullptr, 16);
    std::chrono::duration<double> time =
        std::chrono::steady_clock::now() - start;
    EXPECT_LT(time.count(), 5) << "threads wait for each other by turning";
  }
  sched_setaffinity(0, sizeof(before), &before);
}

} // namespace
} // namespace qwen35
