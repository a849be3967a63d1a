#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/bundle/quoted.h"
#include "runtime/bundle/status_macros.h"
#include "runtime/comm/reducer.h"
#include "runtime/comm/transport.h"

#include <algorithm>
#include <cstring>

namespace qwen35::comm {
namespace {

constexpr int64_t kPiece = 64
                           << 10; // elements per rank that are summed at once
constexpr int64_t kSmall = 32 << 10; // bytes in all: sent whole to everybody
constexpr size_t kMaxExchange = 16 << 20;

char *at(void *base, int64_t bytes) {
  return static_cast<char *>(base) + bytes;
}
const char *at(const void *base, int64_t bytes) {
  return static_cast<const char *>(base) + bytes;
}

class HostCommunicator : public Communicator {
public:
  HostCommunicator(std::string name, int rank, std::vector<int> members,
                   uint32_t number, int self, std::shared_ptr<Link> link,
                   std::shared_ptr<Transport> transport)
      : Communicator(std::move(name), rank, std::move(members)), number(number),
        self(self), link(std::move(link)), transport(std::move(transport)) {}

private:
  absl::Status execute(const Call &call) override {
    Progress &progress = link->progress();
    int64_t sequence = progress.enter(call, name());
    header = Header();
    header.communicator = number;
    // Ranks that take no part in a send_receive do not count it.
    header.ordinal = call.kind == Kind::kSendReceive ? 0 : ordinal++;
    header.sequence = call.site.sequence >= 0 ? sequence : -1;
    header.count = call.kind == Kind::kSendReceive ? 0 : call.count;
    header.root = call.root;
    header.kind = call.kind;
    header.type = call.type;
    header.wire = call.wire;
    header.accumulate = call.accumulate;
    header.reduction = call.reduction;
    header.wrap = call.wrap;
    call.site.label.copy(header.label, sizeof header.label - 1);
    absl::Status status = link->failure();
    if (status.ok())
      status = perform(call);
    if (!status.ok())
      status = withPlace(status, self, progress.read());
    else
      progress.leave();
    return status;
  }

  absl::Status perform(const Call &call) {
    const int64_t n = size(), bytes = call.count * bytesOf(call.type);
    out.clear();
    in.clear();
    switch (call.kind) {
    case Kind::kAllGather:
      for (int r : others()) {
        send(r, call.send, bytes);
        receive(r, at(call.receive, r * bytes), bytes);
      }
      QWEN35_RETURN_IF_ERROR(flush());
      copy(at(call.receive, rank() * bytes), call.send, bytes);
      return absl::OkStatus();
    case Kind::kAllToAll:
      for (int r : others()) {
        send(r, at(call.send, r * bytes), bytes);
        receive(r, at(call.receive, r * bytes), bytes);
      }
      QWEN35_RETURN_IF_ERROR(flush());
      copy(at(call.receive, rank() * bytes), at(call.send, rank() * bytes),
           bytes);
      return absl::OkStatus();
    case Kind::kAllReduce:
      return allReduce(call);
    case Kind::kReduceScatter:
      return reduceScatter(call);
    case Kind::kShift: {
      int64_t to = rank() + call.root, from = rank() - call.root;
      if (call.wrap) {
        to = (to + n) % n;
        from = (from + n) % n;
      }
      if (to >= 0 && to < n)
        send(static_cast<int>(to), call.send, bytes);
      if (from >= 0 && from < n)
        receive(static_cast<int>(from), call.receive, bytes);
      else if (bytes > 0)
        std::memset(call.receive, 0, static_cast<size_t>(bytes));
      return flush();
    }
    case Kind::kSendReceive: {
      int64_t receiveBytes = call.receiveCount * bytesOf(call.type);
      if (call.to == rank()) {
        copy(call.receive, call.send, bytes);
        return absl::OkStatus();
      }
      if (call.to >= 0)
        send(call.to, call.send, bytes);
      if (call.from >= 0)
        receive(call.from, call.receive, receiveBytes);
      return flush();
    }
    case Kind::kBroadcast:
      if (call.root != rank())
        receive(call.root, call.receive, bytes);
      else
        for (int r : others())
          send(r, call.send, bytes);
      return flush();
    default:
      break;
    }
    // A barrier: after round k this rank has heard, at one remove or more, of
    // 2^(k+1) ranks.
    for (int64_t step = 1; step < n; step *= 2) {
      send(static_cast<int>((rank() + step) % n), nullptr, 0);
      receive(static_cast<int>((rank() - step + n) % n), nullptr, 0);
      QWEN35_RETURN_IF_ERROR(flush());
    }
    return absl::OkStatus();
  }

