#include "runtime/nccl/nccl_world.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "runtime/bundle/quoted.h"
#include "runtime/bundle/status_macros.h"
#include "runtime/comm/progress.h"
#include "runtime/comm/transport.h"
#include "runtime/cuda/memory.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

namespace qwen35::nccl {
namespace {

using comm::Breadcrumb;
using comm::Call;
using comm::Clock;
using comm::Kind;
using comm::Type;

constexpr uint32_t kSlots = 1 << 16; // collectives of a captured plan
constexpr double kAbortSeconds = 5;  // for ncclCommAbort to return

double since(Clock::time_point then) {
  return std::chrono::duration<double>(Clock::now() - then).count();
}

int typeOf(Type type) {
  switch (type) {
  case Type::kF32:
    return kFloat32;
  case Type::kBf16:
    return kBfloat16;
  case Type::kF64:
    return kFloat64;
  case Type::kI32:
    return kInt32;
  case Type::kI64:
    return kInt64;
  case Type::kByte:
    return kUint8;
  }
  return -1;
}

int reductionOf(comm::Reduction reduction) {
  return reduction == comm::Reduction::kSum   ? kSum
         : reduction == comm::Reduction::kMax ? kMax
                                              : kMin;
}

/// What the communicators of a world share with its watchdog.
class State : public std::enable_shared_from_this<State> {
public:
  State(comm::World &host, const Nccl &nccl, const cuda::Driver &driver,
        const NcclOptions &options)
      : host(host), nccl(nccl), driver(driver), options(options) {}

  absl::Status allocate() {
    const uint64_t bytes = (2 * kSlots + 1) * sizeof(uint32_t);
    cuda::Memory values;
    QWEN35_RETURN_IF_ERROR(
        values.allocateHost(driver, bytes, "numbers of collectives"));
    for (uint32_t i = 0; i <= 2 * kSlots; ++i)
      std::memcpy(values.host() + i * sizeof i, &i, sizeof i);
    QWEN35_RETURN_IF_ERROR(
        table.allocateDevice(driver, bytes, "numbers of collectives"));
    QWEN35_RETURN_IF_ERROR(seen.allocateHost(driver, 64, "breadcrumbs"));
    std::memset(seen.host(), 0, 64);
    QWEN35_RETURN_IF_ERROR(
        scratch.allocateDevice(driver, 256, "barriers of NCCL"));
    QWEN35_RETURN_IF_ERROR(
        driver.check(driver.memcpyHtoDAsync(table.device(), values.host(),
                                            bytes, options.stream),
                     "cuMemcpyHtoDAsync of numbers of collectives"));
    return driver.check(driver.streamSynchronize(options.stream),
                        "cuStreamSynchronize");
  }

  void startWatch() {
    watcher = std::thread([this] { watch(); });
  }
  void stopWatch() {
    {
      std::lock_guard lock(mutex);
      stopping = true;
    }
    wake.notify_all();
    if (watcher.joinable())
      watcher.join();
  }

  /// Runs a call that may block for ever beside this thread; ends with the
  /// call, or when the world fails. `function` may outlive the wait: it owns
  /// what it uses.
  absl::Status beside(const Breadcrumb &where, const std::string &name,
                      std::function<Result()> function) {
    struct Shared {
      std::mutex mutex;
      std::condition_variable changed;
      bool done = false;
      Result result = kSuccess;
      absl::Status status;
    };
    QWEN35_RETURN_IF_ERROR(host.lastError());
    auto shared = std::make_shared<Shared>();
    enterHost(where);
    std::thread thread([shared, function, use = options.use] {
      absl::Status status = use ? use() : absl::OkStatus();
      Result result = status.ok() ? function() : kSuccess;
      std::lock_guard lock(shared->mutex);
      shared->status = status;
      shared->result = result;
      shared->done = true;
      shared->changed.notify_all();
    });
    std::unique_lock lock(shared->mutex);
    while (!shared->done) {
      shared->changed.wait_for(lock, std::chrono::milliseconds(50));
      if (!shared->done && !host.lastError().ok()) {
        thread.detach();
        return broken();
      }
    }
    lock.unlock();
    thread.join();
    absl::Status status = shared->status;
    if (status.ok())
      status = nccl.check(shared->result, name);
    if (!status.ok())
      return fails(status, where);
    leaveHost();
    return absl::OkStatus();
  }

