#include "runtime/comm/tcp_link.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/bundle/status_macros.h"

#include <algorithm>
#include <csignal>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace qwen35::comm {
namespace {

constexpr double kVerdictSeconds = 4; // for the hub to say what the cause is
constexpr double kExitSeconds = 5;    // for the others to report

void raise(const Descriptor &event) {
  uint64_t one = 1;
  (void)!::write(event.get(), &one, sizeof one);
}

std::chrono::duration<double> seconds(double count) {
  return std::chrono::duration<double>(count);
}

double since(Clock::time_point then) {
  return std::chrono::duration<double>(Clock::now() - then).count();
}

/// mpirun ends a job of which a rank died by SIGTERM, faster than the others
/// can say why they end. While a link lives it is put off for a moment.
class TermDelay {
public:
  static void handler(int) { came = 1; }
  static void install() {
    struct sigaction now = {};
    if (::sigaction(SIGTERM, nullptr, &now) != 0 || now.sa_handler != SIG_DFL)
      return; // somebody else's, who will not end at once either
    struct sigaction action = {};
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART | SA_RESETHAND;
    ::sigaction(SIGTERM, &action, nullptr);
  }
  static void remove() {
    struct sigaction now = {};
    if (::sigaction(SIGTERM, nullptr, &now) == 0 && now.sa_handler == handler)
      ::signal(SIGTERM, SIG_DFL);
    if (came)
      ::kill(::getpid(), SIGTERM);
  }
  /// Ends the process after all, if it is time.
  static void poll() {
    if (!came)
      return;
    if (seen == Clock::time_point())
      seen = Clock::now();
    if (since(seen) > 0.7)
      ::kill(::getpid(), SIGTERM);
  }

private:
  static volatile std::sig_atomic_t came;
  static Clock::time_point seen;
};

volatile std::sig_atomic_t TermDelay::came = 0;
Clock::time_point TermDelay::seen;

} // namespace