  /// receive = what all ranks have at `wires`, packed, each `count` elements;
  /// added up in rank order.
  void sumInOrder(const Reducer &reducer,
                  const std::vector<const void *> &wires, int64_t count,
                  void *receive) {
    void *sum = grow(sums, count * bytesOf(reducer.accumulate()));
    for (size_t r = 0; r < wires.size(); ++r)
      if (r == 0)
        reducer.start(wires[r], count, sum);
      else
        reducer.add(wires[r], count, sum);
    reducer.finish(sum, count, receive);
  }

  absl::Status reduceScatter(const Call &call) {
    Reducer reducer = reducerOf(call);
    const int64_t n = size(), width = bytesOf(call.type);
    const int64_t wire = bytesOf(reducer.wire());
    for (int64_t first = 0; first < call.count; first += kPiece) {
      int64_t count = std::min(kPiece, call.count - first);
      char *came = grow(received, n * count * wire);
      char *packed = reducer.packs() ? grow(sent, n * count * wire) : nullptr;
      std::vector<const void *> wires;
      for (int r = 0; r < n; ++r) {
        const void *part = at(call.send, (r * call.count + first) * width);
        if (packed) {
          reducer.pack(part, count, packed + r * count * wire);
          part = packed + r * count * wire;
        }
        if (r == rank()) {
          wires.push_back(part);
          continue;
        }
        send(r, part, count * wire);
        receive(r, came + r * count * wire, count * wire);
        wires.push_back(came + r * count * wire);
      }
      QWEN35_RETURN_IF_ERROR(flush());
      sumInOrder(reducer, wires, count, at(call.receive, first * width));
    }
    return absl::OkStatus();
  }

  absl::Status allReduce(const Call &call) {
    Reducer reducer = reducerOf(call);
    const int64_t n = size(), width = bytesOf(call.type);
    const int64_t wire = bytesOf(reducer.wire());
    if (n * call.count * wire <= kSmall)
      return allReduceSmall(call, reducer);
    for (int64_t first = 0; first < call.count; first += n * kPiece) {
      int64_t chunk = std::min(n * kPiece, call.count - first);
      int64_t slice = (chunk + n - 1) / n;
      auto begin = [&](int64_t r) { return std::min(r * slice, chunk); };
      auto length = [&](int64_t r) { return begin(r + 1) - begin(r); };
      int64_t mine = length(rank());
      char *target = at(call.receive, first * width);

      // Slice r goes to rank r, which adds it up ...
      char *came = grow(received, n * slice * wire);
      char *packed = reducer.packs() ? grow(sent, chunk * wire) : nullptr;
      if (packed)
        reducer.pack(at(call.send, first * width), chunk, packed);
      const char *source = packed ? packed : at(call.send, first * width);
      std::vector<const void *> wires;
      for (int r = 0; r < n; ++r) {
        if (r == rank()) {
          wires.push_back(source + begin(r) * wire);
          continue;
        }
        send(r, source + begin(r) * wire, length(r) * wire);
        receive(r, came + r * slice * wire, mine * wire);
        wires.push_back(came + r * slice * wire);
      }
      QWEN35_RETURN_IF_ERROR(flush());
      sumInOrder(reducer, wires, mine, target + begin(rank()) * width);

      // ... and sends it to all, rounded to the wire type, for itself too.
      if (packed)
        reducer.pack(target + begin(rank()) * width, mine,
                     packed + begin(rank()) * wire);
      char *sums = packed ? packed : target;
      for (int r : others()) {
        send(r, sums + begin(rank()) * wire, mine * wire);
        receive(r, sums + begin(r) * wire, length(r) * wire);
      }
      QWEN35_RETURN_IF_ERROR(flush());
      if (packed)
        reducer.unpack(packed, chunk, target);
    }
    return absl::OkStatus();
  }

  absl::Status allReduceSmall(const Call &call, const Reducer &reducer) {
    const int64_t bytes = call.count * bytesOf(reducer.wire());
    char *came = grow(received, size() * bytes);
    const void *mine = call.send;
    if (reducer.packs()) {
      reducer.pack(call.send, call.count, grow(sent, bytes));
      mine = sent.data();
    }
    std::vector<const void *> wires;
    for (int r = 0; r < size(); ++r)
      wires.push_back(r == rank() ? mine : came + r * bytes);
    for (int r : others()) {
      send(r, mine, bytes);
      receive(r, came + r * bytes, bytes);
    }
    QWEN35_RETURN_IF_ERROR(flush());
    sumInOrder(reducer, wires, call.count, call.receive);
    if (reducer.packs()) {
      reducer.pack(call.receive, call.count, sent.data());
      reducer.unpack(sent.data(), call.count, call.receive);
    }
    return absl::OkStatus();
  }

