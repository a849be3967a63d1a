#include "runtime/train/rank_store.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "runtime/bundle/status_macros.h"

namespace qwen35 {
namespace {

constexpr char kOfAll[] = "qwen35/all-ranks";
constexpr int64_t kRead = 1, kDone = 0;

absl::Status exchangeStatus(comm::World &world, absl::string_view what,
                            const absl::Status &mine) {
  std::string text =
      absl::StrCat(static_cast<int>(mine.code()), " ", mine.message());
  absl::StatusOr<std::vector<std::string>> all = world.exchange(what, text);
  QWEN35_RETURN_IF_ERROR(all.status());
  const std::string &first = all->front();
  auto code = static_cast<absl::StatusCode>(std::atoi(first.c_str()));
  if (code == absl::StatusCode::kOk)
    return absl::OkStatus();
  return ofAllRanks(absl::Status(code, first.substr(first.find(' ') + 1)));
}

} // namespace

absl::Status ofAllRanks(absl::Status status) {
  status.SetPayload(kOfAll, absl::Cord());
  return status;
}

bool isOfAllRanks(const absl::Status &status) {
  return status.GetPayload(kOfAll).has_value();
}

absl::StatusOr<std::string>
fromFirst(comm::World *world, absl::string_view what,
          absl::FunctionRef<absl::StatusOr<std::string>()> work) {
  if (!world)
    return work();
  absl::StatusOr<std::string> mine = std::string();
  if (world->rank() == 0)
    mine = work();
  QWEN35_RETURN_IF_ERROR(exchangeStatus(*world, what, mine.status()));
  absl::StatusOr<std::vector<std::string>> all =
      world->exchange(what, mine.value());
  QWEN35_RETURN_IF_ERROR(all.status());
  return all->front();
}

RankStore::RankStore(const ParamStore &pieces, const bundle::Bundle &message,
                     absl::Span<const ParamSpec> params, comm::World &world)
    : pieces(pieces), specs(params), world(world),
      mesh(meshOf(message).value_or(Mesh())),
      known(static_cast<size_t>(world.size())) {
  for (const bundle::Param &param : message.params()) {
    const bundle::Shard *weight = param.has_shard() ? &param.shard() : nullptr;
    const bundle::Shard *moments =
        param.has_moments() ? &param.moments() : weight;
    const bundle::Shard *gradient =
        param.has_gradient() ? &param.gradient() : weight;
    layouts[size_t(ParamRole::Weight)].push_back(makeLayout(weight, nullptr));
    layouts[size_t(ParamRole::M)].push_back(makeLayout(moments, nullptr));
    layouts[size_t(ParamRole::V)].push_back(makeLayout(moments, nullptr));
    layouts[size_t(ParamRole::Gradient)].push_back(
        makeLayout(gradient, &param.gradient_axes()));
  }
}

RankStore::Layout RankStore::makeLayout(
    const bundle::Shard *shard,
    const google::protobuf::RepeatedPtrField<std::string> *sum) {
  Layout result;
  if (shard)
    for (const bundle::ShardDim &dim : shard->dims())
      for (const std::string &axis : dim.axes())
        result.split |= mesh.axes(axis).value_or(0);
  if (sum)
    for (const std::string &axis : *sum)
      result.sum |= mesh.axes(axis).value_or(0);
  result.shard = result.split ? shard : nullptr;
  return result;
}

int64_t RankStore::elements(ParamRole, size_t param) const {
  return specs[param].elements();
}

absl::Span<float> RankStore::view(ParamRole role, size_t param) const {
  return layout(role, param).whole() ? pieces.view(role, param)
                                     : absl::Span<float>();
}

const std::vector<ShardRun> &
RankStore::runsOf(const Layout &layout, size_t param, int64_t rank) const {
  auto &[shard, runs] = known[static_cast<size_t>(rank)];
  if (!layout.shard) {
    shard = nullptr;
    runs = {{0, 0, specs[param].elements()}};
  } else if (shard != layout.shard) {
    shard = layout.shard;
    runs = shardRuns(*shard, mesh, rank);
  }
  return runs;
}

void RankStore::overlap(
    const Layout &layout, size_t param, int64_t rank, int64_t first,
    int64_t count,
    absl::FunctionRef<void(int64_t, int64_t, int64_t)> use) const {
  const std::vector<ShardRun> &runs = runsOf(layout, param, rank);
  // Dimensions are cut in order, so global places ascend with local ones.
  auto run =
      std::partition_point(runs.begin(), runs.end(), [&](const ShardRun &r) {
        return r.global + r.count <= first;
      });
  for (; run != runs.end() && run->global < first + count; ++run) {
    int64_t from = std::max(run->global, first);
    int64_t to = std::min(run->global + run->count, first + count);
    use(from, run->local + from - run->global, to - from);
  }
}

bool RankStore::holds(ParamRole role, size_t param, int64_t first,
                      int64_t count) const {
  bool any = false;
  overlap(layout(role, param), param, world.rank(), first, count,
          [&](int64_t, int64_t, int64_t) { any = true; });
  return any;
}

bool RankStore::gives(const Layout &layout, int64_t rank) const {
  MeshAxes all = (MeshAxes(1) << mesh.atoms().size()) - 1;
  return mesh.coordinate(rank, all & ~layout.split & ~layout.sum) == 0;
}

absl::Status RankStore::pack(ParamRole role, size_t param, int64_t first,
                             int64_t count, std::vector<float> &packed) const {
  packed.clear();
  absl::Status status;
  overlap(layout(role, param), param, world.rank(), first, count,
          [&](int64_t, int64_t local, int64_t size) {
            status.Update(pieces.read(
                role, param, local, size, [&](absl::Span<const float> values) {
                  packed.insert(packed.end(), values.begin(), values.end());
                  return absl::OkStatus();
                }));
          });
  return status;
}

absl::Status RankStore::copyOut(ParamRole role, size_t param, int64_t first,
                                absl::Span<float> values) const {
  const Layout &lies = layout(role, param);
  if (lies.whole())
    return pieces.copyOut(role, param, first, values);
  if (world.rank() != 0)
    return absl::InternalError("only rank 0 reads whole parameters");
  auto count = static_cast<int64_t>(values.size());
  Request request{kRead, static_cast<int64_t>(role),
                  static_cast<int64_t>(param), first, count};
  comm::Site site{specs[param].name};
  QWEN35_RETURN_IF_ERROR(world.all().broadcast(&request, sizeof request,
                                               comm::Type::kByte, 0, site));
  std::vector<float> packed;
  if (lies.sum)
    std::fill(values.begin(), values.end(), 0.0f);
  for (int rank = 0; rank < world.size(); ++rank) {
    if (!gives(lies, rank))
      continue;
    if (rank == 0) {
      QWEN35_RETURN_IF_ERROR(pack(role, param, first, count, packed));
    } else {
      int64_t size = 0;
      overlap(lies, param, rank, first, count,
              [&](int64_t, int64_t, int64_t part) { size += part; });
      packed.resize(static_cast<size_t>(size));
      if (size > 0)
        QWEN35_RETURN_IF_ERROR(world.all().sendReceive(
            -1, nullptr, 0, rank, packed.data(), size, comm::Type::kF32, site));
    }
    const float *from = packed.data();
    overlap(lies, param, rank, first, count,
            [&](int64_t global, int64_t, int64_t part) {
              float *to = values.data() + (global - first);
              for (int64_t i = 0; i < part; ++i)
                to[i] = lies.sum ? to[i] + from[i] : from[i];
              from += part;
            });
  }
  return absl::OkStatus();
}

absl::Status RankStore::answer(const Request &request) const {
  auto role = static_cast<ParamRole>(request.role);
  auto param = static_cast<size_t>(request.param);
  if (!gives(layout(role, param), world.rank()))
    return absl::OkStatus();
  std::vector<float> packed;
  QWEN35_RETURN_IF_ERROR(
      pack(role, param, request.first, request.count, packed));
  if (packed.empty())
    return absl::OkStatus();
  return world.all().sendReceive(
      0, packed.data(), static_cast<int64_t>(packed.size()), -1, nullptr, 0,
      comm::Type::kF32, comm::Site{specs[param].name});
}

absl::Status RankStore::serve() const {
  for (;;) {
    Request request{};
    QWEN35_RETURN_IF_ERROR(world.all().broadcast(
        &request, sizeof request, comm::Type::kByte, 0, {"what rank 0 reads"}));
    if (request.kind == kDone)
      return absl::OkStatus();
    QWEN35_RETURN_IF_ERROR(answer(request));
  }
}

absl::Status RankStore::onFirst(absl::string_view what,
                                absl::FunctionRef<absl::Status()> work) const {
  absl::Status status;
  if (world.rank() != 0) {
    QWEN35_RETURN_IF_ERROR(serve());
  } else {
    status = work();
    QWEN35_RETURN_IF_ERROR(world.lastError());
    Request done{kDone, 0, 0, 0, 0};
    QWEN35_RETURN_IF_ERROR(world.all().broadcast(
        &done, sizeof done, comm::Type::kByte, 0, {"what rank 0 reads"}));
  }
  return exchangeStatus(world, what, status);
}

absl::Status RankStore::copyIn(ParamRole role, size_t param, int64_t first,
                               absl::Span<const float> values) const {
  if (layout(role, param).whole())
    return pieces.copyIn(role, param, first, values);
  absl::Status status;
  overlap(layout(role, param), param, world.rank(), first,
          static_cast<int64_t>(values.size()),
          [&](int64_t global, int64_t local, int64_t count) {
            const float *from = values.data() + (global - first);
            status.Update(pieces.write(role, param, local, count,
                                       [&](int64_t at, absl::Span<float> out) {
                                         std::copy_n(from + at, out.size(),
                                                     out.begin());
                                       }));
          });
  return status;
}

} // namespace qwen35
