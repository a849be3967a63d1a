#include "runtime/comm/hub.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "runtime/bundle/quoted.h"

#include <algorithm>
#include <cstring>
#include <random>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

namespace qwen35::comm {
namespace {

constexpr char kMagic[] = "qwen35-ranks 1";
constexpr double kTick = 0.05;
constexpr double kVerdict = 0.6; // for fresh breadcrumbs, before blaming a rank
constexpr double kGrace = 3;     // for ranks to come and to report

Clock::time_point after(Clock::time_point from, double seconds) {
  return from + std::chrono::duration_cast<Clock::duration>(
                    std::chrono::duration<double>(seconds));
}

double secondsBetween(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

std::string oneLine(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

std::string listOf(const std::vector<int> &ranks) {
  std::vector<int> some(ranks.begin(),
                        ranks.begin() +
                            std::min<ptrdiff_t>(16, std::ssize(ranks)));
  return absl::StrCat(absl::StrJoin(some, ", "),
                      some.size() < ranks.size() ? ", ..." : "");
}

} // namespace

std::string Hello::serialize() const {
  std::string text =
      absl::StrCat(kMagic, "\n", oneLine(cookie), "\n", rank, "\n", size, "\n",
                   neededRanks, "\n", oneLine(place), "\n", oneLine(machine),
                   "\n", dataPort, "\n", absl::StrJoin(addresses, " "));
  for (const auto &[name, value] : agree)
    absl::StrAppend(&text, "\n", oneLine(name), "\n", oneLine(value));
  return text;
}

bool Hello::parse(const std::string &text, Hello &hello) {
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  if (lines.size() < 9 || lines.size() % 2 == 0 || lines[0] != kMagic ||
      !absl::SimpleAtoi(lines[2], &hello.rank) ||
      !absl::SimpleAtoi(lines[3], &hello.size) ||
      !absl::SimpleAtoi(lines[4], &hello.neededRanks) ||
      !absl::SimpleAtoi(lines[7], &hello.dataPort))
    return false;
  hello.cookie = lines[1];
  hello.place = lines[5];
  hello.machine = lines[6];
  hello.addresses = absl::StrSplit(lines[8], ' ', absl::SkipEmpty());
  for (size_t i = 9; i < lines.size(); i += 2)
    hello.agree.emplace_back(lines[i], lines[i + 1]);
  return true;
}

std::string packParts(const std::vector<std::string> &parts) {
  std::string bytes;
  for (const std::string &part : parts) {
    uint32_t length = static_cast<uint32_t>(part.size());
    bytes.append(reinterpret_cast<const char *>(&length), sizeof length);
    bytes.append(part);
  }
  return bytes;
}

bool unpackParts(absl::string_view bytes, std::vector<std::string> &parts) {
  while (!bytes.empty()) {
    uint32_t length = 0;
    if (bytes.size() < sizeof length)
      return false;
    std::memcpy(&length, bytes.data(), sizeof length);
    bytes.remove_prefix(sizeof length);
    if (bytes.size() < length)
      return false;
    parts.emplace_back(bytes.data(), length);
    bytes.remove_prefix(length);
  }
  return true;
}

std::string packStatus(const absl::Status &status) {
  return absl::StrCat(static_cast<int>(status.code()), "\n", status.message());
}

absl::Status unpackStatus(const std::string &text) {
  size_t end = text.find('\n');
  int code = 0;
  if (end == std::string::npos ||
      !absl::SimpleAtoi(text.substr(0, end), &code) || code <= 0 || code > 16)
    return absl::InternalError("the hub sent a failure that cannot be read");
  return absl::Status(static_cast<absl::StatusCode>(code),
                      text.substr(end + 1));
}

Hub::Hub(Descriptor listener, int size, const Limits &limits)
    : listener(std::move(listener)),
      wake(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)), size(size),
      limits(limits), byRank(static_cast<size_t>(size)) {}

Hub::~Hub() {
  stopping = true;
  uint64_t one = 1;
  (void)!::write(wake.get(), &one, sizeof one); // stays readable
  if (thread.joinable())
    thread.join();
}

Descriptor Hub::connectLocally() {
  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0,
                   ends) != 0)
    return Descriptor();
  addMember(Descriptor(ends[0]));
  thread = std::thread([this] { run(); });
  return Descriptor(ends[1]);
}