  /// This rank's NCCL or driver reports an error: the end of the world.
  absl::Status fails(const absl::Status &status, const Breadcrumb &where) {
    absl::Status cause = host.lastError();
    if (cause.ok())
      cause = host.fail(absl::UnavailableError(
          absl::StrCat("rank ", host.rank(), ": ", status.message())));
    abortAll();
    return comm::withPlace(cause, host.rank(), where);
  }
  absl::Status broken() {
    abortAll();
    std::lock_guard lock(mutex);
    return comm::withPlace(host.lastError(), host.rank(),
                           inHost ? *inHost : Breadcrumb());
  }

  void enterHost(Breadcrumb where) {
    std::lock_guard lock(mutex);
    inHost = std::move(where);
    hostSince = Clock::now();
  }
  void leaveHost() {
    std::lock_guard lock(mutex);
    inHost.reset();
  }

  void add(Comm comm, const std::string &name) {
    std::lock_guard lock(mutex);
    comms.push_back({comm, name});
  }

  /// The next number, and its slot of breadcrumbs.
  Breadcrumb begin(const Call &call, const comm::Communicator &communicator,
                   uint32_t &slot) {
    std::lock_guard lock(mutex);
    Breadcrumb crumb;
    crumb.sequence = call.site.sequence >= 0 ? call.site.sequence : next;
    slot = static_cast<uint32_t>(next++ % kSlots);
    crumb.what = describe(call);
    crumb.communicator = communicator.name();
    crumb.inside = true;
    for (int member : communicator.members())
      if (member != host.rank())
        crumb.waitingFor.push_back(member);
    if (slots.size() <= slot)
      slots.resize(slot + 1);
    slots[slot] = crumb;
    return crumb;
  }

  absl::Status drop(uint32_t value) {
    return driver.check(driver.memcpyDtoHAsync(
                            seen.host(), table.device() + value * sizeof value,
                            sizeof value, options.stream),
                        "cuMemcpyDtoHAsync of a breadcrumb");
  }

  void abortAll() {
    struct Abort {
      std::mutex mutex;
      std::condition_variable changed;
      size_t left = 0;
    };
    std::vector<Owned> all;
    {
      std::lock_guard lock(mutex);
      aborted = true;
      all.swap(comms);
    }
    if (all.empty())
      return;
    // Aborting them one after another may block: each waits for kernels of
    // the others.
    auto abort = std::make_shared<Abort>();
    abort->left = all.size();
    for (const Owned &one : all)
      std::thread([abort, comm = one.comm, use = options.use,
                   call = nccl.commAbort] {
        if (use)
          (void)use();
        call(comm);
        std::lock_guard lock(abort->mutex);
        --abort->left;
        abort->changed.notify_all();
      }).detach();
    std::unique_lock lock(abort->mutex);
    abort->changed.wait_for(lock, std::chrono::duration<double>(kAbortSeconds),
                            [&] { return abort->left == 0; });
  }
  bool isAborted() {
    std::lock_guard lock(mutex);
    return aborted;
  }

  absl::Status destroyAll() {
    while (true) {
      Owned last;
      {
        std::lock_guard lock(mutex);
        if (comms.empty())
          return absl::OkStatus();
        last = comms.back();
        comms.pop_back();
      }
      Breadcrumb where;
      where.what = absl::StrCat("ncclCommDestroy of '", last.name, "'");
      where.communicator = last.name;
      where.sequence = next;
      where.inside = true;
      QWEN35_RETURN_IF_ERROR(beside(
          where, "ncclCommDestroy",
          [call = nccl.commDestroy, comm = last.comm] { return call(comm); }));
    }
  }

  comm::World &host;
  const Nccl &nccl;
  const cuda::Driver &driver;
  const NcclOptions options;
  cuda::Memory scratch;

private:
  struct Owned {
    Comm comm = nullptr;
    std::string name;
  };

  /// What the GPU was last seen doing.
  Breadcrumb device(uint32_t value, Clock::time_point changed) {
    std::lock_guard lock(mutex);
    Breadcrumb crumb;
    if (inHost) {
      crumb = *inHost;
      crumb.seconds = since(hostSince);
      return crumb;
    }
    if (value == 0 || (value - 1) / 2 >= slots.size())
      return crumb;
    crumb = slots[(value - 1) / 2];
    crumb.inside = value % 2 == 1;
    crumb.seconds = since(changed);
    if (!crumb.inside)
      crumb.waitingFor.clear();
    return crumb;
  }

