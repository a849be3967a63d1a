#include "dialect/QDist/IR/QDistDialect.h"
#include "dialect/QKern/IR/KernelTarget.h"
#include "dialect/QKern/IR/QKernDialect.h"
#include "dialect/Qwen35/IR/StepAttrs.h"
#include "passes/Kernels/Passes.h"
#include "runtime/schema/seq_table.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace qwen35 {

#define GEN_PASS_DEF_TOKERNELS
#include "passes/Kernels/Passes.h.inc"

namespace {

/// Where a value's elements are: `root` is a dense tensor, the rest addresses
/// it in elements.
struct Address {
  Value root;
  int64_t offset = 0;
  SmallVector<int64_t> strides;
};

SmallVector<int64_t> denseStrides(ArrayRef<int64_t> shape) {
  SmallVector<int64_t> strides(shape.size(), 1);
  for (int64_t d = static_cast<int64_t>(shape.size()) - 2; d >= 0; --d)
    strides[d] = strides[d + 1] * shape[d + 1];
  return strides;
}

/// Strides of `to` over the elements of a `from` with `strides`, or nothing if
/// some new dimension would not have a single stride.
std::optional<SmallVector<int64_t>> restride(ArrayRef<int64_t> from,
                                             ArrayRef<int64_t> strides,
                                             ArrayRef<int64_t> to) {
  SmallVector<int64_t> result(to.size(), 1);
  int64_t f = static_cast<int64_t>(from.size()) - 1;
  int64_t t = static_cast<int64_t>(to.size()) - 1;
  while (t >= 0) {
    // Take the shortest runs of dimensions, from the right, of equal size.
    if (f < 0) {
      if (to[t] != 1)
        return std::nullopt;
      --t;
      continue;
    }
    int64_t fFirst = f, tFirst = t;
    int64_t fSize = from[f], tSize = to[t];
    while (fSize != tSize) {
      if (fSize < tSize) {
        if (--fFirst < 0)
          return std::nullopt;
        // Dimensions can only merge when the outer one steps over the inner.
        if (from[fFirst] != 1 && from[fFirst + 1] != 1 &&
            strides[fFirst] != strides[fFirst + 1] * from[fFirst + 1])
          return std::nullopt;
        fSize *= from[fFirst];
      } else {
        if (--tFirst < 0)
          return std::nullopt;
        tSize *= to[tFirst];
      }
    }
    int64_t stride = strides[f];
    for (int64_t d = t; d >= tFirst; --d) {
      result[d] = stride;
      stride *= to[d];
    }
    f = fFirst - 1;
    t = tFirst - 1;
  }
  return result;
}

class KernelLowering {
public:
  KernelLowering(func::FuncOp function, const qkern::KernelTarget &target)
      : function(function), target(target), builder(function.getContext()) {}

  LogicalResult run() {
    lowerSeqArguments();
    for (Operation &op : llvm::make_early_inc_range(
             function.getBody().front().without_terminator()))
      if (failed(lower(&op)))
        return failure();
    if (failed(overwriteState()) || failed(accumulateFanIn()) ||
        failed(mergeUpdates()) || failed(mergeNorms()) ||
        failed(sumSquaresWhereMade()))
      return failure();
    shareStorage();
    return success();
  }

private:
  /// The document table becomes the int32 tensor it is in memory.
  void lowerSeqArguments() {
    Block &body = function.getBody().front();
    for (BlockArgument argument : body.getArguments()) {
      auto seq = dyn_cast<SeqType>(argument.getType());
      if (!seq)
        continue;
      seqTypes[argument] = seq;
      int64_t words = SeqTable{seq.getTokens(), seq.getMaxDocs()}.words();
      argument.setType(
          RankedTensorType::get({words}, builder.getIntegerType(32)));
    }
    function.setFunctionType(builder.getFunctionType(
        body.getArgumentTypes(), function.getResultTypes()));
  }

  Address addressOf(Value value) {
    auto found = views.find(value);
    if (found != views.end())
      return found->second;
    auto type = cast<RankedTensorType>(value.getType());
    return {value, 0, denseStrides(type.getShape())};
  }

  MemRefType memoryType(Value value) {
    auto type = cast<RankedTensorType>(value.getType());
    Address address = addressOf(value);
    if (address.strides == denseStrides(type.getShape()))
      return MemRefType::get(type.getShape(), type.getElementType());
    return MemRefType::get(
        type.getShape(), type.getElementType(),
        StridedLayoutAttr::get(type.getContext(), 0, address.strides));
  }

  LogicalResult lower(Operation *op) {
    builder.setInsertionPoint(op);
    if (auto reshape = dyn_cast<ReshapeOp>(op))
      return lowerReshape(reshape);
    if (auto slice = dyn_cast<SliceOp>(op)) {
      Address address = addressOf(slice.getX());
      address.offset += slice.getStart() * address.strides[slice.getAxis()];
      replaceByView(op, address);
      return success();
    }
    if (auto group = dyn_cast<qkern::GroupOp>(op))
      return lowerGroup(group);
    if (auto concat = dyn_cast<ConcatOp>(op);
        concat && succeeded(lowerToJoin(concat)))
      return success();
    if (isa<qdist::RankVarOp>(op)) // A place that the runtime fills.
      return success();
    if (auto local = dyn_cast<qdist::LocalIdsOp>(op))
      return lowerLocalIds(local);
    if (auto wait = dyn_cast<qdist::WaitOp>(op)) {
      lowerWait(wait);
      return success();
    }
    if (op->getName().getDialectNamespace() == "qdist")
      return lowerCollective(op);
    return lowerToDispatch(op);
  }

