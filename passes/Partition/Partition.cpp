#include "dialect/Qwen35/IR/StepAttrs.h"
#include "passes/Partition/Passes.h"
#include "passes/Partition/Reshard.h"
#include "passes/Partition/Stripes.h"

#include "llvm/ADT/MapVector.h"

using namespace mlir;

namespace qwen35 {

#define GEN_PASS_DEF_PARTITION
#include "passes/Partition/Passes.h.inc"

namespace {

using qdist::Sharding;

/// A rank's part of a value.
struct Part {
  Value value;
  Sharding sharding;
};

/// Rewrites one function in place.
class Partitioner {
public:
  Partitioner(func::FuncOp function, const Mesh &mesh, bool regather)
      : function(function), mesh(mesh), regather(regather),
        b(function.getContext()), striped(b, mesh) {}

  LogicalResult run() {
    Block &body = function.getBody().front();
    SmallVector<Operation *> ops;
    for (Operation &op : body)
      ops.push_back(&op);
    for (BlockArgument argument : body.getArguments()) {
      unsigned i = argument.getArgNumber();
      auto sharding = attrOf(function.getArgAttr(i, qdist::kShardingAttr));
      if (failed(sharding))
        return function.emitError("argument ") << i << noSharding();
      if (auto wrong = sharding->misfit(argument.getType(), mesh))
        return function.emitError("argument ") << i << ": its split " << *wrong;
      // The old body goes on reading the argument until it is erased; types
      // are fixed up at once because nothing looks at them in between.
      argument.setType(sharding->localType(argument.getType(), mesh));
      parts[argument] = {argument, *sharding};
      if (auto name = function.getArgAttrOfType<StringAttr>(i, kNameAttr);
          name && name.getValue() == kStripesName)
        stripes = argument;
    }
    for (Operation *op : ops) {
      b.setInsertionPoint(body.getTerminator());
      if (failed(op->hasTrait<OpTrait::IsTerminator>() ? finish(op)
                                                       : visit(op)))
        return failure();
    }
    for (Operation *op : llvm::reverse(ops))
      if (!op->hasTrait<OpTrait::IsTerminator>())
        op->erase();
    function.setFunctionType(b.getFunctionType(
        body.getArgumentTypes(), body.getTerminator()->getOperandTypes()));
    return success();
  }

private:
  static const char *noSharding() {
    return " has no '#qdist.sharding'; run --qwen35-shard-propagate first";
  }

  FailureOr<Sharding> attrOf(Attribute attr) {
    auto sharding = dyn_cast_or_null<qdist::ShardingAttr>(attr);
    if (!sharding)
      return failure();
    return Sharding::of(sharding, mesh);
  }

  FailureOr<SmallVector<Sharding>> listOf(Operation *op, StringRef name,
                                          size_t size) {
    SmallVector<Sharding> list;
    if (auto attrs = op->getAttrOfType<ArrayAttr>(name))
      for (Attribute attr : attrs) {
        auto one = attrOf(attr);
        if (failed(one))
          return failure();
        list.push_back(*one);
      }
    if (list.size() != size) {
      op->emitError("'") << op->getName() << "'" << noSharding();
      return failure();
    }
    return list;
  }

  /// The part of `value` that the op at hand asks for; moved once for all that
  /// ask alike.
  FailureOr<Value> part(Location loc, Value value, const Sharding &asked) {
    const Part &made = parts.at(value);
    if (made.sharding == asked)
      return made.value;
    for (const Part &known : moved[value])
      if (known.sharding == asked)
        return known.value;
    auto converted = reshard(b, loc, made.value, made.sharding, asked, mesh);
    if (failed(converted))
      return failure();
    moved[value].push_back({*converted, asked});
    if (auto gather = converted->getDefiningOp<qdist::AllGatherOp>();
        gather && backward) // not the one of the forward pass
      gather->setAttr(kRecomputeAttr, b.getUnitAttr());
    return *converted;
  }

  /// A weight that backward gathers, though forward has.
  LogicalResult moveAgain(Operation *op, const Sharding &asked) {
    const Part made = parts.at(op->getOperand(0));
    auto again = reshard(b, op->getLoc(), made.value, made.sharding, asked,
                         mesh);
    if (failed(again))
      return failure();
    if (Operation *last = again->getDefiningOp(); *again != made.value)
      last->setAttr(kRecomputeAttr, b.getUnitAttr());
    keep(op->getResult(0), *again, asked);
    return success();
  }