  void watch() {
    uint32_t last = 0, noted = 0;
    Clock::time_point changed = Clock::now();
    while (true) {
      {
        std::unique_lock lock(mutex);
        wake.wait_for(lock, std::chrono::duration<double>(options.pollSeconds),
                      [&] { return stopping; });
        if (stopping)
          return;
      }
      if (!host.lastError().ok()) {
        abortAll();
        return;
      }
      uint32_t value;
      std::memcpy(&value, const_cast<const uint8_t *>(seen.host()),
                  sizeof value);
      if (value != last) {
        last = value;
        changed = Clock::now();
      }
      Breadcrumb crumb = device(value, changed);
      // What the GPU has left long ago is no news: the host may be elsewhere.
      if (crumb.inside || value != noted)
        host.note(crumb);
      noted = value;
      if (absl::Status status = asyncError(); !status.ok()) {
        (void)fails(status, crumb);
        return;
      }
      if (crumb.inside && crumb.seconds > options.callSeconds) {
        (void)host.late(crumb);
        abortAll();
        return;
      }
    }
  }

  absl::Status asyncError() {
    std::lock_guard lock(mutex); // nobody aborts or destroys meanwhile
    for (const Owned &one : comms) {
      Result error = kSuccess;
      Result result = nccl.commGetAsyncError(one.comm, &error);
      if (result == kSuccess && error == kInProgress)
        continue;
      QWEN35_RETURN_IF_ERROR(nccl.check(
          result != kSuccess ? result : error,
          absl::StrCat("NCCL reports of communicator '", one.name, "'"),
          one.comm));
    }
    return absl::OkStatus();
  }

  cuda::Memory table, seen;
  std::thread watcher;
  std::condition_variable wake;
  std::mutex mutex;
  bool stopping = false, aborted = false;
  std::vector<Owned> comms;
  std::optional<Breadcrumb> inHost;
  Clock::time_point hostSince;
  int64_t next = 0;
  std::vector<Breadcrumb> slots;
};

/// What a rank has called on a communicator.
struct Calls {
  int64_t count = 0;
  uint64_t hash = 1469598103934665603u; // FNV-1a
  std::string last = "nothing";

  void add(const Call &call) {
    if (call.kind == Kind::kSendReceive)
      return; // not every rank takes part
    int64_t fields[] = {static_cast<int64_t>(call.kind),
                        static_cast<int64_t>(call.type),
                        static_cast<int64_t>(call.reduction),
                        call.count,
                        call.root,
                        call.wrap,
                        call.site.sequence};
    for (int64_t field : fields)
      for (int byte = 0; byte < 8; ++byte) {
        hash ^= static_cast<uint64_t>(field) >> (8 * byte) & 0xFF;
        hash *= 1099511628211u;
      }
    ++count;
    last = describe(call);
  }
};

class NcclCommunicator : public comm::Communicator {
public:
  NcclCommunicator(std::string name, int rank, std::vector<int> members,
                   Comm comm, std::shared_ptr<State> state)
      : Communicator(std::move(name), rank, std::move(members)), comm(comm),
        state(std::move(state)) {}

  Calls calls;

private:
  absl::Status execute(const Call &call) override {
    if (call.kind == Kind::kAllReduce || call.kind == Kind::kReduceScatter)
      QWEN35_RETURN_IF_ERROR(checkReduction(call));
    uint32_t slot = 0;
    Breadcrumb where = state->begin(call, *this, slot);
    if (absl::Status status = state->host.lastError(); !status.ok())
      return comm::withPlace(status, state->host.rank(), where);
    if (state->isAborted())
      return absl::AbortedError(
          absl::StrCat("the communicators of NCCL were aborted; this is rank ",
                       state->host.rank(), ", in ", where.collective()));
    state->enterHost(where);
    absl::Status status = state->drop(2 * slot + 1);
    if (status.ok())
      status = enqueue(call);
    if (status.ok())
      status = state->drop(2 * slot + 2);
    if (!status.ok())
      return state->fails(status, where);
    state->leaveHost();
    calls.add(call);
    return absl::OkStatus();
  }

