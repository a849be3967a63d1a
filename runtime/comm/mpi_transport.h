#ifndef QWEN35_RUNTIME_COMM_MPI_TRANSPORT_H
#define QWEN35_RUNTIME_COMM_MPI_TRANSPORT_H

#include "runtime/comm/mpi_plugin.h"
#include "runtime/comm/tcp_link.h"

namespace qwen35::comm {

/// MPI through the plugin; opened once and kept for the life of the process.
struct Mpi {
  const qwen35_mpi *plugin = nullptr;
  std::string path, library; // "Open MPI v4.1.4"
  int rank = 0, size = 1;

  /// Errors  Unavailable naming the plugin and the reason; FailedPrecondition
  ///         if its MPI is not the one that started this process.
  static absl::StatusOr<const Mpi *> load(int rank, int size,
                                          const std::string &startedBy);
  absl::Status check(int error, const std::string &what) const;
  /// Rank 0's text on all ranks.
  absl::StatusOr<std::string> broadcast(const std::string &text,
                                        double seconds) const;
};

/// Messages as non-blocking sends and receives, polled so that failures of the
/// link end the wait. After a failure buffers may still be in use by MPI: the
/// process has to end.
class MpiTransport : public Transport {
public:
  MpiTransport(const Mpi &mpi, std::shared_ptr<TcpLink> link)
      : mpi(mpi), link(std::move(link)) {}
  /// Ends MPI if the world has ended in order.
  ~MpiTransport() override;

  absl::Status move(absl::Span<const Outgoing> out,
                    absl::Span<const Incoming> in) override;

private:
  const Mpi &mpi;
  std::shared_ptr<TcpLink> link;
};

} // namespace qwen35::comm

#endif // QWEN35_RUNTIME_COMM_MPI_TRANSPORT_H
