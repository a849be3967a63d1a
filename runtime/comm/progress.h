#ifndef QWEN35_RUNTIME_COMM_PROGRESS_H
#define QWEN35_RUNTIME_COMM_PROGRESS_H

#include "runtime/comm/communicator.h"

#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace qwen35::comm {

using Clock = std::chrono::steady_clock;

/// What a rank was seen doing last.
struct Breadcrumb {
  int64_t sequence = -1; // of the collective; -1: none yet
  std::string what;      // describe(call)
  std::string communicator;
  bool inside = false;         // the collective has not ended
  double seconds = 0;          // since it began, or since it ended
  std::vector<int> waitingFor; // ranks of the world; when a wait is long

  /// "number 18, all_reduce 'grads' of 4096 f32 over 'dps'"
  std::string collective() const;
  /// "in number 18, ... for 3.0 s", "after number 18, ... for 3.0 s"
  std::string where() const;

  std::string serialize() const;
  static bool parse(absl::string_view bytes, Breadcrumb &crumb);
};

/// The breadcrumb of this rank: written by who communicates, read by who
/// watches.
class Progress {
public:
  /// Returns the number that the collective goes by.
  int64_t enter(const Call &call, const std::string &communicator);
  void leave();
  void waitFor(std::vector<int> ranks);
  /// Until the next enter(), read() gives this.
  void note(const Breadcrumb &crumb);
  Breadcrumb read() const;

private:
  mutable std::mutex mutex;
  Call call;
  char label[64];
  std::string communicator;
  int64_t sequence = -1, next = 0;
  bool inside = false;
  Clock::time_point since = Clock::now();
  std::vector<int> waitingFor;
  std::optional<Breadcrumb> noted;
};

/// What all ranks are known to do, when one of them waits in vain.
struct RankState {
  std::string place;    // "pid 1234 on node7", "thread"; may be empty
  bool ended = false;   // without finish()
  double silentFor = 0; // seconds without a sign of life; 0: none missed
  Breadcrumb crumb;
};

/// Which rank keeps `reporter` waiting, and how: the sentence that every rank
/// gets. Follows who waits for whom from the reporter; ranks that wait for each
/// other in different collectives are all named.
absl::Status diagnose(const std::vector<RankState> &ranks, int reporter,
                      double limitSeconds);

} // namespace qwen35::comm

#endif // QWEN35_RUNTIME_COMM_PROGRESS_H
