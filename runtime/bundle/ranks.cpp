#include "runtime/bundle/ranks.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/bundle/bundle_reader.h"
#include "runtime/bundle/quoted.h"
#include "runtime/bundle/status_macros.h"

#include <algorithm>
#include <set>

namespace qwen35 {
namespace {

constexpr int64_t kMaxRanks = 65536;
constexpr int kMaxCommunicators = 1024;
constexpr int kMaxParts = 65536;
constexpr int kMaxSections = 4096;
constexpr int64_t kMaxCount = int64_t(1) << 46;
constexpr size_t kMaxTag = 1024;

template <typename... Parts> absl::Status invalid(const Parts &...parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

/// The atoms that names stand for.
absl::StatusOr<MeshAxes>
axesOf(const std::string &who, const Mesh &mesh,
       const google::protobuf::RepeatedPtrField<std::string> &names) {
  MeshAxes all = 0;
  for (const std::string &name : names) {
    std::optional<MeshAxes> axes = mesh.axes(name);
    if (!axes || *axes == 0)
      return invalid(who, " names the axis ", quoted(name),
                     ", which the mesh ", printMeshShape(mesh.shape()),
                     " has not");
    if (all & *axes)
      return invalid(who, " names the axis ", quoted(name), " twice");
    all |= *axes;
  }
  return all;
}

bool hasRows(bundle::Collective::Kind kind, bool send) {
  return send ? kind == bundle::Collective::REDUCE_SCATTER ||
                    kind == bundle::Collective::ALL_TO_ALL ||
                    kind == bundle::Collective::ALL_SLICE
              : kind == bundle::Collective::ALL_GATHER ||
                    kind == bundle::Collective::ALL_TO_ALL;
}

/// A place of a collective: `bytes` of its type in a buffer.
absl::Status place(const std::string &who, const std::string &what,
                   const bundle::Bundle &plan, const bundle::Arg &arg,
                   bundle::DType dtype, uint64_t bytes, bool write) {
  if (arg.buffer() >= static_cast<uint32_t>(plan.buffers_size()))
    return invalid(who, ": ", what, " is buffer ", arg.buffer(),
                   ", but there are ", plan.buffers_size(), " buffers");
  const bundle::Buffer &buffer = plan.buffers(static_cast<int>(arg.buffer()));
  if (arg.bytes() != bytes)
    return invalid(who, ": ", what, " has ", arg.bytes(), " bytes, expected ",
                   bytes);
  if (arg.offset() > buffer.bytes() || bytes > buffer.bytes() - arg.offset())
    return invalid(who, ": ", what, " has ", bytes, " bytes at offset ",
                   arg.offset(), ", but buffer ", quoted(buffer.name()),
                   " has ", buffer.bytes());
  if ((buffer.offset() + arg.offset()) % dtypeBytes(dtype) != 0)
    return invalid(who, ": ", what, " begins at byte ",
                   buffer.offset() + arg.offset(),
                   " of its arena, which is no multiple of the ",
                   dtypeBytes(dtype), " bytes of ", dtypeName(dtype));
  if (buffer.dtype() != dtype && buffer.dtype() != bundle::U8)
    return invalid(who, ": ", what, " is ", dtypeName(buffer.dtype()),
                   ", but the collective is of ", dtypeName(dtype));
  if (arg.write() != write)
    return invalid(who, ": ", what, " is marked as ",
                   arg.write() ? "written" : "read");
  return absl::OkStatus();
}

} // namespace

absl::StatusOr<Mesh> meshOf(const bundle::Bundle &message) {
  if (!message.has_mesh())
    return Mesh();
  const bundle::Mesh &m = message.mesh();
  int64_t ranks = 1;
  for (auto [axis, size] :
       {std::pair("pp", m.pp()), std::pair("dpr", m.dpr()),
        std::pair("dps", m.dps()), std::pair("cp", m.cp()),
        std::pair("tp", m.tp())}) {
    if (size < 1 || size > kMaxRanks || (ranks *= size) > kMaxRanks)
      return invalid("the mesh has ", size, " ranks along ", axis,
                     ", expected 1 or more and ", kMaxRanks,
                     " at most over all axes");
  }
  MeshShape shape{m.pp(), m.dpr(), m.dps(), m.cp(), m.tp(), m.ep(), m.kv()};
  std::string error;
  std::optional<Mesh> mesh = Mesh::make(shape, error);
  if (!mesh)
    return invalid("the mesh is none: ", error);
  return *mesh;
}

const char *kindName(bundle::Collective::Kind kind) {
  switch (kind) {
  case bundle::Collective::ALL_GATHER:
    return "all_gather";
  case bundle::Collective::ALL_REDUCE:
    return "all_reduce";
  case bundle::Collective::REDUCE_SCATTER:
    return "reduce_scatter";
  case bundle::Collective::ALL_TO_ALL:
    return "all_to_all";
  case bundle::Collective::ALL_SLICE:
    return "all_slice";
  case bundle::Collective::SHIFT:
    return "shift";
  default:
    return "unknown";
  }
}

int64_t sendPieces(bundle::Collective::Kind kind, int64_t ranks) {
  return hasRows(kind, /*send=*/true) ? ranks : 1;
}

int64_t receivePieces(bundle::Collective::Kind kind, int64_t ranks) {
  return hasRows(kind, /*send=*/false) ? ranks : 1;
}

uint64_t sentBytes(const bundle::Collective &collective, int64_t ranks) {
  uint64_t piece = 0;
  for (const bundle::Collective::Part &part : collective.parts())
    piece += static_cast<uint64_t>(part.count());
  piece *= dtypeBytes(collective.wire() != bundle::DTYPE_NONE
                          ? collective.wire()
                          : collective.dtype());
  uint64_t others = static_cast<uint64_t>(ranks - 1);
  switch (collective.kind()) {
  case bundle::Collective::ALL_GATHER:
  case bundle::Collective::REDUCE_SCATTER:
  case bundle::Collective::ALL_TO_ALL:
    return others * piece;
  case bundle::Collective::ALL_REDUCE:
    return 2 * others * piece / static_cast<uint64_t>(ranks);
  case bundle::Collective::SHIFT:
    return piece;
  default:
    return 0;
  }
}

std::string describeCollective(const bundle::Bundle &message,
                               const bundle::Collective &collective) {
  const bundle::Communicator &group =
      message.communicators(static_cast<int>(collective.communicator()));
  return absl::StrCat(
      collective.tag().empty() ? "" : absl::StrCat(quoted(collective.tag()), ", "),
      kindName(collective.kind()), " number ", collective.sequence(),
      " over {", absl::StrJoin(group.axes(), ", "), "} of ",
      group.groups(0).ranks_size(), " ranks");
}

std::vector<ShardRun> shardRuns(const bundle::Shard &shard, const Mesh &mesh,
                                int64_t rank) {
  // From the innermost dimension out: runs of the dimensions so far.
  std::vector<ShardRun> runs = {{0, 0, 1}};
  int64_t localSize = 1, globalSize = 1;
  for (int d = shard.dims_size() - 1; d >= 0; --d) {
    const bundle::ShardDim &dim = shard.dims(d);
    MeshAxes axes = 0;
    for (const std::string &name : dim.axes())
      axes |= mesh.axes(name).value_or(0);
    int64_t ranks = mesh.size(axes), at = mesh.coordinate(rank, axes);
    int64_t size = shard.global_shape(d);
    std::vector<int64_t> sections(dim.sections().begin(),
                                  dim.sections().end());
    if (sections.empty())
      sections = {size};
    // Rows of this dimension that lie together, and then what is in a row.
    std::vector<ShardRun> rows;
    int64_t local = 0, global = 0;
    for (int64_t section : sections) {
      int64_t piece = section / ranks, first = global + at * piece;
      if (!rows.empty() &&
          rows.back().global + rows.back().count == first)
        rows.back().count += piece;
      else
        rows.push_back({local, first, piece});
      local += piece;
      global += section;
    }
    bool whole = runs.size() == 1 && runs[0].count == globalSize;
    std::vector<ShardRun> next;
    for (const ShardRun &row : rows) {
      if (whole) {
        next.push_back({row.local * localSize, row.global * globalSize,
                        row.count * globalSize});
        continue;
      }
      for (int64_t i = 0; i < row.count; ++i)
        for (const ShardRun &run : runs)
          next.push_back({(row.local + i) * localSize + run.local,
                          (row.global + i) * globalSize + run.global,
                          run.count});
    }
    runs = std::move(next);
    localSize *= size / ranks;
    globalSize *= size;
  }
  return runs;
}

absl::Status validateCommunicators(const bundle::Bundle &plan,
                                   const Mesh &mesh) {
  if (plan.communicators_size() > kMaxCommunicators)
    return invalid("there are ", plan.communicators_size(),
                   " communicators, the most is ", kMaxCommunicators);
  if (plan.communicators_size() > 0 && !plan.has_mesh())
    return invalid("the bundle has communicators but no mesh");
  std::set<MeshAxes> seen;
  for (int i = 0; i < plan.communicators_size(); ++i) {
    const bundle::Communicator &communicator = plan.communicators(i);
    std::string who = absl::StrCat("communicator ", i);
    absl::StatusOr<MeshAxes> axes = axesOf(who, mesh, communicator.axes());
    QWEN35_RETURN_IF_ERROR(axes.status());
    // A world of one may exchange with itself: trials of a GPU's library.
    if (mesh.size(*axes) < 2 && mesh.ranks() > 1)
      return invalid(who, " has groups of one rank");
    if (!seen.insert(*axes).second)
      return invalid(who, " runs over ", mesh.describe(*axes),
                     ", as one before it");
    std::vector<std::vector<int64_t>> expected = mesh.groups(*axes);
    if (static_cast<size_t>(communicator.groups_size()) != expected.size())
      return invalid(who, " has ", communicator.groups_size(),
                     " groups, but its axes ", mesh.describe(*axes), " make ",
                     expected.size());
    for (size_t g = 0; g < expected.size(); ++g) {
      const auto &ranks = communicator.groups(static_cast<int>(g)).ranks();
      if (!std::equal(ranks.begin(), ranks.end(), expected[g].begin(),
                      expected[g].end()))
        return invalid(who, ": group ", g, " is of ranks ",
                       absl::StrJoin(ranks, " "), ", but its axes ",
                       mesh.describe(*axes), " make it ",
                       absl::StrJoin(expected[g], " "));
    }
  }
  return absl::OkStatus();
}

absl::Status
validateShard(const std::string &who, const bundle::Shard &shard,
              const google::protobuf::RepeatedField<int64_t> &local,
              const Mesh &mesh) {
  if (shard.global_shape_size() != local.size() ||
      shard.dims_size() != local.size())
    return invalid(who, " is a piece of ", local.size(),
                   " dimensions of a tensor of ", shard.global_shape_size(),
                   " dimensions, of which ", shard.dims_size(),
                   " are said to be split");
  MeshAxes all = 0;
  uint64_t elements = 1;
  for (int d = 0; d < local.size(); ++d) {
    const bundle::ShardDim &dim = shard.dims(d);
    absl::StatusOr<MeshAxes> axes = axesOf(who, mesh, dim.axes());
    QWEN35_RETURN_IF_ERROR(axes.status());
    if (all & *axes)
      return invalid(who, " is split over ", mesh.describe(all & *axes),
                     " in two dimensions");
    all |= *axes;
    int64_t ranks = mesh.size(*axes), size = shard.global_shape(d);
    if (size < 1 || size % ranks != 0 || size / ranks != local[d])
      return invalid(who, " has ", local[d], " along dimension ", d,
                     ", but ", size, " over ", mesh.describe(*axes), " of ",
                     ranks, " ranks");
    if (__builtin_mul_overflow(elements, uint64_t(size), &elements) ||
        elements > uint64_t(kMaxCount))
      return invalid(who, " is a piece of more than ", kMaxCount,
                     " elements");
    if (dim.sections_size() > kMaxSections)
      return invalid(who, " has ", dim.sections_size(),
                     " sections, the most is ", kMaxSections);
    int64_t sum = 0;
    for (int64_t section : dim.sections()) {
      if (section < 1 || section > size || section % ranks != 0)
        return invalid(who, " has a section of ", section,
                       " along dimension ", d, ", which ", ranks,
                       " ranks do not divide");
      sum += section;
    }
    if (dim.sections_size() != 0 && sum != size)
      return invalid(who, " has sections of ", sum,
                     " in all along dimension ", d, ", which has ", size);
  }
  return absl::OkStatus();
}

absl::Status validateGradientAxes(const std::string &who,
                                  const bundle::Param &param,
                                  const Mesh &mesh) {
  std::string what = absl::StrCat("gradient of ", who);
  absl::StatusOr<MeshAxes> axes = axesOf(what, mesh, param.gradient_axes());
  QWEN35_RETURN_IF_ERROR(axes.status());
  const bundle::Shard &shard =
      param.has_gradient() ? param.gradient() : param.shard();
  for (const bundle::ShardDim &dim : shard.dims()) {
    absl::StatusOr<MeshAxes> split = axesOf(who, mesh, dim.axes());
    QWEN35_RETURN_IF_ERROR(split.status());
    if (*axes & *split)
      return invalid(what, " is to be summed over ",
                     mesh.describe(*axes & *split), ", over which it is split");
  }
  return absl::OkStatus();
}

absl::Status validateCollective(const std::string &who,
                                const bundle::Bundle &plan,
                                const bundle::Collective &collective,
                                uint64_t sequence) {
  using C = bundle::Collective;
  C::Kind kind = collective.kind();
  if (kind < C::ALL_GATHER || kind > C::SHIFT)
    return absl::UnimplementedError(absl::StrCat(
        who, " is a collective of kind ", static_cast<int>(kind),
        ", the highest this reader knows is ", static_cast<int>(C::SHIFT)));
  std::string name = absl::StrCat(who, " (", kindName(kind), ")");
  if (collective.communicator() >=
      static_cast<uint32_t>(plan.communicators_size()))
    return invalid(name, " uses communicator ", collective.communicator(),
                   ", but there are ", plan.communicators_size());
  int64_t ranks =
      plan.communicators(static_cast<int>(collective.communicator()))
          .groups(0)
          .ranks_size();
  if (collective.sequence() != sequence)
    return invalid(name, " is number ", collective.sequence(), ", expected ",
                   sequence, ": collectives have one order on all ranks");
  bundle::DType dtype = collective.dtype();
  bool isFloat = dtype == bundle::F32 || dtype == bundle::F64 ||
                 dtype == bundle::BF16;
  bool reduces = kind == C::ALL_REDUCE || kind == C::REDUCE_SCATTER;
  if (!isFloat && (reduces || (dtype != bundle::I32 && dtype != bundle::I64)))
    return invalid(name, " is of ", dtypeName(dtype), ", expected ",
                   reduces ? "f32, f64 or bf16" : "f32, f64, bf16, i32 or i64");
  if (collective.reduction() != C::SUM && collective.reduction() != C::MAX)
    return absl::UnimplementedError(
        absl::StrCat(name, " reduces by ",
                     static_cast<int>(collective.reduction()),
                     ", this reader knows sum (0) and max (1)"));
  bundle::DType wire = collective.wire(), sum = collective.accumulate();
  if (wire != bundle::DTYPE_NONE && wire != dtype &&
      !(reduces && dtype == bundle::F32 && wire == bundle::BF16))
    return invalid(name, " sends ", dtypeName(dtype), " as ", dtypeName(wire),
                   ", expected as it is, or an f32 to reduce as bf16");
  if (sum != bundle::DTYPE_NONE &&
      !(reduces && (sum == bundle::F32 || sum == bundle::F64) &&
        dtypeBytes(sum) >= dtypeBytes(dtype)))
    return invalid(name, " adds up ", dtypeName(dtype), " in ",
                   dtypeName(sum), ", expected f32 or f64, not narrower");
  int64_t offset = collective.offset();
  if (kind == C::SHIFT ? offset == 0 || offset <= -ranks || offset >= ranks
                       : offset != 0)
    return invalid(name, " has the offset ", offset, " in a group of ", ranks);
  if (collective.tag().size() > kMaxTag)
    return invalid(name, " has a tag of ", collective.tag().size(),
                   " bytes, the most is ", kMaxTag);

  int parts = collective.parts_size();
  if (parts < 1 || parts > kMaxParts)
    return invalid(name, " has ", parts, " parts, expected 1 to ", kMaxParts);
  int64_t sends = sendPieces(kind, ranks);
  int64_t receives = receivePieces(kind, ranks);
  uint64_t width = dtypeBytes(dtype), piece = 0;
  bool sendStaged = parts > 1, receiveStaged = parts > 1;
  std::set<uint32_t> written;
  for (const C::Part &part : collective.parts()) {
    int64_t count = part.count();
    if (count < 1 || count > kMaxCount / std::max(sends, receives))
      return invalid(name, " has pieces of ", count, " elements, expected 1 to ",
                     kMaxCount / std::max(sends, receives));
    for (auto [side, rows, cut] :
         {std::tuple("sends", part.send_outer(), hasRows(kind, true)),
          std::tuple("receives", part.receive_outer(), hasRows(kind, false))})
      if (rows < 1 || count % rows != 0 || (rows > 1 && !cut))
        return invalid(name, " ", side, " pieces of ", count, " elements in ",
                       rows, " rows");
    sendStaged |= part.send_outer() > 1;
    receiveStaged |= part.receive_outer() > 1;
    piece += static_cast<uint64_t>(count) * width;
    QWEN35_RETURN_IF_ERROR(place(
        name, "what is sent", plan, part.send(), dtype,
        static_cast<uint64_t>(count * sends) * width, /*write=*/false));
    QWEN35_RETURN_IF_ERROR(place(
        name, "what is received", plan, part.receive(), dtype,
        static_cast<uint64_t>(count * receives) * width, /*write=*/true));
    if (!written.insert(part.receive().buffer()).second)
      return invalid(name, " receives twice in buffer ",
                     quoted(plan.buffers(static_cast<int>(
                                             part.receive().buffer()))
                                .name()));
  }
  for (const C::Part &part : collective.parts()) {
    bool inPlace = kind == C::ALL_REDUCE &&
                   part.send().buffer() == part.receive().buffer() &&
                   part.send().offset() == part.receive().offset();
    if (!inPlace && written.count(part.send().buffer()))
      return invalid(name, " sends and receives in buffer ",
                     quoted(plan.buffers(static_cast<int>(part.send().buffer()))
                                .name()));
  }
  if (kind == C::ALL_SLICE)
    sendStaged = receiveStaged = false;
  for (auto [side, has, wants] :
       {std::tuple("send", collective.has_send_stage(), sendStaged),
        std::tuple("receive", collective.has_receive_stage(), receiveStaged)})
    if (has != wants)
      return invalid(name, has ? " has a " : " has no ", side, " stage, ",
                     wants ? "which its parts need"
                           : "but its one part lies in one piece");
  if (sendStaged)
    QWEN35_RETURN_IF_ERROR(place(name, "the send stage", plan,
                                 collective.send_stage(), dtype,
                                 piece * static_cast<uint64_t>(sends), true));
  if (receiveStaged)
    QWEN35_RETURN_IF_ERROR(
        place(name, "the receive stage", plan, collective.receive_stage(),
              dtype, piece * static_cast<uint64_t>(receives), true));
  if (sendStaged && receiveStaged) {
    const bundle::Arg &a = collective.send_stage();
    const bundle::Arg &b = collective.receive_stage();
    bool same = a.buffer() == b.buffer() && a.offset() == b.offset();
    bool apart = a.buffer() != b.buffer() ||
                 a.offset() + a.bytes() <= b.offset() ||
                 b.offset() + b.bytes() <= a.offset();
    if (kind == C::ALL_REDUCE ? !same : !apart)
      return invalid(name, " has stages at offsets ", a.offset(), " and ",
                     b.offset(),
                     kind == C::ALL_REDUCE ? ", expected the same bytes"
                                           : ", which share bytes");
  }
  for (const bundle::Arg *stage :
       {sendStaged ? &collective.send_stage() : nullptr,
        receiveStaged ? &collective.receive_stage() : nullptr}) {
    if (!stage)
      continue;
    for (const C::Part &part : collective.parts())
      if (part.send().buffer() == stage->buffer() ||
          part.receive().buffer() == stage->buffer())
        return invalid(name, " has its stage in buffer ",
                       quoted(plan.buffers(static_cast<int>(stage->buffer()))
                                  .name()),
                       ", which is one of its parts");
  }
  return absl::OkStatus();
}

} // namespace qwen35
