#include "runtime/step/thread_pool.h"

#include "absl/strings/str_cat.h"

#include <algorithm>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstring>
#include <immintrin.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace qwen35 {
namespace {

constexpr unsigned kDefaultMode = 0x1f80; // MXCSR after reset
constexpr int64_t kSpinNanoseconds = 30000;

void futexWait(std::atomic<uint32_t> &word, uint32_t expected) {
  ::syscall(SYS_futex, reinterpret_cast<uint32_t *>(&word), FUTEX_WAIT_PRIVATE,
            expected, nullptr, nullptr, 0);
}

void futexWake(std::atomic<uint32_t> &word, int count) {
  ::syscall(SYS_futex, reinterpret_cast<uint32_t *>(&word), FUTEX_WAKE_PRIVATE,
            count, nullptr, nullptr, 0);
}

/// Waits for `done()` for at most `nanoseconds` without leaving the CPU.
template <typename Condition>
bool spinUntil(int64_t nanoseconds, Condition done) {
  if (done())
    return true;
  if (nanoseconds == 0)
    return false;
  using Clock = std::chrono::steady_clock;
  auto end = Clock::now() + std::chrono::nanoseconds(nanoseconds);
  do {
    for (int i = 0; i < 8; ++i) {
      _mm_pause();
      if (done())
        return true;
    }
  } while (Clock::now() < end);
  return false;
}

uint32_t launchOf(uint64_t ticket) {
  return static_cast<uint32_t>(ticket >> 32);
}
uint32_t tasksLeft(uint64_t ticket) { return static_cast<uint32_t>(ticket); }

} // namespace

FloatModeScope::FloatModeScope() : saved(_mm_getcsr()) {
  _mm_setcsr(kDefaultMode);
}
FloatModeScope::~FloatModeScope() { _mm_setcsr(saved); }

int ThreadPool::availableCpus() {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof(set), &set) == 0)
    return std::max(1, CPU_COUNT(&set));
  // Machines with more CPUs than the set holds.
  return std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN));
}

ThreadPool::ThreadPool(int threads, bool fixedRanges)
    : threadCount(threads), fixedRanges(fixedRanges),
      spinNanoseconds(threads <= availableCpus() ? kSpinNanoseconds : 0) {}

absl::StatusOr<std::unique_ptr<ThreadPool>>
ThreadPool::create(int threads, bool fixedRanges) {
  std::unique_ptr<ThreadPool> pool(new ThreadPool(threads, fixedRanges));
  // Signals are the business of the thread that called us.
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = 0;
  for (int i = 1; i < threads && error == 0; ++i) {
    auto worker = std::make_unique<Worker>();
    worker->pool = pool.get();
    worker->index = i;
    error = ::pthread_create(&worker->thread, nullptr, enter, worker.get());
    if (error == 0)
      pool->workers.push_back(std::move(worker));
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error != 0)
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot start thread ", pool->workers.size() + 2, " of ",
                     threads, ": ", std::strerror(error)));
  return pool;
}

ThreadPool::~ThreadPool() {
  stopping.store(true);
  launches.fetch_add(1);
  futexWake(launches, INT_MAX);
  for (const std::unique_ptr<Worker> &worker : workers)
    ::pthread_join(worker->thread, nullptr);
}

void *ThreadPool::enter(void *argument) {
  auto *worker = static_cast<Worker *>(argument);
  std::string name = absl::StrCat("q35-", worker->index);
  ::pthread_setname_np(::pthread_self(), name.c_str());
  _mm_setcsr(kDefaultMode);
  worker->pool->work(worker->index);
  return nullptr;
}

void ThreadPool::work(int index) {
  uint32_t seen = 0;
  while (true) {
    seen = awaitLaunch(seen);
    if (stopping.load())
      return;
    if (fixedRanges) {
      runRange(index);
      finish(1);
    } else {
      takeTasks();
    }
  }
}

/// Returns the number of a launch later than `seen`, or anything when stopping.
uint32_t ThreadPool::awaitLaunch(uint32_t seen) {
  auto changed = [&] { return launches.load() != seen; };
  if (!spinUntil(spinNanoseconds, changed)) {
    sleepers.fetch_add(1);
    while (!changed())
      futexWait(launches, seen);
    sleepers.fetch_sub(1);
  }
  return launches.load();
}

void ThreadPool::takeTasks() {
  uint64_t current = ticket.load(std::memory_order_acquire);
  while (tasksLeft(current) != 0) {
    // A share that shrinks with what is left: few swaps, and an even end.
    uint32_t left = tasksLeft(current);
    uint32_t count = std::max<uint32_t>(1, left / (4 * threadCount));
    if (!ticket.compare_exchange_weak(current, current - count,
                                      std::memory_order_acq_rel,
                                      std::memory_order_acquire))
      continue;
    // The launch cannot end, nor its job change, before these are finished.
    Job now = job;
    int64_t first = now.grid - left;
    for (int64_t task = first; task < first + count; ++task)
      now.kernel(now.args, task);
    finish(count);
    current = ticket.load(std::memory_order_acquire);
  }
}

void ThreadPool::runRange(int index) {
  int64_t first = job.grid * index / threadCount;
  int64_t last = job.grid * (index + 1) / threadCount;
  for (int64_t task = first; task < last; ++task)
    job.kernel(job.args, task);
}

void ThreadPool::finish(uint32_t count) {
  if (unfinished.fetch_sub(count) == count && callerSleeps.load() != 0)
    futexWake(unfinished, 1);
}

void ThreadPool::awaitFinished() {
  auto done = [&] { return unfinished.load() == 0; };
  if (spinUntil(spinNanoseconds, done))
    return;
  callerSleeps.store(1);
  while (uint32_t left = unfinished.load())
    futexWait(unfinished, left);
  callerSleeps.store(0);
}

void ThreadPool::run(CpuKernel kernel, void *const *args, int64_t grid) {
  if (threadCount == 1 || grid == 1) {
    for (int64_t task = 0; task < grid; ++task)
      kernel(args, task);
    return;
  }
  job = {kernel, args, grid};
  unfinished.store(fixedRanges ? threadCount - 1 : static_cast<uint32_t>(grid));
  uint64_t number = launchOf(ticket.load()) + 1;
  ticket.store(number << 32 | static_cast<uint32_t>(grid));
  launches.store(static_cast<uint32_t>(number));
  if (uint32_t asleep = sleepers.load()) {
    // Dynamic launches need no more helpers than tasks beside the caller's.
    int64_t wanted = fixedRanges ? asleep : std::min<int64_t>(asleep, grid - 1);
    futexWake(launches, static_cast<int>(wanted));
  }
  if (fixedRanges)
    runRange(0);
  else
    takeTasks();
  awaitFinished();
}

} // namespace qwen35