  void keep(Value old, Value value, const Sharding &sharding) {
    parts[old] = {value, sharding};
  }

  LogicalResult visit(Operation *op) {
    auto operands = listOf(op, qdist::kOperandsAttr, op->getNumOperands());
    auto results = listOf(op, qdist::kResultsAttr, op->getNumResults());
    if (failed(operands) || failed(results))
      return failure();
    if (auto norm = dyn_cast<NormSqOp>(op))
      return addSquares(norm, (*operands)[0]);
    if (isa<qdist::ShardConstraintOp>(op) && op->hasAttr(kRecomputeAttr))
      return moveAgain(op, (*results)[0]);
    SmallVector<Value> inputs;
    for (auto [operand, asked] : llvm::zip_equal(op->getOperands(), *operands)) {
      if (squares.count(operand))
        keep(operand, totalOf(operand), Sharding(0));
      auto input = part(op->getLoc(), operand, asked);
      if (failed(input))
        return failure();
      inputs.push_back(*input);
    }
    if (isa<qdist::ShardConstraintOp>(op)) {
      keep(op->getResult(0), inputs[0], (*results)[0]);
      return success();
    }
    if (isa<LmLossGradOp>(op) && regather) {
      backward = true;
      moved.clear();
    }
    if (isa<LmLossOp, LmLossGradOp>(op) && (*operands)[1].dims[0]) {
      splitHead(op, inputs, *operands, *results);
      return success();
    }
    if (isa<RouterAuxOp, RouterAuxBwdOp>(op) && operands->back().dims[0]) {
      splitAux(op, inputs, operands->back().dims[0], *results);
      return success();
    }
    if (isStriped(op, *operands)) {
      if (!stripes)
        return op->emitError("'")
               << op->getName() << "' reads tokens that lie on several ranks, "
               << "but the function has no argument \"" << kStripesName
               << "\", which --qwen35-shard-seed adds";
      SmallVector<Value> placed = striped.place(op, inputs, stripes);
      if (placed.empty())
        return op->emitError("'")
               << op->getName() << "' has no form for the stripes of a row";
      for (auto [old, value, sharding] :
           llvm::zip_equal(op->getResults(), placed, *results))
        keep(old, value, sharding);
      return success();
    }
    Operation *local = clone(op, inputs, *results);
    if (failed(adjust(local, *operands, *results)))
      return failure();
    for (auto [old, value, sharding] :
         llvm::zip_equal(op->getResults(), local->getResults(), *results))
      keep(old, value, sharding);
    return success();
  }

  /// Whether the op reads tokens in order of which a rank has stripes only.
  bool isStriped(Operation *op, ArrayRef<Sharding> operands) {
    MeshAxes cp = *mesh.axes("cp");
    for (auto [operand, sharding] :
         llvm::zip_equal(op->getOperands(), operands))
      if (isa<SeqType>(operand.getType()) && (sharding.dims[0] & cp))
        return true;
    return false;
  }

  /// The op on local operands, with local results.
  Operation *clone(Operation *op, ArrayRef<Value> inputs,
                   ArrayRef<Sharding> results) {
    Operation *local = b.clone(*op);
    local->setOperands(inputs);
    local->removeAttr(qdist::kOperandsAttr);
    local->removeAttr(qdist::kResultsAttr);
    for (auto [result, sharding] :
         llvm::zip_equal(local->getResults(), results))
      result.setType(sharding.localType(result.getType(), mesh));
    return local;
  }

  static int64_t rowsOf(Value value) {
    return cast<RankedTensorType>(value.getType()).getDimSize(0);
  }

  void localizeIds(Operation *op, OpOperand &ids, MeshAxes axes, int64_t size) {
    OpBuilder before(op);
    ids.set(localIds(before, op->getLoc(), ids.get(), axes, size, mesh));
  }