void Hub::addMember(Descriptor socket) {
  members.push_back(std::make_unique<Member>());
  members.back()->channel = Channel(std::move(socket));
}

Hub::Member *Hub::rank(int number) const {
  return number >= 0 && number < size ? byRank[static_cast<size_t>(number)]
                                      : nullptr;
}

void Hub::sendAll(Frame kind, const std::string &body) {
  // Rank 0 last: once it knows, its process and this thread may end.
  for (auto it = members.rbegin(); it != members.rend(); ++it)
    if ((*it)->channel.open()) {
      (*it)->channel.queue(static_cast<uint8_t>(kind), body);
      (*it)->channel.flush();
    }
}

void Hub::fail(const absl::Status &why) {
  if (!cause.ok())
    return;
  cause = why;
  exitAt = after(Clock::now(), kGrace);
  sendAll(Frame::kFailed, packStatus(cause));
}

void Hub::join(Member &member, const std::string &text) {
  Hello hello;
  if (!Hello::parse(text, hello)) {
    member.channel.close(); // not one of us, or another version
    return;
  }
  if (Member *first = members.front().get();
      first != &member && hello.cookie != first->hello.cookie) {
    member.channel.close(); // of another run
    return;
  }
  member.hello = hello;
  member.joined = true;
  member.heard = Clock::now();
  if (!cause.ok()) {
    member.channel.queue(static_cast<uint8_t>(Frame::kFailed),
                         packStatus(cause));
    return;
  }
  std::string who = absl::StrCat("rank ", hello.rank, " (", hello.place, ")");
  if (running) {
    member.channel.queue(
        static_cast<uint8_t>(Frame::kFailed),
        packStatus(absl::FailedPreconditionError(absl::StrCat(
            who, " came after all ", size, " ranks had come together"))));
    return;
  }
  const Hello &zero = members.front()->hello;
  if (hello.neededRanks != 0 && hello.neededRanks != hello.size)
    problems.push_back(absl::StrCat("the bundle is for ", hello.neededRanks,
                                    " ranks and ", who,
                                    " was started in a world of ", hello.size));
  if (hello.size != size) {
    problems.push_back(absl::StrCat(who, " was started in a world of ",
                                    hello.size, " and rank 0 (", zero.place,
                                    ") in a world of ", size));
  } else if (Member *before = rank(hello.rank); before) {
    problems.push_back(absl::StrCat("two processes are rank ", hello.rank, ": ",
                                    before->hello.place, " and ", hello.place));
  } else if (hello.rank < 0 || hello.rank >= size) {
    problems.push_back(
        absl::StrCat(who, " is not one of the ranks 0 to ", size - 1));
  } else {
    byRank[static_cast<size_t>(hello.rank)] = &member;
  }
  size_t count = std::max(hello.agree.size(), zero.agree.size());
  for (size_t i = 0; i < count; ++i) {
    auto entry = [&](const Hello &of) {
      return i < of.agree.size()
                 ? of.agree[i]
                 : std::pair<std::string, std::string>("nothing", "");
    };
    auto [name, value] = entry(hello);
    auto [zeroName, zeroValue] = entry(zero);
    if (name != zeroName || value != zeroValue)
      problems.push_back(absl::StrCat(
          who, " has ", name, " ", qwen35::quoted(value), " and rank 0 (",
          zero.place, ") has ", zeroName, " ", qwen35::quoted(zeroValue)));
  }
  // The others of a wrong start get some time to come and hear of it.
  if (!problems.empty())
    refuseAt = std::min(refuseAt, after(Clock::now(), kGrace));
  checkJoined(false);
}

bool Hub::allCame() const {
  return std::count_if(members.begin(), members.end(),
                       [](const std::unique_ptr<Member> &member) {
                         return member->joined;
                       }) >= size;
}

