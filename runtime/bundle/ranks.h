#ifndef QWEN35_RUNTIME_BUNDLE_RANKS_H
#define QWEN35_RUNTIME_BUNDLE_RANKS_H

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/schema/bundle.pb.h"
#include "runtime/schema/mesh.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

/// What a bundle says of ranks, in numbers.
namespace qwen35 {

/// The feature that a bundle of several ranks needs a reader to know.
inline constexpr char kRanksFeature[] = "ranks";

/// The mesh of a bundle; that of one rank if it names none.
/// Errors  InvalidArgument for sizes that make no mesh, or more than 65536
///         ranks.
absl::StatusOr<Mesh> meshOf(const bundle::Bundle &message);

/// "all_gather", ...; "unknown" for what the schema has not.
const char *kindName(bundle::Collective::Kind kind);
/// Pieces that a rank sends of every part, and receives, in a group of `ranks`.
int64_t sendPieces(bundle::Collective::Kind kind, int64_t ranks);
int64_t receivePieces(bundle::Collective::Kind kind, int64_t ranks);
/// Bytes that a rank sends to others, if every piece goes its shortest way: the
/// closed forms of rings. What is cut by rank sends nothing.
uint64_t sentBytes(const bundle::Collective &collective, int64_t ranks);

/// "'grads' (number 7, all_reduce over {dps} of 2 ranks)"
std::string describeCollective(const bundle::Bundle &message,
                               const bundle::Collective &collective);

/// A run of elements that lies together on a rank and in the global tensor.
struct ShardRun {
  int64_t local, global, count; // elements, of dense row-major tensors
};

/// The piece of a rank: runs in ascending order of `local` that cover all of
/// it. The shard has passed validateBundle.
std::vector<ShardRun> shardRuns(const bundle::Shard &shard, const Mesh &mesh,
                                int64_t rank);

// Parts of validateBundle. Errors  InvalidArgument, Unimplemented.
absl::Status validateCommunicators(const bundle::Bundle &plan,
                                   const Mesh &mesh);
absl::Status
validateShard(const std::string &who, const bundle::Shard &shard,
              const google::protobuf::RepeatedField<int64_t> &local,
              const Mesh &mesh);
absl::Status validateGradientAxes(const std::string &who,
                                  const bundle::Param &param, const Mesh &mesh);
/// `sequence` is the number that the collective has to have.
absl::Status validateCollective(const std::string &who,
                                const bundle::Bundle &plan,
                                const bundle::Collective &collective,
                                uint64_t sequence);

} // namespace qwen35

#endif // QWEN35_RUNTIME_BUNDLE_RANKS_H