  /// Attributes that count elements of what is now split.
  LogicalResult adjust(Operation *local, ArrayRef<Sharding> operands,
                       ArrayRef<Sharding> results) {
    if (auto slice = dyn_cast<SliceOp>(local)) {
      auto dim = static_cast<size_t>(slice.getAxis());
      int64_t ranks = mesh.size(operands[0].dims[dim]);
      // Sections before it are split alike.
      slice.setStart(slice.getStart() / ranks);
      slice.setSize(slice.getSize() / ranks);
    } else if (auto embed = dyn_cast<EmbedOp>(local)) {
      if (MeshAxes axes = operands[1].dims[0]) {
        localizeIds(local, embed.getIdsMutable(), axes,
                    rowsOf(embed.getTable()));
        embed.setShard(true);
      }
    } else if (auto gradient = dyn_cast<EmbedBwdOp>(local)) {
      if (MeshAxes axes = results[0].dims[0]) {
        gradient.setVocab(rowsOf(gradient.getDtable()));
        localizeIds(local, gradient.getIdsMutable(), axes,
                    rowsOf(gradient.getDtable()));
        gradient.setShard(true);
      }
    } else if (auto experts = dyn_cast<MoeExpertsOp>(local)) {
      if (MeshAxes axes = operands[3].dims[0]) {
        localizeIds(local, experts.getIdxMutable(), axes,
                    rowsOf(experts.getWDown()));
        experts.setShard(true);
      }
    } else if (auto experts = dyn_cast<MoeExpertsBwdOp>(local)) {
      if (MeshAxes axes = operands[4].dims[0]) {
        localizeIds(local, experts.getIdxMutable(), axes,
                    rowsOf(experts.getWDown()));
        experts.setShard(true);
      }
    }
    return success();
  }

  /// lm_loss or lm_loss_grad of a head whose rows are split: statistics of the
  /// rank's rows, reduced over the ranks, then loss and gradients from those.
  void splitHead(Operation *op, ArrayRef<Value> inputs,
                 ArrayRef<Sharding> operands, ArrayRef<Sharding> results) {
    Location loc = op->getLoc();
    MeshAxes axes = operands[1].dims[0];
    Value h = inputs[0], weight = inputs[1], invCount = inputs[3];
    Value labels =
        localIds(b, loc, inputs[2], axes, rowsOf(weight), mesh);
    auto stats = LmStatsOp::create(b, loc, h, weight, labels);
    Value highest = allReduce(b, loc, stats.getHighest(), axes, mesh, "max");
    Value sum = RescaleSumOp::create(b, loc, stats.getSum(), stats.getHighest(),
                                     highest);
    sum = allReduce(b, loc, sum, axes, mesh);
    Value target = allReduce(b, loc, stats.getTarget(), axes, mesh);
    Value loss = LmStatsLossOp::create(b, loc, labels, invCount, highest, sum,
                                       target);
    keep(op->getResult(0), loss, results[0]);
    if (isa<LmLossOp>(op))
      return;
    auto gradient = LmStatsGradOp::create(b, loc, h, weight, labels, invCount,
                                          highest, sum);
    keep(op->getResult(1), gradient.getDh(), results[1]);
    keep(op->getResult(2), gradient.getDweight(), results[2]);
  }

  /// router_aux or its gradient where ranks have other rows: what it counts of
  /// the rank's own, added up, then loss or gradient from that.
  void splitAux(Operation *op, ArrayRef<Value> inputs, MeshAxes axes,
                ArrayRef<Sharding> results) {
    Location loc = op->getLoc();
    bool forward = isa<RouterAuxOp>(op);
    ArrayRef<Value> routed = forward ? inputs : inputs.drop_front();
    size_t layers = routed.size() / 2;
    StringAttr scope = op->getAttrOfType<StringAttr>("scope");
    // Backward needs what forward has counted.
    Value key = forward ? cast<RouterAuxOp>(op).getIdx().front()
                        : cast<RouterAuxBwdOp>(op).getIdx().front();
    SmallVector<Value> &sums = counted[key];
    if (sums.empty()) {
      auto stats = RouterStatsOp::create(b, loc, routed.take_front(layers),
                                         routed.slice(layers, layers),
                                         inputs.back(), scope);
      for (Value part : stats.getResults())
        sums.push_back(allReduce(b, loc, part, axes, mesh));
    }
    auto count = b.getI64IntegerAttr(static_cast<int64_t>(layers));
    auto slots = b.getI64IntegerAttr(
        cast<RankedTensorType>(routed[layers].getType()).getDimSize(1));
    if (forward) {
      auto aux = RouterStatsAuxOp::create(b, loc, sums[0], sums[1], sums[2],
                                          scope, count, slots);
      keep(op->getResult(0), aux, results[0]);
      return;
    }
    auto gradient = RouterStatsGradOp::create(
        b, loc, inputs[0], sums[0], sums[2], inputs.back(), scope, count, slots);
    for (auto [old, value, sharding] :
         llvm::zip_equal(op->getResults(), gradient.getResults(), results))
      keep(old, value, sharding);
  }