void Hub::checkJoined(bool late) {
  if (running || !cause.ok())
    return;
  std::vector<int> missing;
  for (int r = 0; r < size; ++r)
    if (!rank(r))
      missing.push_back(r);
  if (!problems.empty()) {
    if (!allCame() && Clock::now() < refuseAt)
      return;
    if (problems.size() > 4) {
      problems[4] = absl::StrCat("and ", problems.size() - 4, " more");
      problems.resize(5);
    }
    fail(absl::FailedPreconditionError(absl::StrJoin(problems, "; ")));
    return;
  }
  if (missing.empty()) {
    running = true;
    std::random_device random;
    std::vector<std::string> parts = {
        absl::StrCat(static_cast<uint64_t>(random()) << 32 | random())};
    for (Member *member : byRank) {
      parts.push_back(member->hello.serialize());
      member->heard = Clock::now();
    }
    sendAll(Frame::kWelcome, packParts(parts));
    return;
  }
  if (late)
    fail(absl::DeadlineExceededError(absl::StrFormat(
        "%d of %d ranks came together within %.1f s; missing: rank%s %s",
        size - std::ssize(missing), size, limits.joinSeconds,
        missing.size() == 1 ? "" : "s", listOf(missing))));
}

void Hub::take(Member &member, const Channel::Frame &frame) {
  member.heard = Clock::now();
  Frame kind = static_cast<Frame>(frame.kind);
  if (kind == Frame::kHello) {
    if (!member.joined)
      join(member, frame.body);
    return;
  }
  if (!member.joined) {
    member.channel.close();
    return;
  }
  switch (kind) {
  case Frame::kBeat:
    Breadcrumb::parse(frame.body, member.crumb);
    break;
  case Frame::kExchange: {
    member.hasGiven = true;
    member.given = frame.body;
    std::vector<std::string> parts;
    for (Member *one : byRank) {
      if (!one || !one->hasGiven)
        return;
      parts.push_back(one->given);
    }
    for (Member *one : byRank) {
      one->hasGiven = false;
      one->given.clear();
    }
    sendAll(Frame::kExchanged, packParts(parts));
    break;
  }
  case Frame::kLate:
    Breadcrumb::parse(frame.body, member.crumb);
    if (lateRank < 0) {
      lateRank = member.hello.rank;
      verdictAt = std::min(verdictAt, after(Clock::now(), kVerdict));
    }
    break;
  case Frame::kLost: {
    std::vector<std::string> parts = absl::StrSplit(frame.body, '\n');
    int lost = -1;
    if (parts.size() == 2 && absl::SimpleAtoi(parts[0], &lost) && rank(lost) &&
        lostText.empty()) {
      lostText =
          absl::StrCat("the connection of rank ", member.hello.rank, " (",
                       member.hello.place, ") to rank ", lost, " (",
                       rank(lost)->hello.place, ") broke: ", parts[1]);
      verdictAt = std::min(verdictAt, after(Clock::now(), kVerdict));
    }
    break;
  }
  case Frame::kFail:
    fail(unpackStatus(frame.body));
    break;
  case Frame::kReported:
    member.reported = true;
    break;
  case Frame::kBye: {
    member.left = true;
    member.leftAt = Clock::now();
    for (Member *one : byRank)
      if (!one || !one->left)
        return;
    sendAll(Frame::kDone, "");
    done = true;
    break;
  }
  default:
    break;
  }
}

std::vector<RankState> Hub::states(Clock::time_point now) const {
  std::vector<RankState> result(byRank.size());
  for (size_t r = 0; r < byRank.size(); ++r) {
    const Member *member = byRank[r];
    if (!member)
      continue;
    result[r].place = member->hello.place;
    result[r].ended = member->ended && !member->left;
    result[r].crumb = member->crumb;
    auto waits = [&](bool Member::*done) {
      result[r].crumb.inside = true;
      result[r].crumb.waitingFor.clear();
      for (size_t other = 0; other < byRank.size(); ++other)
        if (byRank[other] && !(byRank[other]->*done))
          result[r].crumb.waitingFor.push_back(static_cast<int>(other));
    };
    if (member->left)
      waits(&Member::left);
    else if (member->hasGiven)
      waits(&Member::hasGiven);
    double silent = secondsBetween(member->heard, now);
    // Once somebody waits in vain, several missed beats are enough.
    double limit = lateRank >= 0 ? std::min(limits.silenceSeconds, 3.0)
                                 : limits.silenceSeconds;
    result[r].silentFor = silent > limit ? silent : 0;
  }
  return result;
}

/// Of messages of a rank that has finished, in seconds.
constexpr double kArrival = 1;

