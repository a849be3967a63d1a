#include "dialect/QDist/IR/QDistDialect.h"

#include "llvm/ADT/StringSet.h"

using namespace mlir;

#define GET_OP_CLASSES
#include "dialect/QDist/IR/CollectiveOps.cpp.inc"

namespace qwen35::qdist {
namespace {

/// C1: axes of the mesh, at least one, none twice.
FailureOr<std::pair<Mesh, MeshAxes>> verifyAxes(Operation *op,
                                                ArrayAttr names) {
  std::optional<Mesh> mesh = meshOf(op);
  if (!mesh)
    return op->emitOpError("is in a module without '")
           << kMeshAttr << "', which says what its axes are";
  if (names.empty())
    return op->emitOpError("names no axis");
  MeshAxes all = 0;
  for (StringRef name : names.getAsValueRange<StringAttr>()) {
    std::optional<MeshAxes> axes = mesh->axes({name.data(), name.size()});
    if (!axes) {
      InFlightDiagnostic error = op->emitOpError("runs over \"")
                                 << name << "\", expected axes of the mesh: pp, "
                                 << "dpr, dps, cp, tp";
      for (const Mesh::Atom &atom : mesh->atoms())
        if (StringRef(atom.name).contains('.'))
          error << ", " << atom.name;
      return error;
    }
    if (all & *axes)
      return op->emitOpError("runs over \"")
             << name << "\" twice";
    all |= *axes;
  }
  return std::pair(*mesh, all);
}

/// What all collectives share: C1, C2, and how `change` turns the shape of an
/// input into that of its output; `change` returns what is wrong, or nothing.
template <typename Op>
LogicalResult verifyCollective(
    Op op, function_ref<std::optional<std::string>(SmallVectorImpl<int64_t> &,
                                                   int64_t ranks)>
               change) {
  auto axes = verifyAxes(op, op.getAxes());
  if (failed(axes))
    return failure();
  int64_t ranks = axes->first.size(axes->second);
  if (op.getInputs().empty())
    return op.emitOpError("has no inputs");
  if (op.getInputs().size() != op.getOutputs().size())
    return op.emitOpError("has ") << op.getInputs().size() << " inputs and "
                                  << op.getOutputs().size() << " outputs";
  for (auto [input, output] :
       llvm::zip_equal(op.getInputs(), op.getOutputs())) {
    auto type = cast<RankedTensorType>(input.getType());
    SmallVector<int64_t> shape(type.getShape());
    if (std::optional<std::string> wrong = change(shape, ranks))
      return op.emitOpError() << *wrong;
    auto expected = type.clone(shape);
    if (output.getType() != expected)
      return op.emitOpError("makes ")
             << output.getType() << " of " << type << " over " << ranks
             << " ranks, expected " << expected;
  }
  return success();
}

std::optional<std::string> noDim(ArrayRef<int64_t> shape, int64_t dim,
                                 StringRef name) {
  if (dim >= 0 && dim < static_cast<int64_t>(shape.size()))
    return std::nullopt;
  return (name + " is " + Twine(dim) + " for an input of " +
          Twine(shape.size()) + " dimensions")
      .str();
}

std::optional<std::string> grow(SmallVectorImpl<int64_t> &shape, int64_t dim,
                                int64_t ranks, StringRef name) {
  if (auto wrong = noDim(shape, dim, name))
    return wrong;
  shape[dim] *= ranks;
  return std::nullopt;
}

std::optional<std::string> shrink(SmallVectorImpl<int64_t> &shape, int64_t dim,
                                  int64_t ranks, StringRef name) {
  if (auto wrong = noDim(shape, dim, name))
    return wrong;
  if (shape[dim] % ranks != 0)
    return ("dimension " + Twine(dim) + " of size " + Twine(shape[dim]) +
            " does not split over " + Twine(ranks) + " ranks")
        .str();
  shape[dim] /= ranks;
  return std::nullopt;
}

} // namespace

LogicalResult AllGatherOp::verify() {
  return verifyCollective(*this, [&](auto &shape, int64_t ranks) {
    return grow(shape, getDim(), ranks, "dim");
  });
}

LogicalResult AllReduceOp::verify() {
  if (getKind() != "sum" && getKind() != "max") // C4
    return emitOpError("kind is \"")
           << getKind() << "\", expected \"sum\" or \"max\"";
  return verifyCollective(*this, [&](auto &, int64_t) {
    return std::optional<std::string>();
  });
}

LogicalResult ReduceScatterOp::verify() {
  return verifyCollective(*this, [&](auto &shape, int64_t ranks) {
    return shrink(shape, getDim(), ranks, "dim");
  });
}

LogicalResult AllToAllOp::verify() {
  if (getSplitDim() == getConcatDim()) // C3
    return emitOpError("splits and joins dimension ")
           << getSplitDim() << ", expected two";
  return verifyCollective(*this, [&](auto &shape, int64_t ranks) {
    auto wrong = shrink(shape, getSplitDim(), ranks, "split_dim");
    return wrong ? wrong : grow(shape, getConcatDim(), ranks, "concat_dim");
  });
}

LogicalResult AllSliceOp::verify() {
  return verifyCollective(*this, [&](auto &shape, int64_t ranks) {
    return shrink(shape, getDim(), ranks, "dim");
  });
}

LogicalResult ShiftOp::verify() {
  return verifyCollective(
      *this, [&](auto &, int64_t ranks) -> std::optional<std::string> {
        int64_t offset = getOffset();
        if (offset != 0 && -ranks < offset && offset < ranks) // C4
          return std::nullopt;
        return ("offset is " + Twine(offset) + " in a group of " +
                Twine(ranks) + ", expected a neighbour")
            .str();
      });
}

LogicalResult WaitOp::verify() {
  Operation *started =
      getInputs().empty() ? nullptr : getInputs()[0].getDefiningOp();
  if (!started || !isAsync(started) ||
      !llvm::equal(started->getResults(), getInputs())) // C1
    return emitOpError("takes ")
           << getInputs().size() << " values, expected all results of one "
           << "collective with 'async', in order";
  if (getInputs().getTypes() != getOutputs().getTypes()) // C2
    return emitOpError("gives ") << getOutputs().getTypes() << " for "
                                 << getInputs().getTypes();
  return success();
}

bool isAsync(Operation *op) {
  return isa<AllGatherOp, AllReduceOp, ReduceScatterOp, AllToAllOp, AllSliceOp,
             ShiftOp>(op) &&
         op->getInherentAttr("async").value_or(Attribute());
}

LogicalResult RankVarOp::verify() {
  if (failed(verifyAxes(*this, getAxes())))
    return failure();
  auto type = cast<RankedTensorType>(getCoordinate().getType());
  if (type.getRank() != 0)
    return emitOpError("is ") << type << ", expected tensor<i32>";
  return success();
}

LogicalResult LocalIdsOp::verify() {
  if (static_cast<int64_t>(getSize()) <= 0) // C2
    return emitOpError("size is ")
           << getSize() << ", expected more than 0";
  return failed(verifyAxes(*this, getAxes())) ? failure() : success();
}

LogicalResult ShardConstraintOp::verify() {
  std::optional<Mesh> mesh = meshOf(*this);
  if (!mesh)
    return emitOpError("is in a module without '")
           << kMeshAttr << "', which says what its axes are";
  Sharding sharding = Sharding::of(getSharding(), *mesh);
  if (auto wrong = sharding.misfit(getX().getType(), *mesh)) // C1
    return emitOpError("sharding ") << *wrong;
  if (getKeepPartial() && sharding.partial) // C2
    return emitOpError("keeps what is partial but is partial over ")
           << mesh->describe(sharding.partial) << " itself, expected none";
  return success();
}

} // namespace qwen35::qdist