  /// The rows of the rank's own table: its coordinate is an operand.
  LogicalResult lowerLocalIds(qdist::LocalIdsOp op) {
    auto scalar = RankedTensorType::get({}, builder.getIntegerType(32));
    Value coordinate = qdist::RankVarOp::create(builder, op.getLoc(), scalar,
                                                op.getAxes());
    NamedAttrList config;
    config.set("size", op.getSizeAttr());
    FailureOr<qkern::DispatchOp> call =
        dispatch(op, "local_ids", config.getDictionary(op.getContext()),
                 {op.getX(), coordinate}, {op.getY().getType()});
    if (failed(call))
      return failure();
    op->replaceAllUsesWith(*call);
    op->erase();
    return success();
  }

  /// Elements before the dimension, in rows of which the rest of a tensor lies.
  static int64_t outerOf(ArrayRef<int64_t> shape, int64_t dim) {
    int64_t outer = 1;
    for (int64_t size : shape.take_front(dim))
      outer *= size;
    return outer;
  }

  /// A wait per exchange that the collective has become, if any.
  void lowerWait(qdist::WaitOp op) {
    llvm::SetVector<Operation *> started;
    for (auto [input, output] :
         llvm::zip_equal(op.getInputs(), op.getOutputs()))
      if (auto exchange = input.getDefiningOp<qkern::CollectiveOp>())
        started.insert(exchange);
      else
        output.replaceAllUsesWith(input);
    for (Operation *exchange : started) {
      auto wait = qkern::WaitOp::create(builder, op.getLoc(),
                                        exchange->getResultTypes(),
                                        exchange->getResults());
      for (auto [input, output] :
           llvm::zip_equal(op.getInputs(), op.getOutputs()))
        if (input.getDefiningOp() == exchange)
          output.replaceAllUsesWith(
              wait.getResult(cast<OpResult>(input).getResultNumber()));
    }
    op.erase();
  }

  /// A collective over one rank does nothing. Others become one exchange per
  /// element type of their inputs, which are made dense.
  LogicalResult lowerCollective(Operation *op) {
    if (!isa<qdist::AllGatherOp, qdist::AllReduceOp, qdist::ReduceScatterOp,
             qdist::AllToAllOp, qdist::AllSliceOp, qdist::ShiftOp>(op))
      return op->emitError("'") << op->getName()
                                << "' is not something that ranks can run: "
                                   "--qwen35-partition should have removed it";
    std::optional<Mesh> mesh = qdist::meshOf(op);
    MeshAxes axes =
        qdist::axesOf(*mesh, op->getAttrOfType<ArrayAttr>("axes"));
    int64_t ranks = mesh->size(axes);
    if (ranks == 1) {
      op->replaceAllUsesWith(op->getOperands());
      op->erase();
      return success();
    }
    SmallVector<Type> types;
    for (Value input : op->getOperands())
      if (Type type = getElementTypeOrSelf(input.getType());
          !llvm::is_contained(types, type))
        types.push_back(type);
    for (Type type : types)
      if (failed(lowerCollective(op, *mesh, axes, ranks, type)))
        return failure();
    op->erase();
    return success();
  }

  LogicalResult lowerCollective(Operation *op, const Mesh &mesh, MeshAxes axes,
                                int64_t ranks, Type type) {
    StringRef kind = op->getName().stripDialect();
    SmallVector<Value> inputs, replaced;
    SmallVector<Type> outputs;
    SmallVector<int64_t> counts, sendOuter, receiveOuter;
    for (auto [input, output] :
         llvm::zip_equal(op->getOperands(), op->getResults())) {
      auto from = cast<RankedTensorType>(input.getType());
      auto to = cast<RankedTensorType>(output.getType());
      if (from.getElementType() != type)
        continue;
      Value dense = input;
      if (addressOf(input).strides != denseStrides(from.getShape())) {
        FailureOr<qkern::DispatchOp> copy =
            dispatch(op, "copy", builder.getDictionaryAttr({}), {input},
                     {from});
        if (failed(copy))
          return failure();
        dense = copy->getResult(0);
      }
      inputs.push_back(dense);
      outputs.push_back(to);
      replaced.push_back(output);
      int64_t send = 1, receive = 1;
      if (auto gather = dyn_cast<qdist::AllGatherOp>(op))
        receive = outerOf(to.getShape(), gather.getDim());
      if (auto scatter = dyn_cast<qdist::ReduceScatterOp>(op))
        send = outerOf(from.getShape(), scatter.getDim());
      if (auto slice = dyn_cast<qdist::AllSliceOp>(op))
        send = outerOf(from.getShape(), slice.getDim());
      if (auto exchange = dyn_cast<qdist::AllToAllOp>(op)) {
        send = outerOf(from.getShape(), exchange.getSplitDim());
        receive = outerOf(to.getShape(), exchange.getConcatDim());
      }
      bool joined = isa<qdist::AllGatherOp, qdist::AllToAllOp>(op);
      counts.push_back(to.getNumElements() / (joined ? ranks : 1));
      sendOuter.push_back(send);
      receiveOuter.push_back(receive);
    }
    SmallVector<Attribute> names;
    for (const std::string &name : mesh.names(axes))
      names.push_back(builder.getStringAttr(name));
    SmallVector<int64_t> aliases(inputs.size(), -1);
    auto exchange = qkern::CollectiveOp::create(
        builder, op->getLoc(), TypeRange(outputs), kind, ValueRange(inputs),
        builder.getArrayAttr(names), ranks, counts, sendOuter, receiveOuter,
        aliases, /*workspace=*/0, /*reduction=*/"sum", /*wire=*/TypeAttr(),
        /*accumulate=*/TypeAttr(), /*offset=*/0);
    exchange.setWorkspace(exchange.stageBytes());
    if (auto wire = op->getAttrOfType<qdist::WireAttr>("wire")) {
      exchange.setWireAttr(TypeAttr::get(wire.getType()));
      exchange.setAccumulateAttr(TypeAttr::get(wire.getAcc()));
    }
    if (auto reduce = dyn_cast<qdist::AllReduceOp>(op))
      exchange.setReduction(reduce.getKind());
    if (auto shift = dyn_cast<qdist::ShiftOp>(op))
      exchange.setOffset(shift.getOffset());
    exchange.setAsync(qdist::isAsync(op));
    for (auto [output, result] :
         llvm::zip_equal(replaced, exchange.getResults()))
      output.replaceAllUsesWith(result);
    return success();
  }

