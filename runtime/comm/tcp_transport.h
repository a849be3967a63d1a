#ifndef QWEN35_RUNTIME_COMM_TCP_TRANSPORT_H
#define QWEN35_RUNTIME_COMM_TCP_TRANSPORT_H

#include "runtime/comm/tcp_link.h"

namespace qwen35::comm {

/// A socket per pair of ranks.
class TcpTransport : public Transport {
public:
  /// Connects this rank with all others; `listener` is at the port that its
  /// Hello named.
  static absl::StatusOr<std::shared_ptr<TcpTransport>>
  connect(std::shared_ptr<TcpLink> link, int rank, Descriptor listener,
          double joinSeconds);

  absl::Status move(absl::Span<const Outgoing> out,
                    absl::Span<const Incoming> in) override;

private:
  /// What goes to one rank, or comes from it, in the order of the messages.
  struct Flow {
    std::vector<size_t> messages;
    size_t next = 0;   // of messages
    int64_t moved = 0; // bytes of it, the header's included
    Header came;
    bool done() const { return next == messages.size(); }
  };

  TcpTransport(std::shared_ptr<TcpLink> link, int rank)
      : link(std::move(link)), self(rank) {}

  absl::Status push(int peer, Flow &flow, absl::Span<const Outgoing> out,
                    bool &moved);
  absl::Status pull(int peer, Flow &flow, absl::Span<const Incoming> in,
                    bool &moved);

  std::shared_ptr<TcpLink> link;
  int self;
  std::vector<Descriptor> sockets; // by rank
};

} // namespace qwen35::comm

#endif // QWEN35_RUNTIME_COMM_TCP_TRANSPORT_H
