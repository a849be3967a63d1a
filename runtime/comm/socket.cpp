#include "runtime/comm/socket.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <thread>

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace qwen35::comm {
namespace {

constexpr uint32_t kMaxFrame = 1u << 30;

void noDelay(int socket) {
  int on = 1; // fails on local sockets, which have no delay
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/// One attempt; 0 or the error.
int connectOnce(const addrinfo &info, int milliseconds, Descriptor &result) {
  Descriptor socket(::socket(info.ai_family,
                             info.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC,
                             info.ai_protocol));
  if (!socket)
    return errno;
  if (::connect(socket.get(), info.ai_addr, info.ai_addrlen) != 0) {
    if (errno != EINPROGRESS)
      return errno;
    pollfd wait{socket.get(), POLLOUT, 0};
    if (::poll(&wait, 1, milliseconds) <= 0)
      return ETIMEDOUT;
    int error = 0;
    socklen_t length = sizeof error;
    ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0)
      return error;
  }
  noDelay(socket.get());
  result = std::move(socket);
  return 0;
}

} // namespace

Descriptor::~Descriptor() {
  if (number >= 0)
    ::close(number);
}

std::string errorText(int error) { return std::strerror(error); }

absl::StatusOr<Descriptor> listenOn(int port) {
  // IPv6 sockets take IPv4 as well; machines without IPv6 get the latter.
  int error = 0;
  for (int family : {AF_INET6, AF_INET}) {
    Descriptor socket(
        ::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket) {
      error = errno;
      continue;
    }
    int on = 1, off = 0;
    ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in6 six = {};
    sockaddr_in four = {};
    six.sin6_family = AF_INET6;
    six.sin6_port = htons(static_cast<uint16_t>(port));
    four.sin_family = AF_INET;
    four.sin_port = htons(static_cast<uint16_t>(port));
    bool isSix = family == AF_INET6;
    if (isSix)
      ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    const sockaddr *address = isSix ? reinterpret_cast<sockaddr *>(&six)
                                    : reinterpret_cast<sockaddr *>(&four);
    if (::bind(socket.get(), address, isSix ? sizeof six : sizeof four) == 0 &&
        ::listen(socket.get(), 1024) == 0)
      return socket;
    error = errno;
    if (error == EADDRINUSE)
      break;
  }
  return absl::UnavailableError(
      absl::StrCat("cannot listen on port ", port, ": ", errorText(error)));
}

int portOf(const Descriptor &socket) {
  sockaddr_storage address = {};
  socklen_t length = sizeof address;
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr *>(&address),
                    &length) != 0)
    return 0;
  return address.ss_family == AF_INET6
             ? ntohs(reinterpret_cast<sockaddr_in6 &>(address).sin6_port)
             : ntohs(reinterpret_cast<sockaddr_in &>(address).sin_port);
}

Descriptor acceptFrom(const Descriptor &listener) {
  Descriptor socket(::accept4(listener.get(), nullptr, nullptr,
                              SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (socket)
    noDelay(socket.get());
  return socket;
}

absl::StatusOr<Descriptor> connectTo(const std::vector<Address> &addresses,
                                     Clock::time_point deadline) {
  Clock::time_point start = Clock::now();
  std::string reason = "no address";
  do {
    for (const Address &address : addresses) {
      addrinfo hints = {}, *list = nullptr;
      hints.ai_socktype = SOCK_STREAM;
      if (int error = ::getaddrinfo(address.host.c_str(),
                                    std::to_string(address.port).c_str(),
                                    &hints, &list);
          error != 0) {
        reason = absl::StrCat(address.host, ": ", ::gai_strerror(error));
        continue;
      }
      Descriptor socket;
      for (addrinfo *one = list; one && !socket; one = one->ai_next)
        if (int error = connectOnce(*one, 2000, socket); error != 0)
          reason = absl::StrCat(address.host, ": ", errorText(error));
      ::freeaddrinfo(list);
      if (socket)
        return socket;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  } while (Clock::now() < deadline);
  return absl::UnavailableError(absl::StrFormat(
      "no answer from %s within %.1f s (%s)",
      absl::StrJoin(addresses, ", ",
                    [](std::string *out, const Address &address) {
                      absl::StrAppend(out, address.host, ":", address.port);
                    }),
      std::chrono::duration<double>(Clock::now() - start).count(), reason));
}

std::vector<std::string> localAddresses() {
  std::vector<std::string> result;
  ifaddrs *list = nullptr;
  if (::getifaddrs(&list) != 0)
    return result;
  for (ifaddrs *one = list; one; one = one->ifa_next) {
    if (!one->ifa_addr || one->ifa_addr->sa_family != AF_INET ||
        (one->ifa_flags & IFF_LOOPBACK) || !(one->ifa_flags & IFF_UP))
      continue;
    char text[INET_ADDRSTRLEN] = "";
    ::inet_ntop(AF_INET,
                &reinterpret_cast<sockaddr_in *>(one->ifa_addr)->sin_addr, text,
                sizeof text);
    result.push_back(text);
  }
  ::freeifaddrs(list);
  return result;
}

std::string machineId() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

std::string hostName() {
  char name[256] = "";
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown host";
}

void Channel::queue(uint8_t kind, const std::string &body) {
  if (sent == output.size()) {
    output.clear();
    sent = 0;
  }
  uint32_t length = static_cast<uint32_t>(body.size());
  output.append(reinterpret_cast<const char *>(&length), sizeof length);
  output.push_back(static_cast<char>(kind));
  output.append(body);
}

bool Channel::flush() {
  while (sent < output.size()) {
    ssize_t count = ::send(socket.get(), output.data() + sent,
                           output.size() - sent, MSG_NOSIGNAL);
    if (count < 0)
      return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    sent += static_cast<size_t>(count);
  }
  return true;
}

bool Channel::fill() {
  char buffer[65536];
  while (true) {
    ssize_t count = ::recv(socket.get(), buffer, sizeof buffer, 0);
    if (count > 0) {
      input.append(buffer, static_cast<size_t>(count));
      continue;
    }
    if (count == 0)
      return false;
    if (errno == EINTR)
      continue;
    return errno == EAGAIN || errno == EWOULDBLOCK;
  }
}

bool Channel::next(Frame &frame) {
  uint32_t length = 0;
  if (tooLong || input.size() < sizeof length + 1)
    return false;
  std::memcpy(&length, input.data(), sizeof length);
  if (length > kMaxFrame) {
    tooLong = true;
    return false;
  }
  if (input.size() < sizeof length + 1 + length)
    return false;
  frame.kind = static_cast<uint8_t>(input[sizeof length]);
  frame.body = input.substr(sizeof length + 1, length);
  input.erase(0, sizeof length + 1 + length);
  return true;
}

} // namespace qwen35::comm