  /// Ranks of this communicator after this one, then those before it: no rank
  /// is everybody's first.
  std::vector<int> others() const {
    std::vector<int> ranks;
    for (int i = 1; i < size(); ++i)
      ranks.push_back((rank() + i) % size());
    return ranks;
  }

  void send(int to, const void *data, int64_t bytes) {
    out.push_back({members()[static_cast<size_t>(to)], nullptr, data, bytes});
  }
  void receive(int from, void *data, int64_t bytes) {
    in.push_back({members()[static_cast<size_t>(from)], nullptr, data, bytes});
  }

  /// Every message has a header of its own: of one send_receive, the bytes in
  /// both directions differ.
  absl::Status flush() {
    std::vector<Header> headers(out.size() + in.size(), header);
    Header *next = headers.data();
    for (Outgoing &message : out) {
      next->bytes = message.bytes;
      message.header = next++;
    }
    for (Incoming &message : in) {
      next->bytes = message.bytes;
      message.expected = next++;
    }
    absl::Status status = transport->move(out, in);
    out.clear();
    in.clear();
    ++header.part;
    return status;
  }

  static Reducer reducerOf(const Call &call) {
    return *Reducer::make(call.type, call.wire, call.accumulate,
                          call.reduction); // accepted by check()
  }

  static char *grow(std::vector<char> &buffer, int64_t bytes) {
    if (static_cast<int64_t>(buffer.size()) < bytes)
      buffer.resize(static_cast<size_t>(bytes));
    return buffer.data();
  }

  static void copy(void *to, const void *from, int64_t bytes) {
    if (to != from && bytes > 0)
      std::memcpy(to, from, static_cast<size_t>(bytes));
  }

  uint32_t number;
  int self; // rank of the world
  std::shared_ptr<Link> link;
  std::shared_ptr<Transport> transport;
  int64_t ordinal = 0;
  Header header;
  std::vector<Outgoing> out;
  std::vector<Incoming> in;
  std::vector<char> sent, received, sums;
};

class HostWorld : public World {
public:
  HostWorld(int rank, int size, std::shared_ptr<Link> link,
            std::shared_ptr<Transport> transport)
      : self(rank), ranks(size), link(std::move(link)),
        transport(std::move(transport)) {
    std::vector<int> members;
    for (int r = 0; r < size; ++r)
      members.push_back(r);
    world = std::make_unique<HostCommunicator>(
        "world", rank, std::move(members), splits++, self, this->link,
        this->transport);
  }

  int rank() const override { return self; }
  int size() const override { return ranks; }
  Communicator &all() override { return *world; }

  absl::StatusOr<std::shared_ptr<Communicator>>
  split(const std::string &name,
        const std::vector<std::vector<int>> &groups) override {
    absl::StatusOr<std::vector<int>> members =
        groupOf(self, ranks, name, groups);
    QWEN35_RETURN_IF_ERROR(members.status());
    std::string list;
    for (const std::vector<int> &group : groups)
      absl::StrAppend(&list, list.empty() ? "" : " | ",
                      absl::StrJoin(group, " "));
    Call call;
    call.kind = Kind::kSplit;
    absl::StatusOr<std::vector<std::string>> lists =
        tracked(call, name, absl::StrCat("split ", quoted(name)), list);
    QWEN35_RETURN_IF_ERROR(lists.status());
    uint32_t number = splits++;
    for (int r = 0; r < ranks; ++r)
      if (const std::string &theirs = (*lists)[static_cast<size_t>(r)];
          theirs != (*lists)[0])
        return link->fail(absl::FailedPreconditionError(absl::StrCat(
            "communicator ", quoted(name), " is split into ", theirs,
            " on rank ", r, " and into ", (*lists)[0], " on rank 0")));
    if (members->empty())
      return std::shared_ptr<Communicator>();
    int rank = static_cast<int>(
        std::find(members->begin(), members->end(), self) - members->begin());
    return std::shared_ptr<Communicator>(std::make_shared<HostCommunicator>(
        name, rank, *members, number, self, link, transport));
  }

