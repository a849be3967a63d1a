#ifndef QWEN35_RUNTIME_STEP_THREAD_POOL_H
#define QWEN35_RUNTIME_STEP_THREAD_POOL_H

#include "absl/status/statusor.h"
#include "runtime/step/kernel_library.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <pthread.h>
#include <vector>

namespace qwen35 {

/// Runs the tasks of one launch after another on a fixed set of threads, the
/// caller among them.
///
/// Between launches the others spin for some 30 microseconds, then sleep, so a
/// plan of small kernels costs no system calls and an idle pool no time. With
/// more threads than CPUs nobody spins.
///
/// Every task runs exactly once, on any thread, in any order; run() returns
/// after all of them and their writes. All threads compute with the default
/// floating-point mode (round to nearest, denormals kept).
class ThreadPool {
public:
  /// `threads` counts the caller. `fixedRanges`: thread i always takes the i-th
  /// part of the tasks; otherwise whoever is free takes the next few.
  ///
  /// Errors  ResourceExhausted if the system gives fewer threads.
  static absl::StatusOr<std::unique_ptr<ThreadPool>> create(int threads,
                                                            bool fixedRanges);

  ThreadPool(const ThreadPool &) = delete;
  ThreadPool &operator=(const ThreadPool &) = delete;
  ~ThreadPool();

  int threads() const { return threadCount; }

  /// Calls `kernel(args, task)` for every task in 0 .. grid-1, grid < 2^32. For
  /// one caller at a time, in the floating-point mode of FloatModeScope.
  void run(CpuKernel kernel, void *const *args, int64_t grid);

  /// CPUs that this process may run on.
  static int availableCpus();

private:
  struct Worker {
    ThreadPool *pool;
    int index;
    pthread_t thread;
  };
  struct Job {
    CpuKernel kernel = nullptr;
    void *const *args = nullptr;
    int64_t grid = 0;
  };

  ThreadPool(int threads, bool fixedRanges);

  static void *enter(void *worker);
  void work(int index);
  uint32_t awaitLaunch(uint32_t seen);
  void takeTasks();
  void runRange(int index);
  void finish(uint32_t count);
  void awaitFinished();

  const int threadCount;
  const bool fixedRanges;
  const int64_t spinNanoseconds;

  /// Published by `ticket`, stable until all tasks of its launch are finished.
  Job job;
  /// Number of the launch (high half) and tasks that nobody has taken yet
  /// (low). Taking tasks is one compare-and-swap of both, so a thread that is
  /// late can never take a task of another launch than the one it saw.
  alignas(64) std::atomic<uint64_t> ticket{0};
  /// Tasks (fixed ranges: threads) of the launch that are not finished yet.
  alignas(64) std::atomic<uint32_t> unfinished{0};
  std::atomic<uint32_t> callerSleeps{0};
  /// Number of the launch again: what sleeping workers wait on.
  alignas(64) std::atomic<uint32_t> launches{0};
  std::atomic<uint32_t> sleepers{0};
  std::atomic<bool> stopping{false};

  std::vector<std::unique_ptr<Worker>> workers;
};

/// Sets the calling thread's floating-point mode to the default and restores
/// the old one at the end: a caller's own mode must not change results.
class FloatModeScope {
public:
  FloatModeScope();
  ~FloatModeScope();
  FloatModeScope(const FloatModeScope &) = delete;
  FloatModeScope &operator=(const FloatModeScope &) = delete;

private:
  unsigned saved;
};

} // namespace qwen35

#endif // QWEN35_RUNTIME_STEP_THREAD_POOL_H