  /// A group is the kernel named by its ops in order. Operands are what they
  /// read from outside, in order; constants are those of all parts.
  LogicalResult lowerGroup(qkern::GroupOp group) {
    std::string kernel;
    NamedAttrList config;
    SmallVector<Value> inputs;
    Block &body = group.getBody().front();
    for (Operation &part : body.without_terminator()) {
      kernel += (kernel.empty() ? "" : "_") +
                part.getName().stripDialect().str();
      addConfig(config, &part);
      for (Value operand : part.getOperands())
        if (operand.getParentBlock() != &body)
          inputs.push_back(operand);
    }
    FailureOr<qkern::DispatchOp> call =
        dispatch(group, kernel, config.getDictionary(group.getContext()),
                 inputs, SmallVector<Type>(group->getResultTypes()));
    if (failed(call))
      return failure();
    group->replaceAllUsesWith(*call);
    group->erase();
    return success();
  }

  void replaceByView(Operation *op, Address address) {
    Value view = qkern::ViewOp::create(builder, op->getLoc(),
                                       op->getResult(0).getType(),
                                       address.root, address.offset,
                                       address.strides);
    views[view] = address;
    op->getResult(0).replaceAllUsesWith(view);
    op->erase();
  }

  LogicalResult lowerReshape(ReshapeOp op) {
    auto from = cast<RankedTensorType>(op.getX().getType());
    auto to = cast<RankedTensorType>(op.getY().getType());
    Address address = addressOf(op.getX());
    if (auto strides =
            restride(from.getShape(), address.strides, to.getShape())) {
      address.strides = *strides;
      replaceByView(op, address);
      return success();
    }
    // Not addressable in place: a dense copy first.
    FailureOr<qkern::DispatchOp> copy =
        dispatch(op, "copy", builder.getDictionaryAttr({}), {op.getX()},
                 {from});
    if (failed(copy))
      return failure();
    replaceByView(op, {copy->getResult(0), 0, denseStrides(to.getShape())});
    return success();
  }

  static MemRefType stridedType(RankedTensorType type,
                                ArrayRef<int64_t> strides) {
    return MemRefType::get(
        type.getShape(), type.getElementType(),
        StridedLayoutAttr::get(type.getContext(), 0, strides));
  }

