#include "runtime/comm/tcp_transport.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/bundle/status_macros.h"

#include <cerrno>
#include <cstring>
#include <map>

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

namespace qwen35::comm {
namespace {

constexpr double kPatience = 0.05; // before a wait is worth a note

/// What a connecting rank says first.
struct Greeting {
  char magic[16] = "qwen35-messages";
  char session[40] = "";
  int32_t rank = 0;
  int32_t pad = 0;
};

double since(Clock::time_point then) {
  return std::chrono::duration<double>(Clock::now() - then).count();
}

/// Waits for all bytes of a small message; whether they came.
bool receiveAll(int socket, void *to, size_t bytes,
                Clock::time_point deadline) {
  char *at = static_cast<char *>(to);
  while (bytes > 0) {
    ssize_t count = ::recv(socket, at, bytes, 0);
    if (count > 0) {
      at += count;
      bytes -= static_cast<size_t>(count);
      continue;
    }
    if (count == 0 || (errno != EAGAIN && errno != EWOULDBLOCK))
      return false;
    if (Clock::now() > deadline)
      return false;
    pollfd wait{socket, POLLIN, 0};
    ::poll(&wait, 1, 50);
  }
  return true;
}

} // namespace

absl::StatusOr<std::shared_ptr<TcpTransport>>
TcpTransport::connect(std::shared_ptr<TcpLink> link, int rank,
                      Descriptor listener, double joinSeconds) {
  std::shared_ptr<TcpTransport> transport(new TcpTransport(link, rank));
  const std::vector<Hello> &ranks = link->ranks();
  const int size = static_cast<int>(ranks.size());
  transport->sockets.resize(ranks.size());
  Clock::time_point deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(
                         std::chrono::duration<double>(joinSeconds));
  Greeting mine;
  mine.rank = rank;
  link->session().copy(mine.session, sizeof mine.session - 1);

  for (int r = 0; r < rank; ++r) {
    const Hello &peer = ranks[static_cast<size_t>(r)];
    std::vector<Address> addresses;
    if (peer.machine == ranks[static_cast<size_t>(rank)].machine)
      addresses.push_back({"127.0.0.1", peer.dataPort});
    for (const std::string &host : peer.addresses)
      addresses.push_back({host, peer.dataPort});
    // An address may be another machine's, as loopback of containers is:
    // whoever answers has to know the session.
    while (!transport->sockets[static_cast<size_t>(r)]) {
      QWEN35_RETURN_IF_ERROR(link->failure());
      std::string reason = "it has no address";
      for (const Address &address : addresses) {
        absl::StatusOr<Descriptor> socket = connectTo({address}, Clock::now());
        if (!socket.ok()) {
          reason = std::string(socket.status().message());
          continue;
        }
        Greeting theirs;
        if (::send(socket->get(), &mine, sizeof mine, MSG_NOSIGNAL) !=
                static_cast<ssize_t>(sizeof mine) ||
            !receiveAll(socket->get(), &theirs, sizeof theirs,
                        Clock::now() + std::chrono::seconds(5)) ||
            theirs.rank != r ||
            std::memcmp(theirs.session, mine.session, sizeof mine.session)) {
          reason = absl::StrCat("somebody else listens at ", address.host, ":",
                                address.port);
          continue;
        }
        transport->sockets[static_cast<size_t>(r)] = std::move(*socket);
        break;
      }
      if (!transport->sockets[static_cast<size_t>(r)] &&
          Clock::now() > deadline)
        return link->fail(absl::UnavailableError(
            absl::StrCat("rank ", rank, " cannot connect to rank ", r, " (",
                         peer.place, "): ", reason)));
    }
  }

  for (int missing = size - 1 - rank; missing > 0;) {
    QWEN35_RETURN_IF_ERROR(link->failure());
    if (Clock::now() > deadline)
      return link->fail(absl::DeadlineExceededError(
          absl::StrFormat("%d ranks did not connect to rank %d within %.1f s",
                          missing, rank, joinSeconds)));
    pollfd wait{listener.get(), POLLIN, 0};
    ::poll(&wait, 1, 50);
    Descriptor socket = acceptFrom(listener);
    Greeting theirs;
    if (!socket || !receiveAll(socket.get(), &theirs, sizeof theirs,
                               Clock::now() + std::chrono::seconds(5)))
      continue;
    if (std::memcmp(theirs.magic, mine.magic, sizeof mine.magic) != 0 ||
        std::memcmp(theirs.session, mine.session, sizeof mine.session) != 0 ||
        theirs.rank <= rank || theirs.rank >= size ||
        transport->sockets[static_cast<size_t>(theirs.rank)])
      continue;
    if (::send(socket.get(), &mine, sizeof mine, MSG_NOSIGNAL) !=
        static_cast<ssize_t>(sizeof mine))
      continue;
    transport->sockets[static_cast<size_t>(theirs.rank)] = std::move(socket);
    --missing;
  }
  return transport;
}

absl::Status TcpTransport::push(int peer, Flow &flow,
                                absl::Span<const Outgoing> out, bool &moved) {
  int socket = sockets[static_cast<size_t>(peer)].get();
  while (!flow.done()) {
    const Outgoing &message = out[flow.messages[flow.next]];
    const int64_t head = sizeof(Header);
    iovec parts[2];
    int count = 0;
    if (flow.moved < head)
      parts[count++] = {
          const_cast<char *>(reinterpret_cast<const char *>(message.header)) +
              flow.moved,
          static_cast<size_t>(head - flow.moved)};
    int64_t body = std::max<int64_t>(flow.moved - head, 0);
    if (body < message.bytes)
      parts[count++] = {
          const_cast<char *>(static_cast<const char *>(message.data)) + body,
          static_cast<size_t>(message.bytes - body)};
    msghdr header = {};
    header.msg_iov = parts;
    header.msg_iovlen = static_cast<size_t>(count);
    ssize_t sent = ::sendmsg(socket, &header, MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)
        return absl::OkStatus();
      return link->lost(peer, errorText(errno));
    }
    moved = true;
    flow.moved += sent;
    if (flow.moved == head + message.bytes) {
      ++flow.next;
      flow.moved = 0;
    }
  }
  return absl::OkStatus();
}

