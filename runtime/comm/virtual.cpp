#include "runtime/comm/virtual.h"

#include "absl/strings/str_cat.h"
#include "runtime/bundle/status_macros.h"
#include "runtime/comm/transport.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <thread>

namespace qwen35::comm {
namespace {

constexpr auto kPatience = std::chrono::milliseconds(20); // before a wait is
                                                          // worth a note

/// A message that its sender still holds.
struct Posted {
  const Outgoing *message;
  enum State { kWaiting, kCopying, kDone } state = kWaiting;
};

/// What all ranks share; everything but `failed` under the mutex.
struct Shared {
  Shared(int ranks, double limit)
      : ranks(ranks), limit(limit), wake(static_cast<size_t>(ranks)),
        queues(static_cast<size_t>(ranks) * static_cast<size_t>(ranks)),
        progress(static_cast<size_t>(ranks)),
        finished(static_cast<size_t>(ranks)),
        slots(static_cast<size_t>(ranks)) {}

  std::deque<Posted *> &queue(int from, int to) {
    return queues[static_cast<size_t>(from * ranks + to)];
  }
  void wakeAll() {
    for (std::condition_variable &one : wake)
      one.notify_all();
  }
  absl::Status failLocked(const absl::Status &why) {
    if (cause.ok()) {
      cause = why;
      failed = true;
      wakeAll();
    }
    return cause;
  }

  /// Waits until `ready` or failure. `missing` lists the ranks that are waited
  /// for.
  template <typename Ready, typename Missing>
  absl::Status await(std::unique_lock<std::mutex> &lock, int self, Ready ready,
                     Missing missing) {
    std::condition_variable &mine = wake[static_cast<size_t>(self)];
    auto done = [&] { return !cause.ok() || ready(); };
    if (!mine.wait_for(lock, kPatience, done)) {
      progress[static_cast<size_t>(self)].waitFor(missing());
      auto rest = std::chrono::duration<double>(limit) - kPatience;
      if (!mine.wait_for(lock, rest, done)) {
        std::vector<RankState> states(static_cast<size_t>(ranks));
        for (size_t r = 0; r < states.size(); ++r)
          states[r].crumb = progress[r].read();
        return failLocked(diagnose(states, self, limit));
      }
      progress[static_cast<size_t>(self)].waitFor({});
    }
    return cause;
  }

  const int ranks;
  const double limit;
  std::mutex mutex;
  std::deque<std::condition_variable> wake; // one per rank
  std::vector<std::deque<Posted *>> queues; // by sender and receiver
  std::deque<Progress> progress;
  std::vector<bool> finished;
  absl::Status cause;
  std::atomic<bool> failed = false;

  // exchange: what has been given, and the last complete round.
  std::vector<std::string> slots;
  std::vector<int> given;
  int64_t round = 0;
  std::shared_ptr<const std::vector<std::string>> complete;
};

class VirtualRank : public Link, public Transport {
public:
  VirtualRank(int self, std::shared_ptr<Shared> shared)
      : self(self), shared(std::move(shared)) {}

  absl::Status move(absl::Span<const Outgoing> out,
                    absl::Span<const Incoming> in) override {
    std::deque<Posted> posted;
    std::unique_lock lock(shared->mutex);
    for (const Outgoing &message : out) {
      posted.push_back({&message});
      shared->queue(self, message.peer).push_back(&posted.back());
      shared->wake[static_cast<size_t>(message.peer)].notify_all();
    }
    absl::Status status = shared->cause;
    for (size_t i = 0; i < in.size() && status.ok(); ++i)
      status = take(lock, in[i]);
    auto waits = [](const Posted &one) { return one.state != Posted::kDone; };
    auto allTaken = [&] {
      return std::none_of(posted.begin(), posted.end(), waits);
    };
    if (status.ok())
      status = shared->await(lock, self, allTaken, [&] {
        std::vector<int> missing;
        for (const Posted &one : posted)
          if (waits(one))
            missing.push_back(one.message->peer);
        return missing;
      });
    if (status.ok())
      return status;
    // The buffers go back to the caller: nobody may copy from them any more.
    for (Posted &one : posted)
      if (one.state == Posted::kWaiting) {
        std::deque<Posted *> &queue = shared->queue(self, one.message->peer);
        queue.erase(std::remove(queue.begin(), queue.end(), &one), queue.end());
      }
    shared->wake[static_cast<size_t>(self)].wait(lock, [&] {
      return std::none_of(posted.begin(), posted.end(), [](const Posted &one) {
        return one.state == Posted::kCopying;
      });
    });
    return status;
  }