  absl::Status checkReduction(const Call &call) const {
    bool adds = call.reduction == comm::Reduction::kSum;
    if (call.wire == call.type && !(adds && call.type == Type::kBf16) &&
        (call.accumulate == call.type || call.type == Type::kBf16))
      return absl::OkStatus();
    return absl::UnimplementedError(absl::StrCat(
        describe(call), " over '", name(),
        "': NCCL adds in the type that it "
        "sends and rounds after each addition; expected f32, f64, i32 or i64, "
        "sent and accumulated as they are (a plan sends bf16 by all_to_all and "
        "adds in f32)"));
  }

  absl::Status enqueue(const Call &call) {
    const Nccl &nccl = state->nccl;
    const int type = typeOf(call.type), n = size();
    const size_t count = static_cast<size_t>(call.count);
    const size_t bytes = count * static_cast<size_t>(bytesOf(call.type));
    cuda::Stream stream = state->options.stream;
    auto *send = static_cast<const char *>(call.send);
    auto *receive = static_cast<char *>(call.receive);
    auto check = [&](Result result, const char *name) {
      return nccl.check(result, name, comm);
    };
    switch (call.kind) {
    case Kind::kAllGather:
      return check(nccl.allGather(send, receive, count, type, comm, stream),
                   "ncclAllGather");
    case Kind::kAllReduce:
      return check(nccl.allReduce(send, receive, count, type,
                                  reductionOf(call.reduction), comm, stream),
                   "ncclAllReduce");
    case Kind::kReduceScatter:
      return check(nccl.reduceScatter(send, receive, count, type,
                                      reductionOf(call.reduction), comm,
                                      stream),
                   "ncclReduceScatter");
    case Kind::kBroadcast:
      return check(
          nccl.broadcast(send, receive, count, type, call.root, comm, stream),
          "ncclBroadcast");
    case Kind::kBarrier: {
      void *one = reinterpret_cast<void *>(state->scratch.device());
      return check(nccl.allReduce(one, one, 1, kInt32, kSum, comm, stream),
                   "ncclAllReduce of a barrier");
    }
    case Kind::kAllToAll:
      QWEN35_RETURN_IF_ERROR(check(nccl.groupStart(), "ncclGroupStart"));
      for (size_t r = 0; r < static_cast<size_t>(n); ++r) {
        exchange(send + r * bytes, static_cast<int>(r), receive + r * bytes,
                 static_cast<int>(r), count, count, type);
      }
      return endGroup();
    case Kind::kShift: {
      int to = rank() + call.root, from = rank() - call.root;
      if (call.wrap) {
        to = (to + n) % n;
        from = (from + n) % n;
      }
      if (from < 0 || from >= n) {
        if (bytes > 0)
          QWEN35_RETURN_IF_ERROR(state->driver.check(
              state->driver.memsetD8Async(
                  reinterpret_cast<cuda::DevicePtr>(receive), 0, bytes, stream),
              "cuMemsetD8Async of a shift's border"));
        from = -1;
      }
      QWEN35_RETURN_IF_ERROR(check(nccl.groupStart(), "ncclGroupStart"));
      exchange(send, to < n ? to : -1, receive, from, count, count, type);
      return endGroup();
    }
    case Kind::kSendReceive:
      QWEN35_RETURN_IF_ERROR(check(nccl.groupStart(), "ncclGroupStart"));
      exchange(send, call.to, receive, call.from, count,
               static_cast<size_t>(call.receiveCount), type);
      return endGroup();
    default:
      return absl::InvalidArgumentError(
          absl::StrCat(nameOf(call.kind), " is not a collective of NCCL"));
    }
  }

  void exchange(const char *send, int to, char *receive, int from,
                size_t sendCount, size_t receiveCount, int type) {
    cuda::Stream stream = state->options.stream;
    if (to >= 0 && first == kSuccess)
      first = state->nccl.send(send, sendCount, type, to, comm, stream);
    if (from >= 0 && first == kSuccess)
      first =
          state->nccl.receive(receive, receiveCount, type, from, comm, stream);
  }
  absl::Status endGroup() {
    Result inside = std::exchange(first, kSuccess);
    Result end = state->nccl.groupEnd();
    QWEN35_RETURN_IF_ERROR(
        state->nccl.check(inside, "ncclSend or ncclRecv", comm));
    return state->nccl.check(end, "ncclGroupEnd", comm);
  }

