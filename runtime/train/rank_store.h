#ifndef QWEN35_RUNTIME_TRAIN_RANK_STORE_H
#define QWEN35_RUNTIME_TRAIN_RANK_STORE_H

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/bundle/ranks.h"
#include "runtime/checkpoint/param_store.h"
#include "runtime/checkpoint/param_table.h"
#include "runtime/comm/communicator.h"

namespace qwen35 {

/// Marks an error that all ranks have got, so that none has to tell the others.
absl::Status ofAllRanks(absl::Status status);
bool isOfAllRanks(const absl::Status &status);

/// What rank 0's `work` returns, on every rank; the others do nothing.
/// Collective over the world. Without a world: `work` alone.
///
/// Errors  those of `work`, ofAllRanks; those of World::exchange.
absl::StatusOr<std::string>
fromFirst(comm::World *world, absl::string_view what,
          absl::FunctionRef<absl::StatusOr<std::string>()> work);

/// The parameters of a run, whole, of which every rank holds a piece.
///
/// Writing Is local: all ranks write the same whole parameters and each keeps
///         what it holds.
/// Reading Is for rank 0 within onFirst(): what is not there comes from the
///         lowest ranks that hold it, in the order of ranks; of gradients that
///         are left partial, the sum in that order.
class RankStore final : public ParamStore {
public:
  /// `pieces` is what this rank holds; it and the others outlive the store.
  RankStore(const ParamStore &pieces, const bundle::Bundle &message,
            absl::Span<const ParamSpec> params, comm::World &world);

  /// Runs `work` on rank 0, which may read there; the others answer. All get
  /// its status. Collective over the world.
  /// Errors  those of `work`, ofAllRanks; those of Communicator.
  absl::Status onFirst(absl::string_view what,
                       absl::FunctionRef<absl::Status()> work) const;

  size_t params() const override { return pieces.params(); }
  int64_t elements(ParamRole role, size_t param) const override;
  absl::Span<float> view(ParamRole role, size_t param) const override;
  bool holds(ParamRole role, size_t param, int64_t first,
             int64_t count) const override;
  absl::Status copyOut(ParamRole role, size_t param, int64_t first,
                       absl::Span<float> values) const override;
  absl::Status copyIn(ParamRole role, size_t param, int64_t first,
                      absl::Span<const float> values) const override;

private:
  /// How one array lies on the ranks.
  struct Layout {
    const bundle::Shard *shard = nullptr; // null: every rank has all of it
    MeshAxes split = 0, sum = 0;          // axes
    bool whole() const { return split == 0 && sum == 0; }
  };
  /// Elements [at, at + count) of a global tensor that a rank has from `local`.
  struct Request {
    int64_t kind, role, param, first, count;
  };

  const Layout &layout(ParamRole role, size_t param) const {
    return layouts[static_cast<size_t>(role)][param];
  }
  Layout makeLayout(const bundle::Shard *shard,
                    const google::protobuf::RepeatedPtrField<std::string> *sum);
  const std::vector<ShardRun> &runsOf(const Layout &layout, size_t param,
                                      int64_t rank) const;
  /// Calls `use(global, local, count)` for what `rank` has of a range.
  void overlap(const Layout &layout, size_t param, int64_t rank, int64_t first,
               int64_t count,
               absl::FunctionRef<void(int64_t, int64_t, int64_t)> use) const;
  /// What this rank has of a range, one run after the other.
  absl::Status pack(ParamRole role, size_t param, int64_t first, int64_t count,
                    std::vector<float> &packed) const;
  bool gives(const Layout &layout, int64_t rank) const;
  absl::Status serve() const;
  absl::Status answer(const Request &request) const;

  const ParamStore &pieces;
  absl::Span<const ParamSpec> specs;
  comm::World &world;
  Mesh mesh;
  std::vector<Layout> layouts[4]; // by role
  // Of the shard and rank that were asked for last: parameters are read from
  // front to back.
  mutable std::vector<std::pair<const bundle::Shard *, std::vector<ShardRun>>>
      known; // by rank
};

} // namespace qwen35

#endif // QWEN35_RUNTIME_TRAIN_RANK_STORE_H