  absl::StatusOr<std::vector<std::string>>
  exchange(const std::string &mine) override {
    std::unique_lock lock(shared->mutex);
    QWEN35_RETURN_IF_ERROR(shared->cause);
    int64_t round = shared->round;
    shared->slots[static_cast<size_t>(self)] = mine;
    shared->given.push_back(self);
    if (static_cast<int>(shared->given.size()) == shared->ranks) {
      shared->complete = std::make_shared<const std::vector<std::string>>(
          std::move(shared->slots));
      shared->slots.assign(static_cast<size_t>(shared->ranks), "");
      shared->given.clear();
      ++shared->round;
      shared->wakeAll();
    }
    // No rank starts the next round before all have left this one: it is
    // complete only when they have given again.
    QWEN35_RETURN_IF_ERROR(shared->await(
        lock, self, [&] { return shared->round > round; },
        [&] {
          std::vector<int> missing;
          for (int r = 0; r < shared->ranks; ++r)
            if (std::find(shared->given.begin(), shared->given.end(), r) ==
                shared->given.end())
              missing.push_back(r);
          return missing;
        }));
    return *shared->complete;
  }

  absl::Status late() override {
    return absl::InternalError("virtual ranks find late ranks themselves");
  }
  absl::Status lost(int peer, const std::string &how) override {
    return fail(absl::UnavailableError(absl::StrCat("rank ", peer, " ", how)));
  }
  absl::Status fail(const absl::Status &cause) override {
    std::lock_guard lock(shared->mutex);
    return shared->failLocked(cause);
  }
  absl::Status failure() const override {
    if (!shared->failed)
      return absl::OkStatus();
    std::lock_guard lock(shared->mutex);
    return shared->cause;
  }
  absl::Status finish() override {
    std::unique_lock lock(shared->mutex);
    QWEN35_RETURN_IF_ERROR(shared->cause);
    shared->finished[static_cast<size_t>(self)] = true;
    shared->wakeAll();
    auto missing = [&] {
      std::vector<int> ranks;
      for (int r = 0; r < shared->ranks; ++r)
        if (!shared->finished[static_cast<size_t>(r)])
          ranks.push_back(r);
      return ranks;
    };
    return shared->await(
        lock, self, [&] { return missing().empty(); }, missing);
  }
  Progress &progress() override {
    return shared->progress[static_cast<size_t>(self)];
  }

private:
  absl::Status take(std::unique_lock<std::mutex> &lock, const Incoming &in) {
    std::deque<Posted *> &queue = shared->queue(in.peer, self);
    auto gone = [&] { return shared->finished[static_cast<size_t>(in.peer)]; };
    QWEN35_RETURN_IF_ERROR(shared->await(
        lock, self, [&] { return !queue.empty() || gone(); },
        [&] { return std::vector<int>{in.peer}; }));
    if (queue.empty())
      return shared->failLocked(absl::FailedPreconditionError(
          absl::StrCat("rank ", in.peer, " has finished while rank ", self,
                       " waits for it in ", in.expected->describe())));
    Posted *posted = queue.front();
    const Outgoing &message = *posted->message;
    if (absl::Status status =
            compare(*in.expected, self, *message.header, in.peer);
        !status.ok())
      return shared->failLocked(status);
    queue.pop_front();
    posted->state = Posted::kCopying;
    if (in.bytes > 0) {
      lock.unlock();
      std::memcpy(in.data, message.data, static_cast<size_t>(in.bytes));
      lock.lock();
    }
    posted->state = Posted::kDone;
    shared->wake[static_cast<size_t>(in.peer)].notify_all();
    return shared->cause;
  }

  int self;
  std::shared_ptr<Shared> shared;
};

} // namespace

std::vector<std::unique_ptr<World>>
makeVirtualWorlds(int ranks, const VirtualOptions &options) {
  auto shared = std::make_shared<Shared>(ranks, options.limitSeconds);
  std::vector<std::unique_ptr<World>> worlds;
  for (int r = 0; r < ranks; ++r) {
    auto rank = std::make_shared<VirtualRank>(r, shared);
    worlds.push_back(makeHostWorld(r, ranks, rank, rank));
  }
  return worlds;
}

absl::Status runVirtualRanks(int ranks,
                             const std::function<absl::Status(World &)> &body,
                             const VirtualOptions &options) {
  if (ranks < 1 || ranks > 4096)
    return absl::InvalidArgumentError(
        absl::StrCat(ranks, " virtual ranks; expected 1 to 4096"));
  std::vector<std::unique_ptr<World>> worlds =
      makeVirtualWorlds(ranks, options);
  std::vector<std::thread> threads;
  for (std::unique_ptr<World> &world : worlds)
    threads.emplace_back([&body, rank = world.get()] {
      absl::Status status = body(*rank);
      if (status.ok())
        status = rank->finish();
      if (!status.ok())
        rank->abort(status); // changes nothing after an earlier cause
    });
  for (std::thread &thread : threads)
    thread.join();
  return worlds[0]->lastError();
}

} // namespace qwen35::comm