  Comm comm;
  std::shared_ptr<State> state;
  Result first = kSuccess; // error in a group
};

class GpuWorld : public NcclWorld {
public:
  GpuWorld(comm::World &host, std::shared_ptr<State> state)
      : host(host), state(std::move(state)) {}

  ~GpuWorld() override {
    if (!finished)
      state->abortAll();
    state->stopWatch();
  }

  absl::Status init() {
    QWEN35_RETURN_IF_ERROR(state->allocate());
    absl::StatusOr<std::vector<std::string>> devices =
        host.exchange("GPU", state->options.device);
    QWEN35_RETURN_IF_ERROR(devices.status());
    std::map<std::string, int> owners;
    for (int r = 0; r < host.size(); ++r) {
      const std::string &device = (*devices)[static_cast<size_t>(r)];
      if (device.empty())
        continue;
      auto [it, fresh] = owners.emplace(device, r);
      if (!fresh)
        return host.fail(absl::FailedPreconditionError(absl::StrCat(
            "ranks ", it->second, " and ", r, " are both on ", device,
            "; NCCL needs a GPU for each rank (virtual ranks share one)")));
    }
    std::string id;
    if (host.rank() == 0) {
      UniqueId made;
      if (absl::Status status = state->nccl.check(
              state->nccl.getUniqueId(&made), "ncclGetUniqueId");
          !status.ok())
        return state->fails(status, Breadcrumb());
      id.assign(made.internal, sizeof made.internal);
    }
    absl::StatusOr<std::vector<std::string>> ids = host.exchange("NCCL id", id);
    QWEN35_RETURN_IF_ERROR(ids.status());
    UniqueId unique;
    if ((*ids)[0].size() != sizeof unique.internal)
      return host.fail(absl::InternalError(
          absl::StrCat("rank 0 sent an id of ", (*ids)[0].size(), " bytes")));
    std::memcpy(unique.internal, (*ids)[0].data(), sizeof unique.internal);

    state->startWatch();
    std::weak_ptr<State> weak = state;
    host.onFailure([weak](const absl::Status &) {
      if (std::shared_ptr<State> alive = weak.lock())
        alive->abortAll();
    });
    std::vector<int> members;
    for (int r = 0; r < host.size(); ++r)
      members.push_back(r);
    auto comm = std::make_shared<Comm>();
    QWEN35_RETURN_IF_ERROR(state->beside(
        place("ncclCommInitRank", "world", members), "ncclCommInitRank",
        [call = state->nccl.commInitRank, comm, unique, ranks = host.size(),
         rank = host.rank()] {
          return call(comm.get(), ranks, unique, rank);
        }));
    state->add(*comm, "world");
    world = std::make_shared<NcclCommunicator>("world", host.rank(), members,
                                               *comm, state);
    communicators.push_back(world);
    root = *comm;
    return absl::OkStatus();
  }

  int rank() const override { return host.rank(); }
  int size() const override { return host.size(); }
  comm::Communicator &all() override { return *world; }

  absl::StatusOr<std::shared_ptr<comm::Communicator>>
  split(const std::string &name,
        const std::vector<std::vector<int>> &groups) override {
    // The host's split checks the list and that all ranks give the same.
    absl::StatusOr<std::shared_ptr<comm::Communicator>> twin =
        host.split(name, groups);
    QWEN35_RETURN_IF_ERROR(twin.status());
    int color = kSplitNoColor, key = 0;
    for (size_t g = 0; g < groups.size(); ++g)
      for (size_t i = 0; i < groups[g].size(); ++i)
        if (groups[g][i] == host.rank()) {
          color = static_cast<int>(g);
          key = static_cast<int>(i);
        }
    auto comm = std::make_shared<Comm>(nullptr);
    QWEN35_RETURN_IF_ERROR(state->beside(
        place("ncclCommSplit", name, world->members()), "ncclCommSplit",
        [call = state->nccl.commSplit, comm, root = root, color, key] {
          return call(root, color, key, comm.get(), nullptr);
        }));
    if (!*twin) {
      communicators.push_back(nullptr);
      return std::shared_ptr<comm::Communicator>();
    }
    state->add(*comm, name);
    communicators.push_back(std::make_shared<NcclCommunicator>(
        name, (*twin)->rank(), (*twin)->members(), *comm, state));
    return std::shared_ptr<comm::Communicator>(communicators.back());
  }