absl::Status TcpTransport::pull(int peer, Flow &flow,
                                absl::Span<const Incoming> in, bool &moved) {
  int socket = sockets[static_cast<size_t>(peer)].get();
  while (!flow.done()) {
    const Incoming &message = in[flow.messages[flow.next]];
    const int64_t head = sizeof(Header);
    char *to;
    int64_t wanted;
    if (flow.moved < head) {
      to = reinterpret_cast<char *>(&flow.came) + flow.moved;
      wanted = head - flow.moved;
    } else {
      to = static_cast<char *>(message.data) + (flow.moved - head);
      wanted = head + message.bytes - flow.moved;
    }
    ssize_t came = ::recv(socket, to, static_cast<size_t>(wanted), 0);
    if (came == 0)
      return link->lost(peer, "closed by the other side");
    if (came < 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)
        return absl::OkStatus();
      return link->lost(peer, errorText(errno));
    }
    moved = true;
    flow.moved += came;
    if (flow.moved == head)
      if (absl::Status status =
              compare(*message.expected, self, flow.came, peer);
          !status.ok())
        return link->fail(status);
    if (flow.moved == head + message.bytes) {
      ++flow.next;
      flow.moved = 0;
    }
  }
  return absl::OkStatus();
}

absl::Status TcpTransport::move(absl::Span<const Outgoing> out,
                                absl::Span<const Incoming> in) {
  std::map<int, Flow> pushes, pulls;
  for (size_t i = 0; i < out.size(); ++i)
    pushes[out[i].peer].messages.push_back(i);
  for (size_t i = 0; i < in.size(); ++i)
    pulls[in[i].peer].messages.push_back(i);
  Clock::time_point lastMove = Clock::now();
  bool noted = false;
  while (true) {
    QWEN35_RETURN_IF_ERROR(link->failure());
    bool moved = false;
    for (auto &[peer, flow] : pushes)
      QWEN35_RETURN_IF_ERROR(push(peer, flow, out, moved));
    for (auto &[peer, flow] : pulls)
      QWEN35_RETURN_IF_ERROR(pull(peer, flow, in, moved));
    std::vector<pollfd> polls = {{link->failureDescriptor(), POLLIN, 0}};
    std::vector<int> waiting;
    for (auto &[peer, flow] : pulls)
      if (!flow.done()) {
        waiting.push_back(peer);
        polls.push_back({sockets[static_cast<size_t>(peer)].get(), POLLIN, 0});
      }
    for (auto &[peer, flow] : pushes)
      if (!flow.done()) {
        if (waiting.empty() || waiting.back() != peer)
          waiting.push_back(peer);
        polls.push_back({sockets[static_cast<size_t>(peer)].get(), POLLOUT, 0});
      }
    if (waiting.empty())
      return absl::OkStatus();
    if (moved)
      lastMove = Clock::now();
    else if (since(lastMove) > link->limitSeconds())
      return link->late();
    else if (!noted && since(lastMove) > kPatience) {
      link->progress().waitFor(waiting);
      noted = true;
    }
    ::poll(polls.data(), polls.size(), 50);
  }
}

} // namespace qwen35::comm
