// What a launch costs besides its tasks: empty kernels and 10 us ones, for the
// numbers in docs and reports. Not a test: a shared machine decides the result.
#include "runtime/step/thread_pool.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

using namespace qwen35;
using Clock = std::chrono::steady_clock;

namespace {

void empty(void *const *, int64_t) {}

/// Some 10 microseconds of dependent arithmetic.
void busy(void *const *args, int64_t task) {
  volatile float *sink = static_cast<float *>(args[0]);
  float value = static_cast<float>(task);
  for (int i = 0; i < 7000; ++i)
    value = value * 0.5f + 1;
  sink[task] = value;
}

/// Microseconds per launch in the best of 41 rounds, the least disturbed one.
double measure(ThreadPool &pool, CpuKernel kernel, int64_t grid, int launches) {
  static float sink[64];
  void *args[] = {sink};
  double best = 1e9;
  for (int round = 0; round < 41; ++round) {
    Clock::time_point start = Clock::now();
    for (int i = 0; i < launches; ++i)
      pool.run(kernel, args, grid);
    std::chrono::duration<double, std::micro> time = Clock::now() - start;
    best = std::min(best, time.count() / launches);
  }
  return best;
}

} // namespace

int main(int argc, char **argv) {
  int threads = argc > 1 ? std::atoi(argv[1]) : ThreadPool::availableCpus();
  for (bool fixedRanges : {false, true}) {
    auto pool = ThreadPool::create(std::max(1, threads), fixedRanges);
    if (!pool.ok()) {
      std::fprintf(stderr, "%s\n", pool.status().ToString().c_str());
      return 1;
    }
    double one = measure(**pool, busy, 1, 50);
    double all = measure(**pool, busy, threads, 50);
    std::printf("%d threads, %s: empty launch of 1 task %.2f us, of %d tasks "
                "%.2f us, of 1000 tasks %.2f us; 10 us of work each: %.2f us, "
                "%.2f us over\n",
                threads, fixedRanges ? "static " : "dynamic",
                measure(**pool, empty, 1, 2000), threads,
                measure(**pool, empty, threads, 2000),
                measure(**pool, empty, 1000, 200), all, all - one);
  }
  return 0;
}