  absl::StatusOr<std::vector<std::string>>
  exchange(absl::string_view what, const std::string &mine) override {
    return host.exchange(what, mine);
  }
  void abort(const absl::Status &why) override {
    host.abort(why);
    state->abortAll();
  }
  absl::Status fail(const absl::Status &cause) override {
    return host.fail(cause);
  }
  absl::Status late(const Breadcrumb &where) override {
    return host.late(where);
  }
  void note(const Breadcrumb &where) override { host.note(where); }
  void onFailure(std::function<void(const absl::Status &)> action) override {
    host.onFailure(std::move(action));
  }
  absl::Status lastError() const override { return host.lastError(); }

  absl::Status finish() override {
    QWEN35_RETURN_IF_ERROR(host.lastError());
    QWEN35_RETURN_IF_ERROR(state->destroyAll());
    finished = true;
    state->stopWatch();
    return host.finish();
  }

  absl::Status compareCalls() override {
    std::vector<std::string> lines;
    for (size_t i = 0; i < communicators.size(); ++i)
      if (communicators[i])
        lines.push_back(absl::StrCat(i, "\t", communicators[i]->calls.count,
                                     "\t", communicators[i]->calls.hash, "\t",
                                     communicators[i]->calls.last));
    absl::StatusOr<std::vector<std::string>> texts =
        host.exchange("calls of NCCL", absl::StrJoin(lines, "\n"));
    QWEN35_RETURN_IF_ERROR(texts.status());
    auto lineOf = [&](int rank, size_t number) {
      std::vector<std::string> all =
          absl::StrSplit((*texts)[static_cast<size_t>(rank)], '\n');
      for (const std::string &line : all) {
        std::vector<std::string> fields = absl::StrSplit(line, '\t');
        if (fields.size() == 4 && fields[0] == std::to_string(number))
          return fields;
      }
      return std::vector<std::string>{"", "no", "", "nothing"};
    };
    for (size_t i = 0; i < communicators.size(); ++i) {
      if (!communicators[i])
        continue;
      int first = communicators[i]->members()[0];
      std::vector<std::string> a = lineOf(first, i);
      for (int member : communicators[i]->members())
        if (std::vector<std::string> b = lineOf(member, i); a != b)
          return host.fail(absl::FailedPreconditionError(absl::StrCat(
              "ranks ", first, " and ", member,
              " have enqueued different collectives on communicator ",
              qwen35::quoted(communicators[i]->name()), ": ", a[1],
              " calls, the last ", a[3], ", and ", b[1], " calls, the last ",
              b[3])));
    }
    return absl::OkStatus();
  }
  void abortCommunicators() override { state->abortAll(); }

private:
  Breadcrumb place(const char *call, const std::string &name,
                   const std::vector<int> &members) {
    Breadcrumb where;
    where.sequence = static_cast<int64_t>(communicators.size());
    where.what = call;
    where.communicator = name;
    where.inside = true;
    for (int member : members)
      if (member != host.rank())
        where.waitingFor.push_back(member);
    return where;
  }

  comm::World &host;
  std::shared_ptr<State> state;
  std::shared_ptr<NcclCommunicator> world;
  std::vector<std::shared_ptr<NcclCommunicator>>
      communicators; // by number of split
  Comm root = nullptr;
  bool finished = false;
};

} // namespace

absl::StatusOr<std::unique_ptr<NcclWorld>>
NcclWorld::make(comm::World &host, const cuda::Driver &driver,
                const NcclOptions &options) {
  absl::StatusOr<const Nccl *> nccl = Nccl::load();
  QWEN35_RETURN_IF_ERROR(nccl.status());
  auto state = std::make_shared<State>(host, **nccl, driver, options);
  auto world = std::make_unique<GpuWorld>(host, state);
  QWEN35_RETURN_IF_ERROR(world->init());
  return std::unique_ptr<NcclWorld>(std::move(world));
}

} // namespace qwen35::nccl
