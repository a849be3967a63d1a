// NCCL that records, for tests of the runtime's calls without GPUs:
// QWEN35_LIBNCCL names libfake_nccl.so, beside libfake_cuda.so.
//
// Every call of every rank becomes a line (ranks may be threads of one process
// or processes):
//
//     0 c1 ncclAllReduce count=1024 type=f32 op=sum stream=s1
//
// rank of the world; communicator of that rank, c0 the world and c1, c2 as they
// were split; function; what it was given. A send or receive in a group ends in
// "group". Nothing is sent: only communicators of one rank move data, in stream
// order through the fake driver.
//
// Refused, as ncclInvalidUsage: communicators that were aborted or destroyed;
// groups that are not balanced; one communicator on two streams.
//
// QWEN35_FAKE_NCCL, or qwen35FakeNcclReset in the process, changes it, as
// "key=value,...":
//   version=22809
//   record=FILE          lines go to FILE.<rank> too
//   rank=1               the rank that the faults below are for; else all
//   fail=ncclAllReduce:3:6   the third call of that function returns 6
//   hang=ncclAllReduce:2     the second call does not return before its
//                            communicator is aborted
//   reach=ncclAllReduce:1    when the first call returns, the stream has come
//                            as far as it, as on a GPU that then stands still
//   async=2:6            after two collectives a communicator reports 6
//   abort=together       ncclCommAbort returns only when all communicators of
//                        the rank are being aborted
//   abort=never  ncclCommAbort does not return
//   leaks=1              communicators that are left at exit: on stderr

#include "runtime/nccl/nccl_api.h"

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#define QWEN35_FAKE_EXPORT extern "C" __attribute__((visibility("default")))

using namespace qwen35::nccl;
using qwen35::cuda::Stream;

namespace qwen35::nccl {

struct CommOpaque {
  int worldRank, number, worldSize;
  Stream stream = nullptr;
  int collectives = 0;
  bool aborting = false, gone = false;
};

} // namespace qwen35::nccl

namespace {

struct Fault {
  std::string function;
  int call = 0, result = 0;
};

struct State {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::string> values;
  std::vector<Fault> failures, hangs, reaches;
  std::map<std::string, int> calls;
  std::vector<std::string> record;
  std::map<int, std::map<Stream, int>> streams; // by rank
  std::map<int, int> communicators;             // made so far, by rank
  std::vector<Comm> all;