  /// A concat of what kernels make for it alone: they write their parts of the
  /// result, if they can write views. Changes nothing where it fails.
  LogicalResult lowerToJoin(ConcatOp op) {
    constexpr int64_t kVector = 8; // elements at which views start
    auto whole = cast<RankedTensorType>(op.getY().getType());
    SmallVector<int64_t> strides = denseStrides(whole.getShape()), offsets;
    SmallVector<Value> parts;
    SmallVector<Attribute> partStrides;
    DenseMap<Value, MemRefType> types;
    int64_t offset = 0;
    for (Value input : op.getInputs()) {
      auto type = cast<RankedTensorType>(input.getType());
      Address address = addressOf(input);
      auto part = dyn_cast<OpResult>(address.root);
      auto call = address.root.getDefiningOp<qkern::DispatchOp>();
      if (!call || !part.hasOneUse() || !input.hasOneUse() ||
          call.getAliases()[part.getResultNumber()] != -1 ||
          !target.writesViews(call.getKernel(), part.getResultNumber()))
        return failure();
      auto made = cast<RankedTensorType>(part.getType());
      auto placed = restride(type.getShape(), strides, made.getShape());
      auto fits = [](int64_t at) { return at % kVector == 0; };
      if (made.getNumElements() != type.getNumElements() || !placed ||
          address.offset != 0 ||
          address.strides != denseStrides(type.getShape()) || !fits(offset) ||
          !llvm::all_of(ArrayRef(*placed).drop_back(), fits))
        return failure();
      parts.push_back(part);
      offsets.push_back(offset);
      partStrides.push_back(builder.getDenseI64ArrayAttr(*placed));
      types[part] = stridedType(made, *placed);
      offset += type.getDimSize(op.getAxis()) * strides[op.getAxis()];
    }

    // Grids and workspaces may depend on the strides of results.
    llvm::MapVector<Operation *, qkern::LaunchShape> shapes;
    for (Value part : parts) {
      auto call = part.getDefiningOp<qkern::DispatchOp>();
      if (shapes.count(call))
        continue;
      qkern::KernelSignature signature{call.getKernel(), call.getConfig(), {}, {}};
      for (Value input : call.getInputs())
        signature.inputs.push_back(memoryType(input));
      for (Value output : call.getResults()) {
        MemRefType strided = types.lookup(output);
        signature.outputs.push_back(strided ? strided : memoryType(output));
      }
      ScopedDiagnosticHandler quiet(op.getContext(),
                                    [](Diagnostic &) { return success(); });
      FailureOr<qkern::LaunchShape> shape =
          target.launchShape(signature, [&] { return op->emitError(); });
      if (failed(shape))
        return failure();
      llvm::erase_if(shape->mayAlias, [&](auto pair) {
        return types.count(call.getResult(pair.first));
      });
      shapes[call] = *shape;
    }
    for (auto &[op, shape] : shapes) {
      auto call = cast<qkern::DispatchOp>(op);
      call.setGrids(shape.grids);
      call.setWorkspace(shape.workspaceBytes);
      mayAlias[call] = shape.mayAlias;
    }
    SmallVector<Value> inputs(op.getInputs());
    auto join = qkern::JoinOp::create(builder, op.getLoc(), whole, parts,
                                      offsets,
                                      builder.getArrayAttr(partStrides));
    op->replaceAllUsesWith(join);
    op->erase();
    for (Value input : inputs)
      if (auto view = input.getDefiningOp<qkern::ViewOp>()) {
        views.erase(input);
        view.erase();
      }
    return success();
  }

  /// The constants of an op. Element types are in the signature already.
  static void addConfig(NamedAttrList &config, Operation *op) {
    auto properties =
        dyn_cast_or_null<DictionaryAttr>(op->getPropertiesAsAttribute());
    if (!properties)
      return;
    for (NamedAttribute property : properties)
      if (property.getName() != "operandSegmentSizes" &&
          !isa<TypeAttr>(property.getValue()))
        config.append(property);
  }

  LogicalResult lowerToDispatch(Operation *op) {
    NamedAttrList config;
    addConfig(config, op);
    for (Value operand : op->getOperands())
      if (auto seq = seqTypes.lookup(operand)) {
        config.set("tokens", builder.getI64IntegerAttr(seq.getTokens()));
        config.set("max_docs", builder.getI64IntegerAttr(seq.getMaxDocs()));
      }
    FailureOr<qkern::DispatchOp> call =
        dispatch(op, op->getName().stripDialect(),
                 config.getDictionary(op->getContext()),
                 SmallVector<Value>(op->getOperands()),
                 SmallVector<Type>(op->getResultTypes()));
    if (failed(call))
      return failure();
    if (isa<AdamWOp>(op)) { // The working copy has its place from the planner.
      SmallVector<int64_t> aliases = {0, 1, 2};
      aliases.resize(op->getNumResults(), -1);
      call->setAliases(aliases);
    }
    op->replaceAllUsesWith(*call);
    op->erase();
    return success();
  }

  FailureOr<qkern::DispatchOp> dispatch(Operation *op, StringRef kernel,
                                        DictionaryAttr config,
                                        ArrayRef<Value> inputs,
                                        ArrayRef<Type> outputs) {
    qkern::KernelSignature signature{kernel, config, {}, {}};
    for (Value input : inputs)
      signature.inputs.push_back(memoryType(input));
    for (Type output : outputs) {
      auto type = cast<RankedTensorType>(output);
      signature.outputs.push_back(
          MemRefType::get(type.getShape(), type.getElementType()));
    }
    FailureOr<qkern::LaunchShape> shape =
        target.launchShape(signature, [&] { return op->emitError(); });
    if (failed(shape))
      return failure();
    SmallVector<int64_t> aliases(outputs.size(), -1);
    auto call = qkern::DispatchOp::create(
        builder, op->getLoc(), TypeRange(outputs), kernel, ValueRange(inputs),
        config, aliases, shape->grids, shape->workspaceBytes);
    mayAlias[call] = shape->mayAlias;
    return call;
  }

  /// The results that a family adds to what is there with {accumulate = true},
  /// which then is one more operand per such result.
  static ArrayRef<unsigned> sumsOf(StringRef kernel) {
    static constexpr unsigned first[] = {0}, second[] = {1}, weight[] = {2},
                              experts[] = {2, 3};
    if (kernel == "matmul" || kernel == "embed_bwd")
      return first;
    if (kernel == "lm_stats_grad")
      return second;
    if (kernel == "lm_loss_grad")
      return weight;
    if (kernel == "moe_experts_bwd")
      return experts;
    return {};
  }

