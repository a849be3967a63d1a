#ifndef QWEN35_RUNTIME_COMM_TRANSPORT_H
#define QWEN35_RUNTIME_COMM_TRANSPORT_H

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/comm/progress.h"

#include <memory>
#include <string>
#include <type_traits>
#include <vector>

/// What carries a host world: a Transport moves messages between pairs of
/// ranks, a Link keeps the ranks together beside the data. Both belong to one
/// rank. HostWorld puts the collectives on top.
namespace qwen35::comm {

/// Goes ahead of the bytes of every message, so that ranks that call different
/// things find out.
struct Header {
  uint32_t communicator = 0; // 0: the world, else the number of the split
  uint32_t part = 0;         // of the collective
  int64_t ordinal = 0;       // of the collective within the communicator
  int64_t sequence = -1;     // of the plan, or -1
  int64_t count = 0, bytes = 0;
  int32_t root = 0;
  Kind kind = Kind::kBarrier;
  Type type = Type::kByte, wire = Type::kByte, accumulate = Type::kByte;
  Reduction reduction = Reduction::kSum;
  uint8_t wrap = 0;
  char label[38] = "";

  std::string describe() const;
};
static_assert(sizeof(Header) == 88 && std::is_trivially_copyable_v<Header>);

/// Ok, or what the other rank does instead.
absl::Status compare(const Header &mine, int self, const Header &theirs,
                     int peer);

struct Outgoing {
  int peer; // rank of the world
  const Header *header;
  const void *data;
  int64_t bytes;
};

struct Incoming {
  int peer;
  const Header *expected;
  void *data;
  int64_t bytes;
};

class Transport {
public:
  virtual ~Transport() = default;

  /// Moves all messages, in any order; between two ranks messages arrive in
  /// the order in which they were sent. Returns when the buffers are this
  /// rank's again, also on failure.
  virtual absl::Status move(absl::Span<const Outgoing> out,
                            absl::Span<const Incoming> in) = 0;
};

/// The tie between the ranks beside the data. The first failure that a rank
/// reports or that is noticed becomes the cause, the same on all ranks.
class Link {
public:
  virtual ~Link() = default;

  virtual absl::StatusOr<std::vector<std::string>>
  exchange(const std::string &mine) = 0;
  /// This rank has waited for others longer than the limit, as its progress
  /// says. Returns the cause, never ok.
  virtual absl::Status late() = 0;
  /// The transport lost a rank. Returns the cause, never ok.
  virtual absl::Status lost(int peer, const std::string &how) = 0;
  /// Reports a cause. Returns the one that counts.
  virtual absl::Status fail(const absl::Status &cause) = 0;
  /// This rank fails by itself and will say so itself.
  virtual void abort(const absl::Status &cause) { (void)fail(cause); }
  /// The cause, or ok. Called often, on the way to an error of the caller.
  virtual absl::Status failure() const = 0;
  /// The same for who only wants to know.
  virtual absl::Status peek() const { return failure(); }
  virtual void onFailure(std::function<void(const absl::Status &)>) {}
  virtual absl::Status finish() = 0;
  virtual Progress &progress() = 0;
};

/// A world whose collectives run on the host, over any transport.
std::unique_ptr<World> makeHostWorld(int rank, int size,
                                     std::shared_ptr<Link> link,
                                     std::shared_ptr<Transport> transport);

/// What World::exchange does on top of a link: all ranks mean the same thing.
absl::StatusOr<std::vector<std::string>> exchangeNamed(Link &link, int self,
                                                       absl::string_view what,
                                                       const std::string &mine);

/// A cause, with what this rank was doing.
absl::Status withPlace(const absl::Status &cause, int self,
                       const Breadcrumb &crumb);

} // namespace qwen35::comm

#endif // QWEN35_RUNTIME_COMM_TRANSPORT_H