  /// A chain of norm_sq: what it started from, and the rank's parts of what it
  /// adds up, by the axes that split them.
  struct Squares {
    Value initial;
    llvm::MapVector<MeshAxes, SmallVector<Value>> parts;
  };

  LogicalResult addSquares(NormSqOp op, const Sharding &asked) {
    auto x = part(op.getLoc(), op.getX(), asked);
    if (failed(x))
      return failure();
    Squares chain;
    if (auto found = squares.find(op.getAcc()); found != squares.end())
      chain = found->second;
    else
      chain.initial = parts.at(op.getAcc()).value;
    chain.parts[asked.split()].push_back(*x);
    squares[op.getResult()] = std::move(chain);
    return success();
  }

  /// The sum of a chain over all ranks, each element counted once: widest
  /// split first, reduced over the axes that the next one is not split over.
  Value totalOf(Value old) {
    Location loc = old.getLoc();
    Squares chain = squares.lookup(old);
    squares.erase(old);
    auto groups = chain.parts.takeVector();
    llvm::sort(groups, [&](const auto &a, const auto &b) {
      return std::pair(-mesh.size(a.first), a.first) <
             std::pair(-mesh.size(b.first), b.first);
    });
    SmallVector<Value> sums;
    bool fromZero = chain.initial.getDefiningOp<ZerosOp>() != nullptr;
    if (!fromZero)
      sums.push_back(chain.initial);
    auto zero = [&]() -> Value {
      return fromZero ? chain.initial
                      : ZerosOp::create(b, loc, chain.initial.getType())
                            .getResult();
    };
    Value sum;
    MeshAxes axes = 0;
    auto reduceTo = [&](MeshAxes kept) {
      if (MeshAxes gone = axes & ~kept)
        sum = allReduce(b, loc, sum, gone, mesh);
      axes = kept;
    };
    for (auto &[split, parts] : groups) {
      if (sum && (split & ~axes)) { // not inside of the last one
        reduceTo(0);
        sums.push_back(sum);
        sum = Value();
      }
      if (sum)
        reduceTo(split);
      else
        sum = zero();
      axes = split;
      for (Value x : parts)
        sum = NormSqOp::create(b, loc, x, sum);
    }
    reduceTo(0);
    for (Value other : sums)
      sum = AddOp::create(b, loc, other, sum);
    return sum;
  }

  LogicalResult finish(Operation *end) {
    SmallVector<Value> returned;
    for (auto [i, value] : llvm::enumerate(end->getOperands())) {
      auto asked = attrOf(function.getResultAttr(i, qdist::kShardingAttr));
      if (failed(asked))
        return function.emitError("result ") << i << noSharding();
      if (squares.count(value))
        keep(value, totalOf(value), Sharding(0));
      auto result = part(end->getLoc(), value, *asked);
      if (failed(result))
        return failure();
      returned.push_back(*result);
    }
    end->setOperands(returned);
    return success();
  }

  func::FuncOp function;
  const Mesh &mesh;
  bool regather, backward = false;
  OpBuilder b;
  StripedOps striped;
  Value stripes; // the rank's stripe table, where it has stripes
  DenseMap<Value, Part> parts;
  DenseMap<Value, SmallVector<Part>> moved;
  DenseMap<Value, Squares> squares;
  DenseMap<Value, SmallVector<Value>> counted; // by the first layer's experts
};

struct Partition : impl::PartitionBase<Partition> {
  using PartitionBase::PartitionBase;

  void runOnOperation() override {
    std::optional<Mesh> mesh = qdist::meshOf(getOperation());
    if (!mesh) {
      getOperation().emitError("has no '")
          << qdist::kMeshAttr << "'; run --qwen35-shard-seed first";
      return signalPassFailure();
    }
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (failed(Partitioner(function, *mesh, regather).run()))
        return signalPassFailure();
  }
};

} // namespace
} // namespace qwen35