  /// The add that alone reads a value, or null.
  static qkern::DispatchOp addOf(Value value) {
    auto add = value.hasOneUse()
                   ? dyn_cast<qkern::DispatchOp>(*value.user_begin())
                   : nullptr;
    return add && add.getKernel() == "add" ? add : nullptr;
  }

  static Value otherAddend(qkern::DispatchOp add, Value addend) {
    return add.getInputs()[add.getInputs()[0] == addend ? 1 : 0];
  }

  /// The argument whose place the result of an add takes, by this add, or null.
  /// It may be reduced there on its way out.
  Value overwrittenBy(qkern::DispatchOp add) {
    return overwrittenBy(add, add.getResult(0));
  }

  Value overwrittenBy(qkern::DispatchOp add, Value value) {
    for (OpOperand &use : value.getUses()) {
      if (auto reduce = dyn_cast<qkern::CollectiveOp>(use.getOwner());
          reduce && reduce.getAliases()[use.getOperandNumber()] != -1)
        if (Value argument = overwrittenBy(
                add, reduce.getResult(use.getOperandNumber())))
          return argument;
      if (auto wait = dyn_cast<qkern::WaitOp>(use.getOwner()))
        if (Value argument = overwrittenBy(
                add, wait.getResult(use.getOperandNumber())))
          return argument;
      if (!isa<func::ReturnOp>(use.getOwner()))
        continue;
      auto alias = function.getResultAttrOfType<IntegerAttr>(
          use.getOperandNumber(), kAliasAttr);
      if (!alias)
        continue;
      Value argument = function.getArgument(alias.getInt());
      if (llvm::is_contained(add.getInputs(), argument))
        return argument;
    }
    return nullptr;
  }

  /// Whether a kernel can add all of its sums to what is there: an add alone
  /// reads each, `value` among them, and the others go to arguments.
  bool canAccumulate(Value value) {
    auto call = value.getDefiningOp<qkern::DispatchOp>();
    if (!call || call.getConfig().get("accumulate"))
      return false;
    ArrayRef<unsigned> sums = sumsOf(call.getKernel());
    if (!llvm::is_contained(sums,
                            cast<OpResult>(value).getResultNumber()))
      return false;
    return llvm::all_of(sums, [&](unsigned result) {
      Value sum = call.getResult(result);
      qkern::DispatchOp add = addOf(sum);
      return add && (sum == value || overwrittenBy(add));
    });
  }

  /// add(there, addend), and the adds of the other sums of the kernel that
  /// makes the addend, as that kernel adding to what is there.
  LogicalResult accumulate(Value addend) {
    auto call = addend.getDefiningOp<qkern::DispatchOp>();
    builder.setInsertionPoint(call);
    NamedAttrList config(call.getConfig());
    config.set("accumulate", builder.getBoolAttr(true));
    SmallVector<Value> inputs(call.getInputs());
    SmallVector<int64_t> aliases(call.getNumResults(), -1);
    for (unsigned result : sumsOf(call.getKernel())) {
      Value sum = call.getResult(result);
      aliases[result] = inputs.size();
      inputs.push_back(otherAddend(addOf(sum), sum));
    }
    FailureOr<qkern::DispatchOp> sums =
        dispatch(call, call.getKernel(), config.getDictionary(
                                             builder.getContext()),
                 inputs, SmallVector<Type>(call.getResultTypes()));
    if (failed(sums))
      return failure();
    sums->setAliases(aliases);
    for (unsigned i = 0; i < call.getNumResults(); ++i) {
      Value result = call.getResult(i);
      if (aliases[i] < 0) {
        result.replaceAllUsesWith(sums->getResult(i));
        continue;
      }
      qkern::DispatchOp done = addOf(result);
      done.getResult(0).replaceAllUsesWith(sums->getResult(i));
      mayAlias.erase(done);
      done.erase();
    }
    mayAlias.erase(call);
    call.erase();
    return success();
  }

  /// add(argument, x) as an add per term of x, in the order in which the terms
  /// are there, if a kernel can accumulate one of them; else as it is. The
  /// argument is the first operand.
  FailureOr<SmallVector<qkern::DispatchOp>> addTerms(qkern::DispatchOp add,
                                                     Value argument) {
    SmallVector<Value> terms, open = {otherAddend(add, argument)};
    SmallVector<qkern::DispatchOp> dropped = {add};
    while (!open.empty()) {
      Value term = open.pop_back_val();
      auto sum = term.getDefiningOp<qkern::DispatchOp>();
      if (sum && sum.getKernel() == "add" && term.hasOneUse()) {
        dropped.push_back(sum);
        open.append(sum.getInputs().begin(), sum.getInputs().end());
      } else {
        terms.push_back(term);
      }
    }
    auto splits = [&](Value term) {
      return term.getDefiningOp() && term.getType() == argument.getType();
    };
    if (!llvm::all_of(terms, splits) ||
        !llvm::any_of(terms, [&](Value term) { return canAccumulate(term); }))
      terms = {otherAddend(add, argument)}, dropped = {add};
    llvm::sort(terms, [](Value a, Value b) {
      Operation *ofA = a.getDefiningOp(), *ofB = b.getDefiningOp();
      if (ofA == ofB)
        return cast<OpResult>(a).getResultNumber() <
               cast<OpResult>(b).getResultNumber();
      return ofA->isBeforeInBlock(ofB);
    });

    SmallVector<qkern::DispatchOp> adds;
    Value sum = argument;
    for (Value term : terms) {
      Operation *after = term.getDefiningOp();
      if (!adds.empty() && after->isBeforeInBlock(adds.back()))
        after = adds.back();
      if (terms.size() > 1)
        builder.setInsertionPointAfter(after);
      else
        builder.setInsertionPoint(add);
      FailureOr<qkern::DispatchOp> part =
          dispatch(add, "add", add.getConfig(), {sum, term},
                   {argument.getType()});
      if (failed(part))
        return failure();
      adds.push_back(*part);
      sum = part->getResult(0);
    }
    add.getResult(0).replaceAllUsesWith(sum);
    for (qkern::DispatchOp old : dropped) {
      mayAlias.erase(old);
      old.erase();
    }
    return adds;
  }