  void configure(const char *text) {
    values.clear();
    failures.clear();
    hangs.clear();
    reaches.clear();
    std::string rest = text ? text : "";
    for (size_t at = 0; at < rest.size();) {
      size_t end = std::min(rest.find(',', at), rest.size());
      std::string part = rest.substr(at, end - at);
      at = end + 1;
      size_t equals = part.find('=');
      if (equals == std::string::npos) {
        std::fprintf(stderr, "fake nccl: \"%s\" is not key=value\n",
                     part.c_str());
        std::abort();
      }
      std::string key = part.substr(0, equals), value = part.substr(equals + 1);
      char function[64] = "";
      Fault fault;
      int found = std::sscanf(value.c_str(), "%63[^:]:%d:%d", function,
                              &fault.call, &fault.result);
      fault.function = function;
      if (key == "fail" && found == 3)
        failures.push_back(fault);
      else if (key == "hang" && found == 2)
        hangs.push_back(fault);
      else if (key == "reach" && found == 2)
        reaches.push_back(fault);
      else
        values[key] = value;
    }
  }
  int number(const char *key, int otherwise) const {
    auto found = values.find(key);
    return found == values.end() ? otherwise : std::atoi(found->second.c_str());
  }
};

void reportLeaks();

State &state() {
  static State *state = [] { // lives as long as threads that hang in it
    auto *made = new State;
    made->configure(std::getenv("QWEN35_FAKE_NCCL"));
    std::atexit(reportLeaks);
    return made;
  }();
  return *state;
}

void reportLeaks() {
  std::lock_guard lock(state().mutex);
  if (!state().number("leaks", 0))
    return;
  for (Comm comm : state().all)
    if (!comm->gone)
      std::fprintf(stderr,
                   "fake nccl: not given back: communicator c%d of rank %d\n",
                   comm->number, comm->worldRank);
}

thread_local int groups = 0;

const char *typeName(int type) {
  switch (type) {
  case kUint8:
    return "u8";
  case kInt32:
    return "i32";
  case kInt64:
    return "i64";
  case kFloat32:
    return "f32";
  case kFloat64:
    return "f64";
  case kBfloat16:
    return "bf16";
  }
  return "?";
}

size_t bytesOf(int type) {
  return type == kUint8                       ? 1
         : type == kBfloat16                  ? 2
         : type == kInt32 || type == kFloat32 ? 4
                                              : 8;
}

const char *reductionName(int reduction) {
  return reduction == kSum   ? "sum"
         : reduction == kMax ? "max"
         : reduction == kMin ? "min"
                             : "?";
}

void note(int rank, int number, const std::string &text) {
  std::string line =
      std::to_string(rank) + " c" + std::to_string(number) + " " + text;
  state().record.push_back(line);
  if (auto file = state().values.find("record"); file != state().values.end())
    if (FILE *out = std::fopen(
            (file->second + "." + std::to_string(rank)).c_str(), "a")) {
      std::fprintf(out, "%s\n", line.c_str());
      std::fclose(out);
    }
}

/// Faults of this call by `rank`; a hang ends with `comm`, or never.
Result injected(std::unique_lock<std::mutex> &lock, const char *function,
                int rank, Comm comm) {
  State &s = state();
  if (int only = s.number("rank", -1); only >= 0 && only != rank)
    return kSuccess;
  int call = ++s.calls[function];
  for (const Fault &fault : s.hangs)
    if (fault.function == function && fault.call == call) {
      s.changed.wait(lock, [&] { return comm && comm->aborting; });
      return kRemoteError;
    }
  for (const Fault &fault : s.failures)
    if (fault.function == function && fault.call == call)
      return fault.result;
  return kSuccess;
}

/// Device to device, in the order of the stream.
Result copy(void *to, const void *from, size_t bytes, Stream stream) {
  using Copy =
      int (*)(qwen35::cuda::DevicePtr, qwen35::cuda::DevicePtr, size_t, Stream);
  static Copy function = [] {
    const char *path = std::getenv("QWEN35_LIBCUDA");
    void *library = path ? ::dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
    return library ? reinterpret_cast<Copy>(
                         ::dlsym(library, "cuMemcpyDtoDAsync_v2"))
                   : nullptr;
  }();
  if (!function || to == from || bytes == 0)
    return kSuccess;
  return function(reinterpret_cast<qwen35::cuda::DevicePtr>(to),
                  reinterpret_cast<qwen35::cuda::DevicePtr>(from), bytes,
                  stream) == 0
             ? kSuccess
             : kUnhandledCudaError;
}

/// Does what is in the stream so far.
Result reach(Stream stream) {
  using qwen35::cuda::Event;
  const char *path = std::getenv("QWEN35_LIBCUDA");
  void *library = path ? ::dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (!library)
    return kUnhandledCudaError;
  auto create = reinterpret_cast<int (*)(Event *, unsigned)>(
      ::dlsym(library, "cuEventCreate"));
  auto record = reinterpret_cast<int (*)(Event, Stream)>(
      ::dlsym(library, "cuEventRecord"));
  auto wait =
      reinterpret_cast<int (*)(Event)>(::dlsym(library, "cuEventSynchronize"));
  auto destroy =
      reinterpret_cast<int (*)(Event)>(::dlsym(library, "cuEventDestroy_v2"));
  Event event = nullptr;
  bool done = create(&event, qwen35::cuda::kEventDisableTiming) == 0 &&
              record(event, stream) == 0 && wait(event) == 0 &&
              destroy(event) == 0;
  return done ? kSuccess : kUnhandledCudaError;
}

struct Half { // of a send to oneself
  const void *send;
  size_t bytes;
};
thread_local std::vector<Half> toMyself;

Result collective(const char *function, Comm comm, size_t count, int type,
                  const std::string &more, Stream stream, const void *send,
                  void *receive) {
  std::unique_lock lock(state().mutex);
  if (!comm || comm->gone || comm->aborting)
    return kInvalidUsage;
  std::map<Stream, int> &streams = state().streams[comm->worldRank];
  int number = streams.try_emplace(stream, static_cast<int>(streams.size()) + 1)
                   .first->second;
  note(comm->worldRank, comm->number,
       std::string(function) + " count=" + std::to_string(count) +
           " type=" + typeName(type) + more + " stream=s" +
           std::to_string(number) + (groups > 0 ? " group" : ""));
  if (Result wanted = injected(lock, function, comm->worldRank, comm);
      wanted != kSuccess)
    return wanted;
  if (comm->gone || comm->aborting)
    return kInvalidUsage;
  if (comm->stream && comm->stream != stream)
    return kInvalidUsage;
  comm->stream = stream;
  ++comm->collectives;
  int call = state().calls[function];
  bool reaches = std::any_of(
      state().reaches.begin(), state().reaches.end(), [&](const Fault &fault) {
        return fault.function == function && fault.call == call;
      });
  if (int only = state().number("rank", -1);
      only >= 0 && only != comm->worldRank)
    reaches = false;
  lock.unlock();
  if (reaches)
    return reach(stream);
  size_t bytes = count * bytesOf(type);
  if (comm->worldSize != 1)
    return kSuccess;
  if (send && receive)
    return copy(receive, send, bytes, stream);
  if (send) {
    toMyself.push_back({send, bytes});
    return kSuccess;
  }
  if (toMyself.empty() || toMyself.front().bytes != bytes)
    return kInvalidUsage;
  const void *from = toMyself.front().send;
  toMyself.erase(toMyself.begin());
  return copy(receive, from, bytes, stream);
}

Comm makeComm(int worldRank, int worldSize) {
  Comm comm = new CommOpaque;
  comm->worldRank = worldRank;
  comm->worldSize = worldSize;
  comm->number = state().communicators[worldRank]++;
  state().all.push_back(comm);
  return comm;
}

} // namespace

