#include "runtime/comm/start.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "runtime/bundle/status_macros.h"
#include "runtime/comm/mpi_transport.h"
#include "runtime/comm/tcp_transport.h"
#include "runtime/comm/virtual.h"

#include <random>

#include <unistd.h>

namespace qwen35::comm {
namespace {

absl::Status checkAlone(const StartOptions &options) {
  if (options.ranks > 1)
    return absl::FailedPreconditionError(absl::StrCat(
        "the bundle is for ", options.ranks,
        " ranks and this process was started alone; start it with mpirun -np ",
        options.ranks, ", torchrun, or as virtual ranks"));
  return absl::OkStatus();
}

void printFailure(const absl::Status &cause) {
  std::string line = absl::StrCat("error: ", cause.message(), "\n");
  (void)!::write(STDERR_FILENO, line.data(), line.size());
}

TcpLinkOptions linkOptions(const StartOptions &options, const Launch &launch) {
  TcpLinkOptions link;
  link.limits = {options.joinSeconds, options.silenceSeconds,
                 options.callSeconds};
  link.hello.rank = launch.rank;
  link.hello.size = launch.size;
  link.hello.neededRanks = options.ranks;
  link.hello.place = absl::StrCat("pid ", ::getpid(), " on ", hostName());
  link.hello.machine = machineId();
  link.hello.addresses = localAddresses();
  link.hello.agree = options.agree;
  link.onFailure = options.onFailure ? options.onFailure
                   : options.exitOnFailure
                       ? printFailure
                       : std::function<void(const absl::Status &)>();
  link.exitCode = options.exitOnFailure ? kFailureExit : 0;
  return link;
}

absl::StatusOr<std::unique_ptr<World>> startTcp(const StartOptions &options,
                                                const Launch &launch) {
  TcpLinkOptions link = linkOptions(options, launch);
  if (launch.rank == 0) {
    absl::StatusOr<Descriptor> listener = listenOn(launch.masterPort);
    if (!listener.ok())
      return absl::UnavailableError(
          absl::StrCat("rank 0 ", listener.status().message(),
                       " (MASTER_PORT); is another run using it?"));
    link.listener = std::move(*listener);
  } else {
    link.hubAddress = {{launch.masterAddress, launch.masterPort}};
  }
  absl::StatusOr<Descriptor> data = listenOn(0);
  QWEN35_RETURN_IF_ERROR(data.status());
  link.hello.dataPort = portOf(*data);
  absl::StatusOr<std::shared_ptr<TcpLink>> joined =
      TcpLink::join(std::move(link));
  QWEN35_RETURN_IF_ERROR(joined.status());
  absl::StatusOr<std::shared_ptr<TcpTransport>> transport =
      TcpTransport::connect(*joined, launch.rank, std::move(*data),
                            options.joinSeconds);
  QWEN35_RETURN_IF_ERROR(transport.status());
  (*joined)->arm();
  return makeHostWorld(launch.rank, launch.size, *joined, *transport);
}

/// MPI carries the messages, and at the start the address of the hub.
absl::StatusOr<std::unique_ptr<World>> startMpi(const StartOptions &options,
                                                const Launch &launch) {
  absl::StatusOr<const Mpi *> mpi =
      Mpi::load(launch.rank, launch.size, launch.from);
  QWEN35_RETURN_IF_ERROR(mpi.status());
  TcpLinkOptions link = linkOptions(options, launch);
  std::string meeting;
  if (launch.rank == 0) {
    absl::StatusOr<Descriptor> listener = listenOn(0);
    QWEN35_RETURN_IF_ERROR(listener.status());
    std::random_device random;
    meeting = absl::StrCat(link.hello.machine, "\n",
                           static_cast<uint64_t>(random()) << 32 | random(),
                           "\n", portOf(*listener), "\n",
                           absl::StrJoin(link.hello.addresses, " "));
    link.listener = std::move(*listener);
  }
  absl::StatusOr<std::string> text =
      (*mpi)->broadcast(meeting, options.joinSeconds);
  QWEN35_RETURN_IF_ERROR(text.status());
  std::vector<std::string> lines = absl::StrSplit(*text, '\n');
  int port = 0;
  if (lines.size() != 4 || !absl::SimpleAtoi(lines[2], &port))
    return absl::InternalError("rank 0 sent an address that is not one");
  link.hello.cookie = lines[1];
  if (lines[0] == link.hello.machine)
    link.hubAddress.push_back({"127.0.0.1", port});
  std::vector<std::string> hosts =
      absl::StrSplit(lines[3], ' ', absl::SkipEmpty());
  for (const std::string &host : hosts)
    link.hubAddress.push_back({host, port});
  absl::StatusOr<std::shared_ptr<TcpLink>> joined =
      TcpLink::join(std::move(link));
  QWEN35_RETURN_IF_ERROR(joined.status());
  (*joined)->arm();
  return makeHostWorld(launch.rank, launch.size, *joined,
                       std::make_shared<MpiTransport>(**mpi, *joined));
}

} // namespace

absl::StatusOr<std::unique_ptr<World>> start(const StartOptions &options,
                                             const Launch &launch) {
  switch (launch.kind) {
  case Launch::kEnv:
    return startTcp(options, launch);
  case Launch::kMpi:
    return startMpi(options, launch);
  case Launch::kSingle:
    break;
  }
  QWEN35_RETURN_IF_ERROR(checkAlone(options));
  return std::move(makeVirtualWorlds(1)[0]);
}

} // namespace qwen35::comm
