#ifndef QWEN35_RUNTIME_COMM_TCP_LINK_H
#define QWEN35_RUNTIME_COMM_TCP_LINK_H

#include "runtime/comm/hub.h"
#include "runtime/comm/transport.h"

#include <condition_variable>
#include <functional>

namespace qwen35::comm {

struct TcpLinkOptions {
  Limits limits;
  Hello hello;                     // of this rank
  std::vector<Address> hubAddress; // tried in turn; unused with a hub
  Descriptor listener;             // with which this rank, 0, makes the hub
  /// Called once, on the watching thread, when the world has failed; with the
  /// cause and this rank's place. Not for this rank's own abort().
  std::function<void(const absl::Status &)> onFailure;
  /// After that, ends the process with this code when all ranks have reported;
  /// calls that fail do not return until then. 0: does not.
  int exitCode = 0;
};

/// A link over TCP to the hub beside rank 0, with a thread that gives signs of
/// life and watches those of the hub.
class TcpLink : public Link {
public:
  /// Meets the other ranks.
  ///
  /// Errors  those of listenOn and connectTo; DeadlineExceeded naming the ranks
  ///         that did not come; FailedPrecondition naming who differs in what.
  ///         All ranks that came get the same.
  static absl::StatusOr<std::shared_ptr<TcpLink>> join(TcpLinkOptions options);
  ~TcpLink() override;

  /// From here on a failure calls onFailure.
  void arm();
  const std::vector<Hello> &ranks() const { return directory; }
  const std::string &session() const { return sessionId; }
  /// Raised when the world fails; for poll().
  int failureDescriptor() const { return failedEvent.get(); }
  /// Whether finish() has succeeded.
  bool finished() const;
  int size() const { return settings.hello.size; }

  absl::StatusOr<std::vector<std::string>>
  exchange(const std::string &mine) override;
  absl::Status late() override;
  absl::Status lost(int peer, const std::string &how) override;
  absl::Status fail(const absl::Status &why) override;
  void abort(const absl::Status &why) override;
  absl::Status failure() const override;
  absl::Status peek() const override;
  void onFailure(std::function<void(const absl::Status &)> action) override;
  absl::Status finish() override;
  Progress &progress() override { return crumbs; }
  double limitSeconds() const { return settings.limits.callSeconds; }

private:
  explicit TcpLink(TcpLinkOptions options);
  void send(Frame kind, const std::string &body);
  void watch();
  void take(const Channel::Frame &frame);
  void setFailure(const absl::Status &why);
  void report();
  absl::Status awaitFailure(double seconds, const absl::Status &otherwise);
  absl::Status settle(const absl::Status &status) const;
  absl::Status hubGone(const std::string &how);

  TcpLinkOptions settings;
  std::unique_ptr<Hub> hub;
  Channel channel; // of the watching thread, but for its start
  Descriptor wake, failedEvent;
  Progress crumbs;
  std::vector<Hello> directory;
  std::string sessionId;
  std::atomic<bool> failed = false, stopping = false, aborting = false;

  mutable std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::pair<Frame, std::string>> toSend;
  absl::Status cause;
  bool welcomed = false, exitSeen = false, doneSeen = false, armed = false;
  bool hasParts = false;
  std::string parts;
  std::vector<std::function<void(const absl::Status &)>> actions;
  Breadcrumb zero; // what rank 0 was seen doing
  std::thread thread;
};

} // namespace qwen35::comm

#endif // QWEN35_RUNTIME_COMM_TCP_LINK_H