  /// What is reduced over ranks to make `value`, where it then is; or `value`.
  Value reduceInPlace(Value value) {
    auto reduceOf = [](Value value) {
      if (auto wait = value.getDefiningOp<qkern::WaitOp>())
        return wait.getStarted();
      return value.getDefiningOp<qkern::CollectiveOp>();
    };
    auto reduce = reduceOf(value);
    while (reduce && reduce.getKind() == "all_reduce") {
      unsigned part = cast<OpResult>(value).getResultNumber();
      Value operand = reduce.getInputs()[part];
      if (!operand.hasOneUse() || !isa<OpResult>(operand) ||
          operand.getDefiningOp<qkern::ViewOp>())
        return value;
      SmallVector<int64_t> aliases(reduce.getAliases());
      aliases[part] = part;
      reduce.setAliases(aliases);
      value = operand;
      reduce = reduceOf(value);
    }
    return value;
  }

  /// Results that must overwrite an argument do so where they are computed:
  /// sum = add(argument, x) in place, and a kernel that only feeds such a sum
  /// accumulates into the argument itself. Where x is a sum, its terms are added
  /// one by one.
  LogicalResult overwriteState() {
    Operation *end = function.getBody().front().getTerminator();
    for (unsigned i = 0; i < function.getNumResults(); ++i) {
      auto alias = function.getResultAttrOfType<IntegerAttr>(i, kAliasAttr);
      if (!alias)
        continue;
      Value value = reduceInPlace(end->getOperand(i));
      auto add = value.getDefiningOp<qkern::DispatchOp>();
      if (!add || add.getKernel() != "add")
        continue;
      Value argument = function.getArgument(alias.getInt());
      if (overwrittenBy(add) != argument)
        continue;
      FailureOr<SmallVector<qkern::DispatchOp>> adds = addTerms(add, argument);
      if (failed(adds))
        return failure();
      for (qkern::DispatchOp part : *adds) {
        Value addend = part.getInputs()[1];
        if (!canAccumulate(addend)) {
          SmallVector<int64_t> aliases = {0};
          part.setAliases(aliases);
        } else if (failed(accumulate(addend))) {
          return failure();
        }
      }
    }
    return success();
  }

  /// Gradients that meet: the later of two kernels that can adds itself to what
  /// is there, if nothing else wants that, and no pass over memory is left.
  LogicalResult accumulateFanIn() {
    SmallVector<qkern::DispatchOp> adds;
    for (auto call : function.getBody().front().getOps<qkern::DispatchOp>())
      if (call.getKernel() == "add" && call.getAliases()[0] == -1)
        adds.push_back(call);
    for (qkern::DispatchOp add : adds)
      for (Value addend : add.getInputs()) {
        if (!canAccumulate(addend))
          continue;
        Value there = otherAddend(add, addend);
        auto earlier = there.getDefiningOp<qkern::DispatchOp>();
        if (!earlier || !earlier->isBeforeInBlock(addend.getDefiningOp()) ||
            !there.hasOneUse() || there.getType() != addend.getType())
          continue;
        if (failed(accumulate(addend)))
          return failure();
        break;
      }
    return success();
  }

  /// A kernel in place of `calls`, where the last of them is: on the inputs
  /// number `role` of all, for every role below `roles`, then the others of the
  /// first; with the results of all, likewise.
  LogicalResult merge(ArrayRef<qkern::DispatchOp> calls, unsigned roles,
                      bool mergesResults) {
    qkern::DispatchOp first = calls.front();
    builder.setInsertionPoint(calls.back());
    SmallVector<Value> inputs;
    SmallVector<Type> outputs;
    SmallVector<int64_t> aliases;
    for (unsigned role = 0; role < roles; ++role)
      for (qkern::DispatchOp call : calls)
        inputs.push_back(call.getInputs()[role]);
    llvm::append_range(inputs, first.getInputs().drop_front(roles));
    for (unsigned i = 0; i < first.getNumResults(); ++i)
      for (size_t n = 0; n < (mergesResults ? calls.size() : 1); ++n) {
        qkern::DispatchOp call = calls[n];
        outputs.push_back(call.getResult(i).getType());
        int64_t alias = call.getAliases()[i];
        aliases.push_back(alias < 0 ? -1 : alias * calls.size() + n);
      }
    FailureOr<qkern::DispatchOp> merged = dispatch(
        first, first.getKernel(), first.getConfig(), inputs, outputs);
    if (failed(merged))
      return failure();
    merged->setAliases(aliases);
    if (!mergesResults) // The last has what the others lead to.
      calls.back()->replaceAllUsesWith(*merged);
    for (size_t n = 0; mergesResults && n < calls.size(); ++n)
      for (unsigned i = 0; i < first.getNumResults(); ++i)
        calls[n]->getResult(i).replaceAllUsesWith(
            merged->getResult(i * calls.size() + n));
    for (qkern::DispatchOp call : llvm::reverse(calls)) {
      mayAlias.erase(call);
      call.erase();
    }
    return success();
  }