QWEN35_FAKE_EXPORT void qwen35FakeNcclReset(const char *settings) {
  std::lock_guard lock(state().mutex);
  state().configure(settings);
  state().calls.clear();
  state().record.clear();
  state().streams.clear();
  state().communicators.clear();
}

/// Lines since the reset, of one rank; valid until the next call.
QWEN35_FAKE_EXPORT const char *qwen35FakeNcclRecord(int rank) {
  static std::string *text = new std::string;
  std::lock_guard lock(state().mutex);
  text->clear();
  std::string start = std::to_string(rank) + " ";
  for (const std::string &line : state().record)
    if (line.compare(0, start.size(), start) == 0)
      *text += line + "\n";
  return text->c_str();
}

/// Communicators of all ranks that are neither destroyed nor aborted.
QWEN35_FAKE_EXPORT int qwen35FakeNcclLeft() {
  std::lock_guard lock(state().mutex);
  return static_cast<int>(std::count_if(state().all.begin(), state().all.end(),
                                        [](Comm comm) { return !comm->gone; }));
}

QWEN35_FAKE_EXPORT Result ncclGetVersion(int *version) {
  std::lock_guard lock(state().mutex);
  *version = state().number("version", 22809);
  return kSuccess;
}

QWEN35_FAKE_EXPORT const char *ncclGetErrorString(Result result) {
  constexpr const char *kTexts[] = {
      "no error",
      "unhandled cuda error",
      "unhandled system error",
      "internal error",
      "invalid argument",
      "invalid usage",
      "remote process exited or there was a network error",
      "NCCL operation in progress"};
  return result >= 0 && result <= 7 ? kTexts[result] : "unknown result code";
}

QWEN35_FAKE_EXPORT const char *ncclGetLastError(Comm) { return ""; }

QWEN35_FAKE_EXPORT Result ncclGetUniqueId(UniqueId *id) {
  std::unique_lock lock(state().mutex);
  if (Result wanted = injected(lock, "ncclGetUniqueId", 0, nullptr);
      wanted != kSuccess)
    return wanted;
  for (size_t i = 0; i < sizeof id->internal; ++i)
    id->internal[i] = static_cast<char>(i * 7 + 1);
  return kSuccess;
}

QWEN35_FAKE_EXPORT Result ncclCommInitRank(Comm *comm, int ranks, UniqueId id,
                                           int rank) {
  std::unique_lock lock(state().mutex);
  note(rank, 0, "ncclCommInitRank ranks=" + std::to_string(ranks));
  for (size_t i = 0; i < sizeof id.internal; ++i)
    if (id.internal[i] != static_cast<char>(i * 7 + 1))
      return kInvalidArgument; // not the id that was made
  if (Result wanted = injected(lock, "ncclCommInitRank", rank, nullptr);
      wanted != kSuccess)
    return wanted;
  *comm = makeComm(rank, ranks);
  return kSuccess;
}