  absl::StatusOr<std::vector<std::string>>
  exchange(absl::string_view what, const std::string &mine) override {
    if (mine.size() > kMaxExchange)
      return absl::InvalidArgumentError(
          absl::StrCat("exchange of ", std::string(what), ": ", mine.size(),
                       " bytes; expected at most ", kMaxExchange));
    Call call;
    call.kind = Kind::kExchange;
    call.site.label = what;
    return tracked(call, "world", what, mine);
  }

  void abort(const absl::Status &why) override {
    link->abort(absl::AbortedError(
        absl::StrCat("rank ", self, " failed: ", std::string(why.message()))));
  }
  absl::Status fail(const absl::Status &cause) override {
    return link->fail(cause);
  }
  absl::Status late(const Breadcrumb &where) override {
    link->progress().note(where);
    return link->late();
  }
  void note(const Breadcrumb &where) override { link->progress().note(where); }
  void onFailure(std::function<void(const absl::Status &)> action) override {
    link->onFailure(std::move(action));
  }
  absl::Status lastError() const override { return link->peek(); }
  absl::Status finish() override {
    Call call;
    call.site.label = "finish";
    link->progress().enter(call, "world");
    absl::Status status = link->finish();
    if (!status.ok())
      return withPlace(status, self, link->progress().read());
    link->progress().leave();
    return status;
  }

private:
  absl::StatusOr<std::vector<std::string>> tracked(const Call &call,
                                                   const std::string &name,
                                                   absl::string_view what,
                                                   const std::string &mine) {
    link->progress().enter(call, name);
    absl::StatusOr<std::vector<std::string>> all =
        exchangeNamed(*link, self, what, mine);
    if (!all.ok())
      return withPlace(all.status(), self, link->progress().read());
    link->progress().leave();
    return all;
  }

  int self, ranks;
  std::shared_ptr<Link> link;
  std::shared_ptr<Transport> transport;
  uint32_t splits = 0;
  std::unique_ptr<HostCommunicator> world;
};

} // namespace

std::string Header::describe() const {
  Call call;
  call.kind = kind;
  call.type = type;
  call.wire = wire;
  call.reduction = reduction;
  call.count = count;
  call.root = root;
  size_t length = 0;
  while (length < sizeof label && label[length])
    ++length;
  call.site.label = absl::string_view(label, length);
  std::string text = comm::describe(call);
  if (kind == Kind::kSendReceive)
    absl::StrAppend(&text, " (", bytes, " bytes in this direction)");
  return absl::StrCat(
      sequence >= 0 ? absl::StrCat("number ", sequence, ", ") : "", text,
      ", call ", ordinal, " of communicator ", communicator);
}

absl::Status compare(const Header &mine, int self, const Header &theirs,
                     int peer) {
  Header other = theirs;
  std::memcpy(other.label, mine.label, sizeof other.label);
  if (std::memcmp(&other, &mine, sizeof other) == 0)
    return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "ranks ", self, " and ", peer, " do not call the same collective: rank ",
      self, " is in ", mine.describe(), ", rank ", peer, " in ",
      theirs.describe()));
}

absl::Status withPlace(const absl::Status &cause, int self,
                       const Breadcrumb &crumb) {
  if (absl::StrContains(std::string(cause.message()), "; this is rank "))
    return cause;
  std::string where =
      crumb.sequence < 0
          ? crumb.where()
          : absl::StrCat(crumb.inside ? "in " : "after ", crumb.collective());
  return absl::Status(
      cause.code(),
      absl::StrCat(cause.message(), "; this is rank ", self, ", ", where));
}

absl::StatusOr<std::vector<std::string>>
exchangeNamed(Link &link, int self, absl::string_view what,
              const std::string &mine) {
  std::string head = absl::StrCat(std::string(what), "\n");
  absl::StatusOr<std::vector<std::string>> all = link.exchange(head + mine);
  QWEN35_RETURN_IF_ERROR(all.status());
  for (size_t r = 0; r < all->size(); ++r) {
    std::string &theirs = (*all)[r];
    if (!absl::StartsWith(theirs, head))
      return link.fail(absl::FailedPreconditionError(absl::StrCat(
          "ranks ", self, " and ", r, " do not exchange the same: rank ", self,
          " ", quoted(std::string(what)), ", rank ", r, " ",
          quoted(theirs.substr(0, theirs.find('\n'))))));
    theirs.erase(0, head.size());
  }
  return all;
}

std::unique_ptr<World> makeHostWorld(int rank, int size,
                                     std::shared_ptr<Link> link,
                                     std::shared_ptr<Transport> transport) {
  return std::make_unique<HostWorld>(rank, size, std::move(link),
                                     std::move(transport));
}

} // namespace qwen35::comm