  /// `merge` for pieces of `calls` that leave no more than `most` arguments.
  LogicalResult mergePieces(ArrayRef<qkern::DispatchOp> calls, size_t piece,
                            unsigned roles, bool mergesResults) {
    for (; calls.size() > 1; calls = calls.drop_front(
                                 std::min(piece, calls.size())))
      if (failed(merge(calls.take_front(piece), roles, mergesResults)))
        return failure();
    return success();
  }

  /// AdamW of all parameters that agree in constants, scalars and whether there
  /// is a working copy is one kernel, where the target has kernels on lists.
  LogicalResult mergeUpdates() {
    constexpr unsigned kRoles = 4, kScalars = 5; // p, m, v, g; lr ...
    SmallVector<SmallVector<qkern::DispatchOp>> groups;
    auto belongs = [](qkern::DispatchOp a, qkern::DispatchOp b) {
      return a.getConfig() == b.getConfig() &&
             a.getNumResults() == b.getNumResults() &&
             llvm::equal(a.getInputs().drop_front(kRoles),
                         b.getInputs().drop_front(kRoles));
    };
    for (auto call : function.getBody().front().getOps<qkern::DispatchOp>()) {
      auto isReturn = [](Operation *user) { return isa<func::ReturnOp>(user); };
      if (call.getKernel() != "adamw" ||
          call.getInputs().size() != kRoles + kScalars ||
          !llvm::all_of(call->getUsers(), isReturn))
        continue;
      auto *group = llvm::find_if(
          groups, [&](auto &group) { return belongs(group[0], call); });
      if (group == groups.end()) {
        groups.emplace_back();
        group = &groups.back();
      }
      group->push_back(call);
    }
    int64_t most = target.maxListArguments() - kScalars;
    for (ArrayRef<qkern::DispatchOp> group : groups)
      if (int64_t piece = most / (kRoles + group[0]->getNumResults()); piece > 1)
        if (failed(mergePieces(group, piece, kRoles, /*mergesResults=*/true)))
          return failure();
    return success();
  }

  /// norm_sq(a, norm_sq(b, ...)) is one kernel on a list.
  LogicalResult mergeNorms() {
    int64_t piece = target.maxListArguments() - 3; // sums, workspace
    if (piece < 2)
      return success();
    SmallVector<SmallVector<qkern::DispatchOp>> chains;
    for (auto call : function.getBody().front().getOps<qkern::DispatchOp>()) {
      if (call.getKernel() != "norm_sq" || call.getInputs().size() != 2)
        continue;
      Value before = call.getInputs()[1];
      if (chains.empty() || chains.back().back()->getResult(0) != before ||
          !before.hasOneUse())
        chains.emplace_back();
      chains.back().push_back(call);
    }
    for (ArrayRef<qkern::DispatchOp> chain : chains)
      if (failed(mergePieces(chain, piece, 1, /*mergesResults=*/false)))
        return failure();
    return success();
  }

  /// `call` with {squares = true}: a sum of squares is its last result.
  FailureOr<qkern::DispatchOp> withSquares(qkern::DispatchOp call) {
    builder.setInsertionPoint(call);
    NamedAttrList config(call.getConfig());
    config.set("squares", builder.getBoolAttr(true));
    SmallVector<Type> outputs(call.getResultTypes());
    outputs.push_back(RankedTensorType::get({}, builder.getF64Type()));
    SmallVector<int64_t> aliases(call.getAliases());
    aliases.push_back(-1);
    FailureOr<qkern::DispatchOp> made = dispatch(
        call, call.getKernel(), config.getDictionary(builder.getContext()),
        SmallVector<Value>(call.getInputs()), outputs);
    if (failed(made))
      return failure();
    made->setAliases(aliases);
    call->replaceAllUsesWith(made->getResults().drop_back());
    mayAlias.erase(call);
    call.erase();
    return made;
  }

