#include "runtime/comm/communicator.h"

#include "absl/strings/str_cat.h"
#include "runtime/bundle/status_macros.h"
#include "runtime/comm/reducer.h"

namespace qwen35::comm {
namespace {

constexpr int64_t kMaxBytes = int64_t(1) << 46; // no rank has as much memory

Type accumulateOf(Type type, const Reduce &reduce) {
  return reduce.accumulate.value_or(type == Type::kBf16 ? Type::kF32 : type);
}

struct Range {
  const char *name;
  const char *begin;
  int64_t bytes;
};

bool overlaps(const Range &a, const Range &b) {
  return a.bytes > 0 && b.bytes > 0 && a.begin < b.begin + b.bytes &&
         b.begin < a.begin + a.bytes;
}

} // namespace

absl::Status Communicator::allGather(const void *send, void *receive,
                                     int64_t count, Type type,
                                     const Site &site) {
  Call call;
  call.kind = Kind::kAllGather;
  call.type = type;
  call.send = send;
  call.receive = receive;
  call.count = count;
  call.site = site;
  return run(call);
}

absl::Status Communicator::allReduce(const void *send, void *receive,
                                     int64_t count, Type type,
                                     const Reduce &reduce, const Site &site) {
  Call call;
  call.kind = Kind::kAllReduce;
  call.type = type;
  call.reduction = reduce.reduction;
  call.wire = reduce.wire.value_or(type);
  call.accumulate = accumulateOf(type, reduce);
  call.send = send;
  call.receive = receive;
  call.count = count;
  call.site = site;
  return run(call);
}

absl::Status Communicator::reduceScatter(const void *send, void *receive,
                                         int64_t count, Type type,
                                         const Reduce &reduce,
                                         const Site &site) {
  Call call;
  call.kind = Kind::kReduceScatter;
  call.type = type;
  call.reduction = reduce.reduction;
  call.wire = reduce.wire.value_or(type);
  call.accumulate = accumulateOf(type, reduce);
  call.send = send;
  call.receive = receive;
  call.count = count;
  call.site = site;
  return run(call);
}

absl::Status Communicator::allToAll(const void *send, void *receive,
                                    int64_t count, Type type,
                                    const Site &site) {
  Call call;
  call.kind = Kind::kAllToAll;
  call.type = type;
  call.send = send;
  call.receive = receive;
  call.count = count;
  call.site = site;
  return run(call);
}

absl::Status Communicator::shift(const void *send, void *receive, int64_t count,
                                 Type type, int offset, bool wrap,
                                 const Site &site) {
  Call call;
  call.kind = Kind::kShift;
  call.type = type;
  call.send = send;
  call.receive = receive;
  call.count = count;
  call.root = offset;
  call.wrap = wrap;
  call.site = site;
  return run(call);
}

absl::Status Communicator::sendReceive(int to, const void *send,
                                       int64_t sendCount, int from,
                                       void *receive, int64_t receiveCount,
                                       Type type, const Site &site) {
  Call call;
  call.kind = Kind::kSendReceive;
  call.type = type;
  call.send = send;
  call.receive = receive;
  call.count = sendCount;
  call.receiveCount = receiveCount;
  call.to = to;
  call.from = from;
  call.site = site;
  return run(call);
}

absl::Status Communicator::broadcast(void *data, int64_t count, Type type,
                                     int root, const Site &site) {
  Call call;
  call.kind = Kind::kBroadcast;
  call.type = type;
  call.send = data;
  call.receive = data;
  call.count = count;
  call.root = root;
  call.site = site;
  return run(call);
}

absl::Status Communicator::barrier(const Site &site) {
  Call call;
  call.kind = Kind::kBarrier;
  call.site = site;
  return run(call);
}

absl::Status Communicator::run(const Call &call) {
  absl::Status status = check(call);
  if (!status.ok())
    return absl::Status(status.code(),
                        absl::StrCat(describe(call), " over '", title,
                                     "': ", status.message()));
  return execute(call);
}

absl::Status Communicator::check(const Call &call) const {
  const int64_t n = size(), width = bytesOf(call.type);
  if (width == 0 || call.kind > Kind::kBarrier)
    return absl::InvalidArgumentError(
        "kind or type is not one of comm/types.h");
  for (int64_t count : {call.count, call.receiveCount})
    if (count < 0 || count > kMaxBytes / width / n)
      return absl::InvalidArgumentError(absl::StrCat(
          "the count is ", count, "; expected 0 to ", kMaxBytes / width / n));
  auto isRank = [&](int rank) { return rank >= 0 && rank < n; };
  int64_t sendBytes = call.count * width, receiveBytes = call.count * width;
  int64_t mine = self * call.count * width;
  bool inPlace = call.send == call.receive;
  switch (call.kind) {
  case Kind::kAllGather:
    receiveBytes *= n;
    inPlace = call.send == static_cast<char *>(call.receive) + mine;
    break;
  case Kind::kReduceScatter:
    sendBytes *= n;
    inPlace = static_cast<const char *>(call.send) + mine == call.receive;
    [[fallthrough]];
  case Kind::kAllReduce: {
    absl::StatusOr<Reducer> reducer =
        Reducer::make(call.type, call.wire, call.accumulate, call.reduction);
    QWEN35_RETURN_IF_ERROR(reducer.status());
    break;
  }
  case Kind::kAllToAll:
    sendBytes *= n;
    receiveBytes *= n;
    inPlace = false;
    break;
  case Kind::kShift:
    if (call.root <= -n || call.root >= n || call.root == 0)
      return absl::InvalidArgumentError(
          absl::StrCat("the offset is ", call.root, "; expected 1 to ", n - 1,
                       " in either direction"));
    inPlace = false;
    break;
  case Kind::kSendReceive:
    if ((call.to != -1 && !isRank(call.to)) ||
        (call.from != -1 && !isRank(call.from)) ||
        (call.to == self) != (call.from == self))
      return absl::InvalidArgumentError(
          absl::StrCat("sends to ", call.to, " and receives from ", call.from,
                       "; expected ranks from 0 to ", n - 1,
                       " or -1, and this rank in both or in neither"));
    if (call.to == self && call.count != call.receiveCount)
      return absl::InvalidArgumentError(
          absl::StrCat("sends ", call.count,
                       " elements to itself and receives ", call.receiveCount));
    sendBytes = call.to == -1 ? 0 : sendBytes;
    receiveBytes = call.from == -1 ? 0 : call.receiveCount * width;
    inPlace = false;
    break;
  case Kind::kBroadcast:
    if (!isRank(call.root))
      return absl::InvalidArgumentError(
          absl::StrCat("the root is ", call.root, "; expected 0 to ", n - 1));
    break;
  default:
    sendBytes = receiveBytes = 0;
  }
  if ((sendBytes > 0 && !call.send) || (receiveBytes > 0 && !call.receive))
    return absl::InvalidArgumentError("a buffer is null");
  Range send{"send", static_cast<const char *>(call.send), sendBytes};
  Range receive{"receive", static_cast<const char *>(call.receive),
                receiveBytes};
  if (!inPlace && overlaps(send, receive))
    return absl::InvalidArgumentError(
        absl::StrCat("send (", sendBytes, " bytes) and receive (", receiveBytes,
                     " bytes) overlap, ", receive.begin - send.begin,
                     " bytes apart, and not in a way that works in place"));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int>>
groupOf(int rank, int ranks, const std::string &name,
        const std::vector<std::vector<int>> &groups) {
  std::vector<int> seen(static_cast<size_t>(ranks), -1), mine;
  for (size_t g = 0; g < groups.size(); ++g) {
    if (groups[g].empty())
      return absl::InvalidArgumentError(
          absl::StrCat("group ", g, " of communicator '", name, "' is empty"));
    for (int member : groups[g]) {
      if (member < 0 || member >= ranks)
        return absl::InvalidArgumentError(
            absl::StrCat("group ", g, " of communicator '", name, "' has rank ",
                         member, "; the world has ranks 0 to ", ranks - 1));
      int &group = seen[static_cast<size_t>(member)];
      if (group != -1)
        return absl::InvalidArgumentError(
            absl::StrCat("communicator '", name, "' has rank ", member,
                         " in groups ", group, " and ", g, "; expected once"));
      group = static_cast<int>(g);
      if (member == rank)
        mine = groups[g];
    }
  }
  return mine;
}

std::string describe(const Call &call) {
  std::string text = nameOf(call.kind);
  if (!call.site.label.empty())
    absl::StrAppend(&text, " '", call.site.label, "'");
  if (call.kind == Kind::kBarrier || call.kind >= Kind::kSplit)
    return text;
  absl::StrAppend(&text, " of ", call.count, " ", nameOf(call.type));
  bool reduces =
      call.kind == Kind::kAllReduce || call.kind == Kind::kReduceScatter;
  if (reduces && call.reduction != Reduction::kSum)
    absl::StrAppend(&text, ", ", nameOf(call.reduction));
  if (reduces && call.wire != call.type)
    absl::StrAppend(&text, " (wire ", nameOf(call.wire), ")");
  if (call.kind == Kind::kBroadcast)
    absl::StrAppend(&text, " from ", call.root);
  if (call.kind == Kind::kShift)
    absl::StrAppend(&text, " by ", call.root);
  return text;
}

} // namespace qwen35::comm
