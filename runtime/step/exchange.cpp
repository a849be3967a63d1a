#include "runtime/step/exchange.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/bundle/bundle_reader.h"
#include "runtime/bundle/ranks.h"
#include "runtime/bundle/status_macros.h"

#include <cstring>

namespace qwen35 {
namespace {

comm::Type typeOf(bundle::DType dtype) {
  switch (dtype) {
  case bundle::F64:
    return comm::Type::kF64;
  case bundle::BF16:
    return comm::Type::kBf16;
  case bundle::I32:
    return comm::Type::kI32;
  case bundle::I64:
    return comm::Type::kI64;
  default:
    return comm::Type::kF32;
  }
}

comm::Kind kindOf(bundle::Collective::Kind kind) {
  switch (kind) {
  case bundle::Collective::ALL_REDUCE:
    return comm::Kind::kAllReduce;
  case bundle::Collective::REDUCE_SCATTER:
    return comm::Kind::kReduceScatter;
  case bundle::Collective::ALL_TO_ALL:
    return comm::Kind::kAllToAll;
  case bundle::Collective::SHIFT:
    return comm::Kind::kShift;
  default:
    return comm::Kind::kAllGather;
  }
}

} // namespace

absl::Status Exchanges::init(const bundle::Bundle &plan, comm::World *world) {
  absl::StatusOr<Mesh> mesh = meshOf(plan);
  QWEN35_RETURN_IF_ERROR(mesh.status());
  int64_t ranks = mesh->ranks(), present = world ? world->size() : 1;
  if (ranks != present)
    return absl::FailedPreconditionError(absl::StrCat(
        "the bundle is for ", ranks, " rank", ranks == 1 ? "" : "s",
        ranks == 1 ? ""
                   : absl::StrCat(" (", printMeshShape(mesh->shape()), ")"),
        ", but ", present, present == 1 ? " was" : " were", " started"));
  if (!world && plan.communicators_size() != 0)
    return absl::FailedPreconditionError(
        "the bundle exchanges between ranks, but no world of ranks was given");
  for (const bundle::Communicator &entry : plan.communicators()) {
    std::vector<std::vector<int>> groups;
    for (const bundle::Group &group : entry.groups())
      groups.emplace_back(group.ranks().begin(), group.ranks().end());
    absl::StatusOr<std::shared_ptr<comm::Communicator>> made =
        world->split(absl::StrJoin(entry.axes(), ","), groups);
    QWEN35_RETURN_IF_ERROR(made.status());
    communicators.push_back(*std::move(made));
  }
  return absl::OkStatus();
}

uint32_t Exchanges::add(const bundle::Collective &collective, Address address) {
  auto exchange = std::make_unique<Exchange>();
  bundle::Collective::Kind kind = collective.kind();
  comm::Communicator &group = *communicators[collective.communicator()];
  int64_t ranks = group.size(), self = group.rank();
  auto width = static_cast<int64_t>(dtypeBytes(collective.dtype()));
  int64_t sends = sendPieces(kind, ranks), receives = receivePieces(kind, ranks);
  int64_t all = 0; // elements of a piece of all parts
  for (const bundle::Collective::Part &part : collective.parts())
    all += part.count();

  // A piece of a part in `outer` rows of the whole, and in a row of its own.
  auto rowsOf = [&](int64_t count, int64_t outer, int64_t pieces, int64_t piece,
                    uint8_t *whole, uint8_t *apart, bool isSend) {
    int64_t row = count / outer * width;
    uint8_t *inWhole = whole + piece * row;
    return isSend ? Copy{inWhole, apart, outer, row, pieces * row, row}
                  : Copy{apart, inWhole, outer, row, row, pieces * row};
  };
  if (kind == bundle::Collective::ALL_SLICE) {
    for (const bundle::Collective::Part &part : collective.parts())
      exchange->before.push_back(
          rowsOf(part.count(), part.send_outer(), ranks, self,
                 address(part.send()), address(part.receive()), true));
    exchanges.push_back(std::move(exchange));
    return static_cast<uint32_t>(exchanges.size() - 1);
  }

  exchange->communicator = &group;
  exchange->label = collective.tag();
  comm::Call &call = exchange->call;
  call.kind = kindOf(kind);
  call.type = typeOf(collective.dtype());
  call.reduction = collective.reduction() == bundle::Collective::MAX
                       ? comm::Reduction::kMax
                       : comm::Reduction::kSum;
  call.wire = collective.wire() == bundle::DTYPE_NONE
                  ? call.type
                  : typeOf(collective.wire());
  call.accumulate = collective.accumulate() != bundle::DTYPE_NONE
                        ? typeOf(collective.accumulate())
                    : call.type == comm::Type::kBf16 ? comm::Type::kF32
                                                     : call.type;
  call.count = all;
  call.root = static_cast<int>(collective.offset());
  call.site = {exchange->label, static_cast<int64_t>(collective.sequence())};
  call.send = address(collective.parts(0).send());
  call.receive = address(collective.parts(0).receive());
  auto stage = [&](bool isSend, uint8_t *bytes, std::vector<Copy> &copies) {
    int64_t before = 0; // elements of the parts so far
    for (const bundle::Collective::Part &part : collective.parts()) {
      int64_t pieces = isSend ? sends : receives;
      for (int64_t piece = 0; piece < pieces; ++piece)
        copies.push_back(rowsOf(
            part.count(), isSend ? part.send_outer() : part.receive_outer(),
            pieces, piece, address(isSend ? part.send() : part.receive()),
            bytes + (piece * all + before) * width, isSend));
      before += part.count();
    }
  };
  if (collective.has_send_stage()) {
    uint8_t *bytes = address(collective.send_stage());
    stage(true, bytes, exchange->before);
    call.send = bytes;
  }
  if (collective.has_receive_stage()) {
    uint8_t *bytes = address(collective.receive_stage());
    stage(false, bytes, exchange->after);
    call.receive = bytes;
  }
  exchanges.push_back(std::move(exchange));
  return static_cast<uint32_t>(exchanges.size() - 1);
}

absl::Status Exchanges::copy(const std::vector<Copy> &copies) const {
  for (const Copy &one : copies) {
    if (copyOne) {
      QWEN35_RETURN_IF_ERROR(copyOne(one));
      continue;
    }
    for (int64_t row = 0; row < one.rows; ++row)
      std::memcpy(one.to + row * one.toStride, one.from + row * one.fromStride,
                  static_cast<size_t>(one.width));
  }
  return absl::OkStatus();
}

absl::Status Exchanges::run(uint32_t index) {
  const Exchange &exchange = *exchanges[index];
  QWEN35_RETURN_IF_ERROR(copy(exchange.before));
  if (!exchange.communicator)
    return absl::OkStatus();
  QWEN35_RETURN_IF_ERROR(exchange.communicator->run(exchange.call));
  return copy(exchange.after);
}

} // namespace qwen35