  /// norm_sq takes sums of squares from the kernels that make the tensors, where
  /// they can give them: it does not read these tensors.
  LogicalResult sumSquaresWhereMade() {
    SmallVector<qkern::DispatchOp> norms;
    for (auto call : function.getBody().front().getOps<qkern::DispatchOp>())
      if (call.getKernel() == "norm_sq")
        norms.push_back(call);
    for (qkern::DispatchOp norm : norms) {
      SmallVector<Value> sums;
      llvm::SetVector<Operation *> makers;
      for (Value x : norm.getInputs().drop_back())
        if (x.getDefiningOp<qkern::DispatchOp>())
          makers.insert(x.getDefiningOp());
      llvm::DenseSet<Value> summed; // Of the operands of `norm`.
      for (Operation *op : makers) {
        auto maker = cast<qkern::DispatchOp>(op);
        ArrayRef<unsigned> squares = target.squares(maker.getKernel());
        size_t tensors = norm.getInputs().size() - 1 - summed.size();
        if (squares.empty() || squares.size() >= tensors || // Some are left.
            maker.getConfig().get("squares") ||
            !llvm::all_of(squares, [&](unsigned result) {
              return llvm::count(norm.getInputs(), maker.getResult(result)) == 1;
            }))
          continue;
        FailureOr<qkern::DispatchOp> made = withSquares(maker);
        if (failed(made))
          return failure();
        sums.push_back(made->getResults().back());
        for (unsigned result : squares)
          summed.insert(made->getResult(result));
      }
      if (sums.empty())
        continue;
      SmallVector<Value> inputs;
      for (Value x : norm.getInputs().drop_back())
        if (!summed.contains(x))
          inputs.push_back(x);
      llvm::append_range(inputs, sums);
      inputs.push_back(norm.getInputs().back());
      builder.setInsertionPoint(norm);
      FailureOr<qkern::DispatchOp> rest =
          dispatch(norm, norm.getKernel(), norm.getConfig(), inputs,
                   SmallVector<Type>(norm.getResultTypes()));
      if (failed(rest))
        return failure();
      norm->replaceAllUsesWith(*rest);
      mayAlias.erase(norm);
      norm.erase();
    }
    return success();
  }

  /// Whether the planner puts a value where an argument or an output is.
  bool hasPlaceOfItsOwn(Value value) {
    return llvm::any_of(value.getUses(), [&](OpOperand &use) {
      unsigned result = use.getOperandNumber();
      if (auto wait = dyn_cast<qkern::WaitOp>(use.getOwner()))
        return hasPlaceOfItsOwn(wait.getResult(result));
      return isa<func::ReturnOp>(use.getOwner()) &&
             (function.getResultAttr(result, kAliasAttr) ||
              function.getResultAttr(result, kNameAttr));
    });
  }

  /// Lets an output take over the storage of an operand that ends here.
  void shareStorage() {
    Block &body = function.getBody().front();
    DenseMap<Value, Operation *> lastUse;
    DenseMap<Operation *, Operation *> waits;
    for (Operation &op : body) {
      for (Value operand : op.getOperands())
        lastUse[addressOf(operand).root] = &op;
      if (auto wait = dyn_cast<qkern::WaitOp>(op)) { // it is read until here
        waits[wait.getStarted()] = wait;
        for (Value operand : wait.getStarted().getInputs())
          lastUse[addressOf(operand).root] = &op;
      }
    }
    for (auto reduce : body.getOps<qkern::CollectiveOp>()) {
      if (reduce.getKind() != "all_reduce")
        continue;
      SmallVector<int64_t> aliases(reduce.getAliases());
      for (unsigned part = 0; part < aliases.size(); ++part) {
        Value operand = reduce.getInputs()[part];
        bool ends = isa<OpResult>(operand) &&
                    !operand.getDefiningOp<qdist::RankVarOp>() &&
                    addressOf(operand).root == operand &&
                    lastUse.lookup(operand) ==
                        (reduce.getAsync() ? waits.lookup(reduce)
                                           : reduce.getOperation()) &&
                    llvm::count(reduce.getInputs(), operand) == 1;
        if (ends && !hasPlaceOfItsOwn(reduce.getResult(part)))
          aliases[part] = part;
      }
      reduce.setAliases(aliases);
    }
    for (auto call : body.getOps<qkern::DispatchOp>()) {
      SmallVector<int64_t> aliases(call.getAliases());
      for (auto [output, input] : mayAlias.lookup(call)) {
        Value operand = call.getInputs()[input];
        Address address = addressOf(operand);
        if (hasPlaceOfItsOwn(call.getResult(output)))
          continue;
        bool ends = isa<OpResult>(operand) && address.root == operand &&
                    !operand.getDefiningOp<qdist::RankVarOp>() &&
                    lastUse.lookup(operand) == call.getOperation();
        bool taken = llvm::is_contained(aliases, static_cast<int64_t>(input)) ||
                     llvm::count(call.getInputs(), operand) != 1;
        if (ends && !taken && aliases[output] == -1 &&
            operand.getType() == call.getResult(output).getType())
          aliases[output] = input;
      }
      call.setAliases(aliases);
    }
  }

  func::FuncOp function;
  const qkern::KernelTarget &target;
  OpBuilder builder;
  DenseMap<Value, SeqType> seqTypes;
  DenseMap<Value, Address> views;
  DenseMap<Operation *, SmallVector<std::pair<unsigned, unsigned>>> mayAlias;
};

struct ToKernels : impl::ToKernelsBase<ToKernels> {
  using ToKernelsBase::ToKernelsBase;

  void runOnOperation() override {
    const qkern::KernelTarget *kernels = qkern::lookupKernelTarget(target);
    if (!kernels) {
      getOperation().emitError("unknown target \"")
          << target << "\", expected cpu or a GPU as sm_90a";
      return signalPassFailure();
    }
    if (failed(KernelLowering(getOperation(), *kernels).run()))
      signalPassFailure();
  }
};

} // namespace
} // namespace qwen35
