#include "passes/Partition/Reshard.h"

using namespace mlir;

namespace qwen35 {

using qdist::Sharding;

ArrayAttr namesOf(OpBuilder &b, MeshAxes axes, const Mesh &mesh) {
  SmallVector<Attribute> names;
  for (const std::string &name : mesh.names(axes))
    names.push_back(b.getStringAttr(name));
  return b.getArrayAttr(names);
}

Value allReduce(OpBuilder &b, Location loc, Value value, MeshAxes axes,
                const Mesh &mesh, StringRef kind) {
  return qdist::AllReduceOp::create(b, loc, value.getType(), value,
                                    namesOf(b, axes, mesh), qdist::WireAttr(),
                                    b.getStringAttr(kind))
      .getResult(0);
}

Value localIds(OpBuilder &b, Location loc, Value ids, MeshAxes axes,
               int64_t size, const Mesh &mesh) {
  return qdist::LocalIdsOp::create(b, loc, ids.getType(), ids,
                                   namesOf(b, axes, mesh), size);
}

namespace {

/// The steps from one split to another, in the order of their cost.
class Resharder {
public:
  Resharder(OpBuilder &builder, Location loc, Value value, const Sharding &from,
            const Sharding &to, const Mesh &mesh)
      : b(builder), loc(loc), value(value), now(from), to(to), mesh(mesh) {}

  FailureOr<Value> run() {
    if (isa<SeqType>(value.getType())) {
      if (now.dims == to.dims)
        return value;
      return emitError(loc) << "a document table split over "
                            << mesh.describe(now.dims[0])
                            << " is asked for over "
                            << mesh.describe(to.dims[0])
                            << ", and tables do not move between ranks";
    }
    if (to.partial & ~now.partial)
      return emitError(loc) << "a value that is partial over "
                            << mesh.describe(now.partial)
                            << " is asked for partial over "
                            << mesh.describe(to.partial);
    reduceScatter();
    if (MeshAxes rest = now.partial & ~to.partial) {
      value = allReduce(b, loc, value, rest, mesh, now.isMax ? "max" : "sum");
      now.partial &= ~rest;
    }
    allToAll();
    for (size_t dim = 0; dim < now.dims.size(); ++dim)
      gather(dim);
    for (size_t dim = 0; dim < now.dims.size(); ++dim)
      slice(dim);
    return value;
  }

private:
  ArrayRef<int64_t> shape() const {
    return cast<RankedTensorType>(value.getType()).getShape();
  }
  Type resized(std::initializer_list<std::pair<size_t, int64_t>> sizes) const {
    SmallVector<int64_t> dims(shape());
    for (auto [dim, size] : sizes)
      dims[dim] = size;
    return cast<RankedTensorType>(value.getType()).clone(dims);
  }
  MeshAxes missing(size_t dim) const { return to.dims[dim] & ~now.dims[dim]; }
  MeshAxes surplus(size_t dim) const { return now.dims[dim] & ~to.dims[dim]; }

  /// Partial sums of which every rank needs a piece only.
  void reduceScatter() {
    if (now.isMax)
      return;
    for (size_t dim = 0; dim < now.dims.size(); ++dim) {
      MeshAxes axes = missing(dim) & now.partial & ~to.partial;
      MeshAxes outer = missing(dim) & ~axes;
      if (!axes || !Mesh::isInner(axes, now.dims[dim] | outer) ||
          !Mesh::isInner(outer, now.dims[dim]) || !to.sectionsOf(dim).empty())
        continue;
      if (outer) { // a slice of a partial sum is one too
        value = sliced(value, dim, outer);
        now.dims[dim] |= outer;
      }
      value = qdist::ReduceScatterOp::create(
                  b, loc, resized({{dim, shape()[dim] / mesh.size(axes)}}),
                  value, namesOf(b, axes, mesh), qdist::WireAttr(), dim)
                  .getResult(0);
      now.dims[dim] |= axes;
      now.partial &= ~axes;
    }
  }

