#include "runtime/comm/mpi_transport.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/bundle/status_macros.h"

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <dlfcn.h>
#include <mutex>
#include <sched.h>
#include <unistd.h>

namespace qwen35::comm {
namespace {

constexpr char kPlugin[] = "libqwen35-mpi.so";
constexpr int kHeaderTag = 1, kDataTag = 2, kStartTag = 3;
constexpr int64_t kMaxMessage = 1 << 30; // MPI counts are ints
constexpr double kPatience = 0.05;       // before a wait is worth a note
constexpr size_t kStartBytes = 16384;

double since(Clock::time_point then) {
  return std::chrono::duration<double>(Clock::now() - then).count();
}

/// Lets others run: at once where ranks outnumber processors, and asleep when a
/// wait gets long.
void pause(int64_t polls, Clock::time_point lastMove) {
  if (polls < 50)
    return;
  if (since(lastMove) < 1e-3)
    ::sched_yield();
  else
    ::usleep(50);
}

std::vector<std::string> pluginPaths() {
  if (const char *named = std::getenv("QWEN35_LIBMPI"); named && *named)
    return {named};
  std::vector<std::string> paths;
  char program[4096];
  if (ssize_t length =
          ::readlink("/proc/self/exe", program, sizeof program - 1);
      length > 0) {
    std::string folder(program, static_cast<size_t>(length));
    folder.erase(folder.rfind('/') + 1);
    paths.push_back(folder + kPlugin);
    paths.push_back(folder + "../lib/" + kPlugin);
  }
  paths.push_back(kPlugin);
  return paths;
}

absl::StatusOr<Mpi> open() {
  Mpi mpi;
  void *library = nullptr;
  std::string reason;
  for (const std::string &path : pluginPaths()) {
    // Global: MPI's own plugins look for its symbols there.
    library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (library) {
      mpi.path = path;
      break;
    }
    const char *text = ::dlerror();
    // A file that is there and does not load says more than one that is not.
    if (reason.empty() || ::access(path.c_str(), F_OK) == 0)
      reason = text ? text : "no reason given";
  }
  if (!library)
    return absl::UnavailableError(absl::StrCat(
        "cannot load ", kPlugin, " (", reason,
        "), which ranks under mpirun need: install Open MPI (Debian: "
        "libopenmpi-dev) where qwen35 is built, put the plugin beside the "
        "program, or name it in QWEN35_LIBMPI"));
  auto get = reinterpret_cast<const qwen35_mpi *(*)()>(
      ::dlsym(library, "qwen35_mpi_plugin"));
  if (!get)
    return absl::UnavailableError(absl::StrCat(
        mpi.path, " has no qwen35_mpi_plugin: it is not ", kPlugin));
  mpi.plugin = get();
  if (mpi.plugin->version != QWEN35_MPI_PLUGIN_VERSION)
    return absl::UnavailableError(absl::StrCat(mpi.path, " is version ",
                                               mpi.plugin->version,
                                               " of the plugin, "
                                               "expected ",
                                               QWEN35_MPI_PLUGIN_VERSION));
  char text[256] = "";
  int error = mpi.plugin->start(&mpi.rank, &mpi.size, text, sizeof text);
  mpi.library = text;
  QWEN35_RETURN_IF_ERROR(mpi.check(error, "MPI_Init_thread"));
  return mpi;
}

} // namespace

absl::StatusOr<const Mpi *> Mpi::load(int rank, int size,
                                      const std::string &startedBy) {
  static std::mutex mutex;
  static absl::StatusOr<Mpi> *loaded = nullptr;
  std::lock_guard lock(mutex);
  if (!loaded)
    loaded = new absl::StatusOr<Mpi>(open());
  QWEN35_RETURN_IF_ERROR(loaded->status());
  const Mpi &mpi = **loaded;
  if (mpi.size != size || mpi.rank != rank)
    return absl::FailedPreconditionError(absl::StrCat(
        startedBy, " say rank ", rank, " of ", size, ", and ", mpi.library,
        " of ", mpi.path, " says rank ", mpi.rank, " of ", mpi.size,
        ": was this started by another MPI's mpirun?"));
  return &mpi;
}

absl::Status Mpi::check(int error, const std::string &what) const {
  if (error == 0)
    return absl::OkStatus();
  char text[1024] = "";
  plugin->describe(error, text);
  return absl::InternalError(absl::StrCat(what, ": ", text));
}

absl::StatusOr<std::string> Mpi::broadcast(const std::string &text,
                                           double limit) const {
  std::string buffer = text;
  buffer.resize(kStartBytes);
  std::vector<int> requests;
  int request = 0;
  if (rank == 0)
    for (int r = 1; r < size; ++r) {
      QWEN35_RETURN_IF_ERROR(check(
          plugin->send(buffer.data(), kStartBytes, r, kStartTag, &request),
          "MPI_Isend"));
      requests.push_back(request);
    }
  else {
    QWEN35_RETURN_IF_ERROR(check(
        plugin->receive(buffer.data(), kStartBytes, 0, kStartTag, &request),
        "MPI_Irecv"));
    requests.push_back(request);
  }
  Clock::time_point start = Clock::now();
  for (int64_t polls = 0; !requests.empty(); ++polls) {
    int done = 0;
    QWEN35_RETURN_IF_ERROR(
        check(plugin->test(requests.back(), &done), "MPI_Test"));
    if (done)
      requests.pop_back();
    else if (since(start) > limit)
      return absl::DeadlineExceededError(
          rank == 0 ? absl::StrFormat("%d ranks did not answer over MPI within "
                                      "%.1f s",
                                      requests.size(), limit)
                    : absl::StrFormat("rank 0 did not answer over MPI within "
                                      "%.1f s",
                                      limit));
    pause(polls, start);
  }
  return std::string(buffer.c_str());
}

MpiTransport::~MpiTransport() {
  if (link->finished())
    mpi.plugin->finish();
}

absl::Status MpiTransport::move(absl::Span<const Outgoing> out,
                                absl::Span<const Incoming> in) {
  struct Pending {
    int request;
    int peer;
    const Incoming *headerOf; // of a header that comes
    size_t header;
  };
  std::vector<Pending> pending;
  std::vector<Header> came(in.size());
  absl::Status status;
  auto post = [&](int error, const char *what, int request, int peer,
                  const Incoming *headerOf, size_t header) {
    if (error == 0)
      pending.push_back({request, peer, headerOf, header});
    else if (status.ok())
      status = mpi.check(error, absl::StrCat(what, " with rank ", peer));
  };
  int request = 0;
  const qwen35_mpi &plugin = *mpi.plugin;
  for (size_t i = 0; i < in.size(); ++i) {
    const Incoming &message = in[i];
    int error = plugin.receive(&came[i], sizeof(Header), message.peer,
                               kHeaderTag, &request);
    post(error, "MPI_Irecv", request, message.peer, &message, i);
    for (int64_t at = 0; at < message.bytes; at += kMaxMessage) {
      error = plugin.receive(
          static_cast<char *>(message.data) + at,
          static_cast<int>(std::min(kMaxMessage, message.bytes - at)),
          message.peer, kDataTag, &request);
      post(error, "MPI_Irecv", request, message.peer, nullptr, 0);
    }
  }
  for (const Outgoing &message : out) {
    int error = plugin.send(message.header, sizeof(Header), message.peer,
                            kHeaderTag, &request);
    post(error, "MPI_Isend", request, message.peer, nullptr, 0);
    for (int64_t at = 0; at < message.bytes; at += kMaxMessage) {
      error = plugin.send(
          static_cast<const char *>(message.data) + at,
          static_cast<int>(std::min(kMaxMessage, message.bytes - at)),
          message.peer, kDataTag, &request);
      post(error, "MPI_Isend", request, message.peer, nullptr, 0);
    }
  }
  if (!status.ok())
    return link->fail(status);

  Clock::time_point lastMove = Clock::now();
  bool noted = false;
  for (int64_t polls = 0; !pending.empty(); ++polls) {
    QWEN35_RETURN_IF_ERROR(link->failure());
    bool moved = false;
    for (size_t i = 0; i < pending.size();) {
      int done = 0;
      Pending one = pending[i];
      // A message that is longer than expected is an error here; its header
      // says more.
      absl::Status status =
          mpi.check(plugin.test(one.request, &done),
                    absl::StrCat("a message between ranks ", mpi.rank, " and ",
                                 one.peer));
      if (!status.ok()) {
        for (size_t j = 0; j < in.size(); ++j)
          if (in[j].peer == one.peer && came[j].count + came[j].bytes != 0)
            if (absl::Status differs =
                    compare(*in[j].expected, mpi.rank, came[j], one.peer);
                !differs.ok())
              status = differs;
        return link->fail(status);
      }
      if (!done) {
        ++i;
        continue;
      }
      moved = true;
      pending[i] = pending.back();
      pending.pop_back();
      if (one.headerOf)
        if (absl::Status differs = compare(*one.headerOf->expected, mpi.rank,
                                           came[one.header], one.peer);
            !differs.ok())
          return link->fail(differs);
    }
    if (moved) {
      lastMove = Clock::now();
      polls = 0;
      continue;
    }
    double waited = since(lastMove);
    if (waited > link->limitSeconds())
      return link->late();
    if (!noted && waited > kPatience) {
      std::vector<int> waiting;
      for (const Pending &one : pending)
        if (std::find(waiting.begin(), waiting.end(), one.peer) ==
            waiting.end())
          waiting.push_back(one.peer);
      link->progress().waitFor(waiting);
      noted = true;
    }
    pause(polls, lastMove);
  }
  return absl::OkStatus();
}

} // namespace qwen35::comm
