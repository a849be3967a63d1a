#ifndef QWEN35_RUNTIME_COMM_SOCKET_H
#define QWEN35_RUNTIME_COMM_SOCKET_H

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/comm/progress.h"

#include <string>
#include <utility>
#include <vector>

namespace qwen35::comm {

/// A file descriptor by one owner.
class Descriptor {
public:
  Descriptor() = default;
  explicit Descriptor(int number) : number(number) {}
  Descriptor(Descriptor &&other) noexcept
      : number(std::exchange(other.number, -1)) {}
  Descriptor &operator=(Descriptor &&other) noexcept {
    std::swap(number, other.number);
    return *this;
  }
  ~Descriptor();

  int get() const { return number; }
  explicit operator bool() const { return number >= 0; }

private:
  int number = -1;
};

/// "Connection refused" and the like, of errno.
std::string errorText(int error);

/// A socket that listens on all addresses; port 0 takes a free one. Sockets
/// here do not block and are closed on exec.
absl::StatusOr<Descriptor> listenOn(int port);
int portOf(const Descriptor &socket);
/// A connection that has come, or none.
Descriptor acceptFrom(const Descriptor &listener);

struct Address {
  std::string host; // name or number
  int port = 0;
};

/// Tries the addresses in turn until one answers.
///
/// Errors  Unavailable naming the addresses, the time and the last reason.
absl::StatusOr<Descriptor> connectTo(const std::vector<Address> &addresses,
                                     Clock::time_point deadline);

/// Numbers of this machine's IPv4 addresses other than loopback.
std::vector<std::string> localAddresses();
/// The same for processes that share a kernel.
std::string machineId();
std::string hostName();

/// Framed messages over a stream socket that does not block: length, kind,
/// body. For one thread at a time.
class Channel {
public:
  struct Frame {
    uint8_t kind;
    std::string body;
  };

  Channel() = default;
  explicit Channel(Descriptor socket) : socket(std::move(socket)) {}

  int descriptor() const { return socket.get(); }
  bool open() const { return static_cast<bool>(socket); }
  void close() { Descriptor gone(std::move(socket)); }
  void queue(uint8_t kind, const std::string &body);
  bool hasOutput() const { return sent < output.size(); }
  /// Sends what the socket takes; false when the connection is broken.
  bool flush();
  /// Reads what has come; false at the end of the stream or a broken one.
  bool fill();
  /// The next whole frame; false if there is none. A frame that is too long
  /// makes the channel bad() and is not read.
  bool next(Frame &frame);
  bool bad() const { return tooLong; }

private:
  Descriptor socket;
  std::string input, output;
  size_t sent = 0;
  bool tooLong = false;
};

} // namespace qwen35::comm

#endif // QWEN35_RUNTIME_COMM_SOCKET_H