  /// One dimension loses the axes that another gets.
  void allToAll() {
    for (size_t from = 0; from < now.dims.size(); ++from)
      for (size_t dim = 0; dim < now.dims.size(); ++dim) {
        MeshAxes axes = surplus(from);
        if (!axes || from == dim || missing(dim) != axes ||
            !now.sectionsOf(from).empty() || !to.sectionsOf(dim).empty() ||
            !Mesh::isInner(axes, now.dims[from] & ~axes) ||
            !Mesh::isInner(axes, now.dims[dim]))
          continue;
        int64_t ranks = mesh.size(axes);
        value = qdist::AllToAllOp::create(
                    b, loc,
                    resized({{dim, shape()[dim] / ranks},
                             {from, shape()[from] * ranks}}),
                    value, namesOf(b, axes, mesh), qdist::WireAttr(), dim, from)
                    .getResult(0);
        now.dims[from] &= ~axes;
        now.dims[dim] |= axes;
      }
  }

  void gather(size_t dim) {
    MeshAxes axes = surplus(dim);
    // What is cut finer than a slice to come has to be whole first.
    if (MeshAxes later = missing(dim))
      axes |= now.dims[dim] & ~((later & (~later + 1)) - 1);
    bool otherSections = now.dims[dim] && to.dims[dim] &&
                         now.sectionsOf(dim) != to.sectionsOf(dim);
    if (otherSections)
      axes = now.dims[dim];
    if (!axes)
      return;
    // What lies inside of a gathered axis comes along, to be contiguous.
    axes = now.dims[dim] & ~((axes & (~axes + 1)) - 1);
    if (!now.sectionsOf(dim).empty())
      axes = now.dims[dim];
    int64_t ranks = mesh.size(axes), piece = shape()[dim];
    value = qdist::AllGatherOp::create(b, loc, resized({{dim, piece * ranks}}),
                                       value, namesOf(b, axes, mesh),
                                       qdist::WireAttr(), dim)
                .getResult(0);
    if (!now.sectionsOf(dim).empty()) {
      // The ranks' parts lie one after the other: put sections together.
      SmallVector<Value> parts;
      int64_t offset = 0;
      for (int64_t section : now.sectionsOf(dim)) {
        for (int64_t rank = 0; rank < ranks; ++rank)
          parts.push_back(SliceOp::create(b, loc, value, dim,
                                          rank * piece + offset,
                                          section / ranks));
        offset += section / ranks;
      }
      value = ConcatOp::create(b, loc, parts, dim);
      now.setSections(dim, {});
    }
    now.dims[dim] &= ~axes;
  }

  Value sliced(Value whole, size_t dim, MeshAxes axes) {
    auto type = cast<RankedTensorType>(whole.getType());
    SmallVector<int64_t> dims(type.getShape());
    dims[dim] /= mesh.size(axes);
    return qdist::AllSliceOp::create(b, loc, type.clone(dims), whole,
                                     namesOf(b, axes, mesh), qdist::WireAttr(),
                                     dim)
        .getResult(0);
  }

  void slice(size_t dim) {
    MeshAxes axes = missing(dim);
    if (!axes)
      return;
    if (to.sectionsOf(dim).empty()) {
      value = sliced(value, dim, axes);
    } else {
      SmallVector<Value> parts;
      int64_t start = 0;
      for (int64_t section : to.sectionsOf(dim)) {
        parts.push_back(sliced(
            SliceOp::create(b, loc, value, dim, start, section), dim, axes));
        start += section;
      }
      value = ConcatOp::create(b, loc, parts, dim);
      now.setSections(dim, to.sectionsOf(dim));
    }
    now.dims[dim] |= axes;
  }

  OpBuilder &b;
  Location loc;
  Value value;
  Sharding now;
  const Sharding &to;
  const Mesh &mesh;
};

} // namespace

FailureOr<Value> reshard(OpBuilder &builder, Location loc, Value value,
                         const Sharding &from, const Sharding &to,
                         const Mesh &mesh) {
  if (from == to)
    return value;
  return Resharder(builder, loc, value, from, to, mesh).run();
}

} // namespace qwen35