TcpLink::TcpLink(TcpLinkOptions options)
    : settings(std::move(options)),
      wake(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      failedEvent(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

absl::StatusOr<std::shared_ptr<TcpLink>> TcpLink::join(TcpLinkOptions options) {
  Clock::time_point deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(
                         seconds(options.limits.joinSeconds));
  std::shared_ptr<TcpLink> link(new TcpLink(std::move(options)));
  TcpLinkOptions &settings = link->settings;
  if (settings.listener) {
    link->hub = std::make_unique<Hub>(std::move(settings.listener),
                                      settings.hello.size, settings.limits);
    link->channel = Channel(link->hub->connectLocally());
    if (!link->channel.open())
      return absl::UnavailableError(
          absl::StrCat("socketpair: ", errorText(errno)));
  } else {
    absl::StatusOr<Descriptor> socket =
        connectTo(settings.hubAddress, deadline);
    if (!socket.ok())
      return absl::UnavailableError(absl::StrCat(
          "rank ", settings.hello.rank, " of ", settings.hello.size,
          " cannot reach rank 0: ", socket.status().message()));
    link->channel = Channel(std::move(*socket));
  }
  link->send(Frame::kHello, settings.hello.serialize());
  link->thread = std::thread([raw = link.get()] { raw->watch(); });

  std::unique_lock lock(link->mutex);
  // The hub knows better what is missing: it gets time to say so.
  double patience = std::max(0.0, -since(deadline)) + kVerdictSeconds;
  link->changed.wait_for(lock, seconds(patience),
                         [&] { return link->welcomed || !link->cause.ok(); });
  if (link->welcomed)
    return link;
  absl::Status status = link->cause;
  if (status.ok())
    status = absl::DeadlineExceededError(absl::StrFormat(
        "rank %d of %d reached rank 0 and was not welcomed within %.1f s",
        settings.hello.rank, settings.hello.size, settings.limits.joinSeconds));
  lock.unlock();
  link->report();
  return status;
}

TcpLink::~TcpLink() {
  stopping = true;
  raise(wake);
  if (thread.joinable())
    thread.join();
  if (armed && settings.exitCode != 0)
    TermDelay::remove();
}

bool TcpLink::finished() const {
  std::lock_guard lock(mutex);
  return doneSeen;
}

void TcpLink::arm() {
  std::lock_guard lock(mutex);
  armed = true;
  if (settings.exitCode != 0)
    TermDelay::install();
}

void TcpLink::send(Frame kind, const std::string &body) {
  {
    std::lock_guard lock(mutex);
    toSend.emplace_back(kind, body);
  }
  raise(wake);
}

void TcpLink::setFailure(const absl::Status &why) {
  std::lock_guard lock(mutex);
  if (!cause.ok() || doneSeen)
    return;
  cause = why;
  failed = true;
  raise(failedEvent);
  changed.notify_all();
}

absl::Status TcpLink::hubGone(const std::string &how) {
  std::lock_guard lock(mutex);
  std::string place =
      directory.empty() ? "" : absl::StrCat(" (", directory[0].place, ")");
  return absl::UnavailableError(absl::StrCat(
      "rank 0", place, " ", how, "; it was last seen ", zero.where()));
}

void TcpLink::take(const Channel::Frame &frame) {
  switch (static_cast<Frame>(frame.kind)) {
  case Frame::kWelcome: {
    std::vector<std::string> lines;
    std::vector<Hello> hellos;
    bool good = unpackParts(frame.body, lines) && !lines.empty();
    for (size_t i = 1; good && i < lines.size(); ++i)
      good = Hello::parse(lines[i], hellos.emplace_back());
    if (!good || static_cast<int>(hellos.size()) != settings.hello.size)
      return setFailure(
          absl::InternalError("rank 0 sent a list of ranks that is not one"));
    std::lock_guard lock(mutex);
    sessionId = lines[0];
    directory = std::move(hellos);
    welcomed = true;
    changed.notify_all();
    return;
  }
  case Frame::kHubBeat: {
    std::lock_guard lock(mutex);
    Breadcrumb::parse(frame.body, zero);
    return;
  }
  case Frame::kExchanged: {
    std::lock_guard lock(mutex);
    parts = frame.body;
    hasParts = true;
    changed.notify_all();
    return;
  }
  case Frame::kFailed:
    return setFailure(unpackStatus(frame.body));
  case Frame::kExit: {
    std::lock_guard lock(mutex);
    exitSeen = true;
    changed.notify_all();
    return;
  }
  case Frame::kDone: {
    std::lock_guard lock(mutex);
    doneSeen = true;
    changed.notify_all();
    return;
  }
  default:
    return;
  }
}

void TcpLink::watch() {
  double beat = std::min(0.2, settings.limits.silenceSeconds / 5);
  Clock::time_point heard = Clock::now(), beaten = Clock::now(), last = heard;
  Clock::time_point failedAt;
  bool handled = false;
  while (!stopping) {
    {
      std::lock_guard lock(mutex);
      for (const auto &[kind, body] : toSend)
        channel.queue(static_cast<uint8_t>(kind), body);
      toSend.clear();
    }
    if (since(beaten) >= beat) {
      beaten = Clock::now();
      channel.queue(static_cast<uint8_t>(Frame::kBeat),
                    crumbs.read().serialize());
    }
    bool alive = channel.open() && channel.flush();
    pollfd polls[2] = {{wake.get(), POLLIN, 0},
                       {channel.descriptor(), POLLIN, 0}};
    if (channel.open() && channel.hasOutput())
      polls[1].events |= POLLOUT;
    ::poll(polls, channel.open() ? 2 : 1, static_cast<int>(beat * 500));
    if (uint64_t count; polls[0].revents != 0)
      (void)!::read(wake.get(), &count, sizeof count);
    if (since(last) > 1) // This process did not run: nobody else is to blame.
      heard = Clock::now();
    last = Clock::now();
    if (channel.open() && polls[1].revents != 0) {
      heard = Clock::now();
      alive &= channel.fill();
      Channel::Frame frame;
      while (channel.next(frame))
        take(frame);
    }
    if (channel.open() && (!alive || channel.bad())) {
      channel.close();
      setFailure(hubGone("died: its process ended")); // unless all is done
      std::lock_guard lock(mutex);
      exitSeen = true;
      changed.notify_all();
    } else if (channel.open() &&
               since(heard) > settings.limits.silenceSeconds) {
      std::unique_lock lock(mutex);
      if (welcomed) {
        exitSeen = true; // as far as this rank can know
        lock.unlock();
        setFailure(hubGone(
            absl::StrFormat("is stopped or cut off: no sign of life for %.1f s",
                            since(heard))));
      }
    }
    TermDelay::poll();

    if (!failed)
      continue;
    bool handle, exit;
    absl::Status why;
    {
      std::lock_guard lock(mutex);
      handle = armed && !aborting && !handled;
      why = cause;
    }
    if (handle) {
      handled = true;
      failedAt = Clock::now();
      absl::Status said = withPlace(why, settings.hello.rank, crumbs.read());
      if (settings.onFailure)
        settings.onFailure(said);
      std::vector<std::function<void(const absl::Status &)>> all;
      {
        std::lock_guard lock(mutex);
        all = actions;
      }
      for (const auto &action : all)
        action(said);
      send(Frame::kReported, "");
    }
    {
      std::lock_guard lock(mutex);
      exit = exitSeen;
    }
    if (handled && settings.exitCode != 0 &&
        (exit || since(failedAt) > kExitSeconds))
      ::_exit(settings.exitCode);
  }
  channel.flush();
}

/// In a process that is about to end, its caller does not get to say more.
absl::Status TcpLink::settle(const absl::Status &status) const {
  bool ends;
  {
    std::lock_guard lock(mutex);
    ends = armed && !aborting && settings.exitCode != 0;
  }
  for (Clock::time_point start = Clock::now(); ends && since(start) < 30;)
    ::usleep(100000);
  return status;
}

absl::Status TcpLink::failure() const {
  return failed ? settle(peek()) : absl::OkStatus();
}

absl::Status TcpLink::peek() const {
  if (!failed)
    return absl::OkStatus();
  std::lock_guard lock(mutex);
  return cause;
}

void TcpLink::onFailure(std::function<void(const absl::Status &)> action) {
  std::lock_guard lock(mutex);
  actions.push_back(std::move(action));
}

absl::Status TcpLink::awaitFailure(double patience,
                                   const absl::Status &otherwise) {
  absl::Status status;
  {
    std::unique_lock lock(mutex);
    changed.wait_for(lock, seconds(patience), [&] { return !cause.ok(); });
    status = cause;
  }
  if (status.ok()) {
    setFailure(otherwise);
    status = otherwise;
  }
  return settle(status);
}

absl::Status TcpLink::late() {
  Breadcrumb mine = crumbs.read();
  send(Frame::kLate, mine.serialize());
  return awaitFailure(kVerdictSeconds,
                      absl::DeadlineExceededError(absl::StrFormat(
                          "waited %.1f s %s, and rank 0 does not say why",
                          settings.limits.callSeconds, mine.where())));
}

absl::Status TcpLink::lost(int peer, const std::string &how) {
  send(Frame::kLost, absl::StrCat(peer, "\n", how));
  return awaitFailure(kVerdictSeconds,
                      absl::UnavailableError(absl::StrCat(
                          "the connection to rank ", peer, " broke: ", how)));
}

absl::Status TcpLink::fail(const absl::Status &why) {
  send(Frame::kFail, packStatus(why));
  return awaitFailure(kVerdictSeconds, why);
}

void TcpLink::abort(const absl::Status &why) {
  if (failed)
    return;
  aborting = true;
  (void)fail(why);
  report();
}

/// Says that this rank has nothing more to say, and waits for the others.
void TcpLink::report() {
  send(Frame::kReported, "");
  std::unique_lock lock(mutex);
  changed.wait_for(lock, seconds(kExitSeconds), [&] { return exitSeen; });
}

absl::StatusOr<std::vector<std::string>>
TcpLink::exchange(const std::string &mine) {
  QWEN35_RETURN_IF_ERROR(failure());
  send(Frame::kExchange, mine);
  std::string bytes;
  {
    std::unique_lock lock(mutex);
    bool came = changed.wait_for(lock, seconds(settings.limits.callSeconds),
                                 [&] { return hasParts || !cause.ok(); });
    if (!came) {
      lock.unlock();
      return late();
    }
    if (!hasParts) {
      lock.unlock();
      return failure();
    }
    hasParts = false;
    bytes = std::move(parts);
  }
  std::vector<std::string> all;
  if (!unpackParts(bytes, all) ||
      static_cast<int>(all.size()) != settings.hello.size)
    return fail(absl::InternalError(absl::StrCat("rank 0 sent ", all.size(),
                                                 " parts of an exchange of ",
                                                 settings.hello.size)));
  return all;
}

absl::Status TcpLink::finish() {
  QWEN35_RETURN_IF_ERROR(failure());
  {
    std::lock_guard lock(mutex);
    if (doneSeen)
      return absl::OkStatus();
  }
  send(Frame::kBye, "");
  {
    std::unique_lock lock(mutex);
    changed.wait_for(lock, seconds(settings.limits.callSeconds),
                     [&] { return doneSeen || !cause.ok(); });
    if (doneSeen)
      return absl::OkStatus();
  }
  return failed ? failure() : late();
}

} // namespace qwen35::comm