QWEN35_FAKE_EXPORT Result ncclCommSplit(Comm comm, int color, int key,
                                        Comm *result, void *) {
  std::unique_lock lock(state().mutex);
  if (!comm || comm->gone || comm->aborting)
    return kInvalidUsage;
  note(comm->worldRank, comm->number,
       "ncclCommSplit color=" + std::to_string(color) +
           " key=" + std::to_string(key));
  if (Result wanted = injected(lock, "ncclCommSplit", comm->worldRank, comm);
      wanted != kSuccess)
    return wanted;
  *result = color == kSplitNoColor ? nullptr
                                   : makeComm(comm->worldRank, comm->worldSize);
  return kSuccess;
}

QWEN35_FAKE_EXPORT Result ncclCommDestroy(Comm comm) {
  std::unique_lock lock(state().mutex);
  if (!comm || comm->gone)
    return kInvalidArgument;
  note(comm->worldRank, comm->number, "ncclCommDestroy");
  if (Result wanted = injected(lock, "ncclCommDestroy", comm->worldRank, comm);
      wanted != kSuccess)
    return wanted;
  comm->gone = true;
  return kSuccess;
}

QWEN35_FAKE_EXPORT Result ncclCommAbort(Comm comm) {
  std::unique_lock lock(state().mutex);
  State &s = state();
  if (!comm || comm->gone)
    return kInvalidArgument;
  note(comm->worldRank, comm->number, "ncclCommAbort");
  comm->aborting = true;
  s.changed.notify_all();
  auto how = s.values.find("abort");
  if (how != s.values.end() && how->second == "never")
    s.changed.wait(lock, [] { return false; });
  if (how != s.values.end())
    s.changed.wait(lock, [&] {
      return std::all_of(s.all.begin(), s.all.end(), [&](Comm other) {
        return other->worldRank != comm->worldRank || other->gone ||
               other->aborting;
      });
    });
  comm->gone = true;
  s.changed.notify_all();
  return kSuccess;
}

QWEN35_FAKE_EXPORT Result ncclCommGetAsyncError(Comm comm, Result *error) {
  std::lock_guard lock(state().mutex);
  if (!comm || comm->gone)
    return kInvalidArgument;
  *error = kSuccess;
  auto found = state().values.find("async");
  int after = 0, result = 0;
  if (found != state().values.end() &&
      std::sscanf(found->second.c_str(), "%d:%d", &after, &result) == 2 &&
      comm->collectives >= after)
    if (int only = state().number("rank", -1);
        only < 0 || only == comm->worldRank)
      *error = result;
  return kSuccess;
}

QWEN35_FAKE_EXPORT Result ncclAllGather(const void *send, void *receive,
                                        size_t count, int type, Comm comm,
                                        Stream stream) {
  return collective("ncclAllGather", comm, count, type, "", stream, send,
                    receive);
}

QWEN35_FAKE_EXPORT Result ncclAllReduce(const void *send, void *receive,
                                        size_t count, int type, int reduction,
                                        Comm comm, Stream stream) {
  return collective("ncclAllReduce", comm, count, type,
                    std::string(" op=") + reductionName(reduction), stream,
                    send, receive);
}

QWEN35_FAKE_EXPORT Result ncclReduceScatter(const void *send, void *receive,
                                            size_t count, int type,
                                            int reduction, Comm comm,
                                            Stream stream) {
  return collective("ncclReduceScatter", comm, count, type,
                    std::string(" op=") + reductionName(reduction), stream,
                    send, receive);
}

QWEN35_FAKE_EXPORT Result ncclBroadcast(const void *send, void *receive,
                                        size_t count, int type, int root,
                                        Comm comm, Stream stream) {
  return collective("ncclBroadcast", comm, count, type,
                    " root=" + std::to_string(root), stream, send, receive);
}

QWEN35_FAKE_EXPORT Result ncclSend(const void *send, size_t count, int type,
                                   int peer, Comm comm, Stream stream) {
  return collective("ncclSend", comm, count, type,
                    " peer=" + std::to_string(peer), stream, send, nullptr);
}

QWEN35_FAKE_EXPORT Result ncclRecv(void *receive, size_t count, int type,
                                   int peer, Comm comm, Stream stream) {
  return collective("ncclRecv", comm, count, type,
                    " peer=" + std::to_string(peer), stream, nullptr, receive);
}

QWEN35_FAKE_EXPORT Result ncclGroupStart() {
  ++groups;
  return kSuccess;
}

QWEN35_FAKE_EXPORT Result ncclGroupEnd() {
  if (groups == 0)
    return kInvalidUsage;
  --groups;
  bool matched = toMyself.empty();
  if (groups == 0)
    toMyself.clear();
  return matched || groups > 0 ? kSuccess : kInvalidUsage;
}
