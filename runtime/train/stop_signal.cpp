#include "runtime/train/stop_signal.h"

#include <csignal>
#include <mutex>

namespace qwen35 {
namespace {

volatile std::sig_atomic_t lastSignal = 0;
struct sigaction before[2];
constexpr int kSignals[] = {SIGTERM, SIGINT};

std::mutex mutex;
int living = 0; // StopSignals

void note(int signal) { lastSignal = signal; }

} // namespace

StopSignal::StopSignal() {
  std::lock_guard lock(mutex);
  if (living++ > 0)
    return;
  lastSignal = 0;
  struct sigaction action = {};
  action.sa_handler = note;
  action.sa_flags = SA_RESTART | SA_RESETHAND;
  for (int i = 0; i < 2; ++i)
    ::sigaction(kSignals[i], &action, &before[i]);
}

StopSignal::~StopSignal() {
  std::lock_guard lock(mutex);
  if (--living > 0)
    return;
  for (int i = 0; i < 2; ++i)
    ::sigaction(kSignals[i], &before[i], nullptr);
}

int StopSignal::received() { return lastSignal; }

const char *StopSignal::name(int signal) {
  return signal == SIGTERM ? "SIGTERM" : "SIGINT";
}

} // namespace qwen35