void Hub::tick(Clock::time_point now, bool slept) {
  if (!cause.ok()) {
    // Stopped ranks will not report.
    bool all = true;
    for (const std::unique_ptr<Member> &member : members)
      all &= !member->channel.open() || !member->joined || member->reported ||
             secondsBetween(member->heard, now) > limits.silenceSeconds;
    if (!exitSent && (now >= exitAt || (all && (problems.empty() || allCame() ||
                                                now >= refuseAt)))) {
      exitSent = true;
      sendAll(Frame::kExit, "");
    }
    return;
  }
  if (!running) {
    for (const std::unique_ptr<Member> &member : members)
      if (member->joined && member->ended)
        return fail(absl::UnavailableError(
            absl::StrCat("rank ", member->hello.rank, " (", member->hello.place,
                         ") ended while the ranks came together")));
    return checkJoined(secondsBetween(start, now) > limits.joinSeconds);
  }
  if (slept) // This process did not run: nobody else is to blame.
    for (Member *member : byRank)
      member->heard = now;
  double beat = std::min(0.5, limits.silenceSeconds / 5);
  if (secondsBetween(lastBeat, now) > beat) {
    lastBeat = now;
    sendAll(Frame::kHubBeat, byRank[0]->crumb.serialize());
  }
  if (done)
    return;
  std::vector<RankState> all = states(now);
  for (const RankState &state : all)
    if (state.ended || (state.silentFor > 0 && lateRank < 0))
      return fail(diagnose(all, 0, limits.callSeconds));
  for (size_t r = 0; r < all.size(); ++r)
    if (all[r].crumb.inside)
      for (int other : all[r].crumb.waitingFor)
        if (Member *member = rank(other);
            member && member->left &&
            // Not what it was in while the last messages were on their way.
            secondsBetween(member->leftAt, byRank[r]->heard) > kArrival)
          return fail(absl::FailedPreconditionError(
              absl::StrCat("rank ", other, " has finished while rank ", r,
                           " waits for it in ", all[r].crumb.collective())));
  if (now < verdictAt)
    return;
  if (lateRank >= 0)
    return fail(diagnose(all, lateRank, limits.callSeconds));
  fail(absl::UnavailableError(lostText));
}

void Hub::run() {
  Clock::time_point last = Clock::now(), stopAt = Clock::time_point::max();
  while (true) {
    if (stopping && stopAt == Clock::time_point::max()) {
      // What was sent last still has to arrive: wait for the others to close.
      stopAt = done || exitSent ? after(Clock::now(), 1) : Clock::now();
      for (const std::unique_ptr<Member> &member : members)
        if (member->channel.open())
          ::shutdown(member->channel.descriptor(), SHUT_WR);
    }
    if (stopping && (Clock::now() >= stopAt ||
                     std::none_of(members.begin(), members.end(),
                                  [](const std::unique_ptr<Member> &member) {
                                    return member->channel.open();
                                  })))
      return;
    std::vector<pollfd> polls = {{listener.get(), POLLIN, 0},
                                 {wake.get(), POLLIN, 0}};
    std::vector<Member *> polled;
    // Rank 0 comes first: the others are compared with it.
    if (!members.front()->joined)
      polls[0].fd = -1;
    for (const std::unique_ptr<Member> &member : members)
      if (member->channel.open()) {
        short events = POLLIN;
        if (member->channel.hasOutput())
          events |= POLLOUT;
        polls.push_back({member->channel.descriptor(), events, 0});
        polled.push_back(member.get());
      }
    ::poll(polls.data(), polls.size(), static_cast<int>(kTick * 1000));
    for (size_t i = 0; i < polled.size(); ++i) {
      Member &member = *polled[i];
      if (polls[i + 2].revents == 0)
        continue;
      bool alive = member.channel.fill();
      Channel::Frame frame;
      while (member.channel.open() && member.channel.next(frame))
        take(member, frame);
      if (!member.channel.open())
        continue;
      if (!alive || member.channel.bad() || !member.channel.flush()) {
        member.ended = true;
        member.channel.close();
      }
    }
    if (polls[0].revents != 0)
      while (Descriptor socket = acceptFrom(listener))
        addMember(std::move(socket));
    Clock::time_point now = Clock::now();
    if (!stopping)
      tick(now, secondsBetween(last, now) > 1);
    last = now;
  }
}

} // namespace qwen35::comm
