#include "dialect/Interpreter/Collectives.h"

#include "llvm/ADT/TypeSwitch.h"

#include <algorithm>

using namespace mlir;

namespace qwen35::interpreter {
namespace {

/// Sizes of the dimensions before and after one, and its own.
struct Dim {
  int64_t outer = 1, size = 1, inner = 1;

  Dim(ArrayRef<int64_t> shape, int64_t dim) : size(shape[dim]) {
    for (int64_t n : shape.take_front(dim))
      outer *= n;
    for (int64_t n : shape.drop_front(dim + 1))
      inner *= n;
  }
};

/// The pieces, joined along a dimension of theirs.
template <typename T>
std::vector<T> join(ArrayRef<const std::vector<T> *> pieces, Dim dim) {
  std::vector<T> whole;
  whole.reserve(pieces.size() * pieces[0]->size());
  int64_t run = dim.size * dim.inner;
  for (int64_t o = 0; o < dim.outer; ++o)
    for (const std::vector<T> *piece : pieces)
      whole.insert(whole.end(), piece->begin() + o * run,
                   piece->begin() + (o + 1) * run);
  return whole;
}

/// Piece `index` of `count` along a dimension.
template <typename T>
std::vector<T> cut(const std::vector<T> &whole, Dim dim, int64_t index,
                   int64_t count) {
  std::vector<T> piece;
  piece.reserve(whole.size() / count);
  int64_t run = dim.size / count * dim.inner;
  for (int64_t o = 0; o < dim.outer; ++o) {
    auto first = whole.begin() + (o * count + index) * run;
    piece.insert(piece.end(), first, first + run);
  }
  return piece;
}

template <typename T>
void sendAs(std::vector<T> &values, std::optional<qdist::WireAttr> wire) {
  if constexpr (std::is_same_v<T, float>)
    if (wire && *wire && wire->getType().isBF16())
      roundToBf16(absl::MakeSpan(values));
}

/// Sum or maximum in the order of the group.
template <typename T>
std::vector<T> reduce(ArrayRef<const std::vector<T> *> inputs, bool isMax,
                      Type element, std::optional<qdist::WireAttr> wire) {
  std::vector<T> total = *inputs[0];
  sendAs(total, wire);
  for (const std::vector<T> *input : inputs.drop_front()) {
    std::vector<T> sent = *input;
    sendAs(sent, wire);
    for (size_t i = 0; i < total.size(); ++i)
      total[i] = isMax ? std::max(total[i], sent[i]) : total[i] + sent[i];
  }
  if constexpr (std::is_same_v<T, float>)
    if (element.isBF16())
      roundToBf16(absl::MakeSpan(total));
  return total;
}

/// What rank number `self` of a group gets. `inputs` are those of the group.
template <typename T>
std::vector<T> output(Operation *op, ArrayRef<const std::vector<T> *> inputs,
                      RankedTensorType type, int64_t self) {
  auto n = static_cast<int64_t>(inputs.size());
  ArrayRef<int64_t> shape = type.getShape();
  Type element = type.getElementType();
  return TypeSwitch<Operation *, std::vector<T>>(op)
      .Case([&](qdist::AllGatherOp gather) {
        return join<T>(inputs, Dim(shape, gather.getDim()));
      })
      .Case([&](qdist::AllReduceOp sum) {
        std::vector<T> total = reduce<T>(inputs, sum.getKind() == "max",
                                         element, sum.getWire());
        sendAs(total, sum.getWire()); // It is sent as well.
        return total;
      })
      .Case([&](qdist::ReduceScatterOp sum) {
        return cut<T>(reduce<T>(inputs, false, element, sum.getWire()),
                      Dim(shape, sum.getDim()), self, n);
      })
      .Case([&](qdist::AllToAllOp move) {
        Dim split(shape, move.getSplitDim());
        std::vector<std::vector<T>> pieces;
        for (const std::vector<T> *input : inputs)
          pieces.push_back(cut<T>(*input, split, self, n));
        SmallVector<const std::vector<T> *> pointers;
        for (const std::vector<T> &piece : pieces)
          pointers.push_back(&piece);
        SmallVector<int64_t> pieceShape(shape);
        pieceShape[move.getSplitDim()] /= n;
        return join<T>(pointers, Dim(pieceShape, move.getConcatDim()));
      })
      .Case([&](qdist::AllSliceOp slice) {
        return cut<T>(*inputs[self], Dim(shape, slice.getDim()), self, n);
      })
      .Case([&](qdist::ShiftOp shift) {
        int64_t from = self - static_cast<int64_t>(shift.getOffset());
        return from >= 0 && from < n ? *inputs[from]
                                     : std::vector<T>(inputs[0]->size());
      });
}

} // namespace

bool isCollective(OperationName name) {
  static const StringRef names[] = {
      qdist::AllGatherOp::getOperationName(),
      qdist::AllReduceOp::getOperationName(),
      qdist::ReduceScatterOp::getOperationName(),
      qdist::AllToAllOp::getOperationName(),
      qdist::AllSliceOp::getOperationName(),
      qdist::ShiftOp::getOperationName(),
      qdist::RankVarOp::getOperationName(),
      qdist::LocalIdsOp::getOperationName()};
  return llvm::is_contained(names, name.getStringRef());
}

template <typename Real>
std::optional<std::string>
evaluateCollective(Operation *op, const Mesh &mesh,
                   std::vector<Frame<Real>> &frames, Memory &memory) {
  MeshAxes axes = qdist::axesOf(mesh, op->getAttrOfType<ArrayAttr>("axes"));
  if (isa<qdist::RankVarOp>(op)) {
    for (auto [rank, frame] : llvm::enumerate(frames))
      frame.writeInts(op->getResult(0))[0] =
          static_cast<int32_t>(mesh.coordinate(rank, axes));
    return std::nullopt;
  }
  if (auto local = dyn_cast<qdist::LocalIdsOp>(op)) {
    auto size = static_cast<int64_t>(local.getSize());
    int64_t rows = size * mesh.size(axes);
    for (auto [rank, frame] : llvm::enumerate(frames)) {
      int64_t first = mesh.coordinate(rank, axes) * size;
      absl::Span<const int32_t> x = frame.readInts(local.getX());
      absl::Span<int32_t> y = frame.writeInts(local.getY());
      for (size_t i = 0; i < x.size(); ++i) {
        if (x[i] >= rows)
          return "id " + std::to_string(x[i]) + " at " + std::to_string(i) +
                 " on rank " + std::to_string(rank) + ", expected less than " +
                 std::to_string(rows);
        bool own = x[i] >= first && x[i] < first + size;
        y[i] = x[i] < 0 ? x[i] : own ? static_cast<int32_t>(x[i] - first) : -1;
      }
    }
    return std::nullopt;
  }
  for (const std::vector<int64_t> &group : mesh.groups(axes))
    for (auto [input, result] :
         llvm::zip_equal(op->getOperands(), op->getResults())) {
      auto type = cast<RankedTensorType>(input.getType());
      SmallVector<Handle> handles;
      for (int64_t rank : group)
        handles.push_back(frames[rank].handle(input));
      std::visit(
          [&](const auto &first) {
            using List = std::decay_t<decltype(first)>;
            SmallVector<const List *> inputs;
            for (const Handle &handle : handles)
              inputs.push_back(&std::get<List>(*handle));
            for (auto [self, rank] : llvm::enumerate(group))
              frames[rank].set(
                  result,
                  memory.own(output<typename List::value_type>(
                      op, inputs, type, static_cast<int64_t>(self))));
          },
          *handles[0]);
    }
  return std::nullopt;
}

template std::optional<std::string>
evaluateCollective<double>(Operation *, const Mesh &,
                           std::vector<Frame<double>> &, Memory &);
template std::optional<std::string>
evaluateCollective<float>(Operation *, const Mesh &,
                          std::vector<Frame<float>> &, Memory &);

} // namespace qwen35::interpreter
