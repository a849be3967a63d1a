#include "dialect/QKern/IR/KernelTarget.h"
#include "dialect/QKern/IR/QKernDialect.h"
#include "dialect/Qwen35/IR/StepAttrs.h"
#include "passes/Kernels/Passes.h"
#include "runtime/schema/seq_table.h"

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
    overwriteState();
    accumulateFanIn();
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
    return lowerToDispatch(op);
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

  /// Results that must overwrite an argument do so where they are computed:
  /// sum = add(argument, x) in place, and a product that only feeds such a sum
  /// accumulates into the argument itself.
  void overwriteState() {
    Operation *end = function.getBody().front().getTerminator();
    for (unsigned i = 0; i < function.getNumResults(); ++i) {
      auto alias = function.getResultAttrOfType<IntegerAttr>(i, kAliasAttr);
      auto add = end->getOperand(i).getDefiningOp<qkern::DispatchOp>();
      if (!alias || !add || add.getKernel() != "add")
        continue;
      Value argument = function.getArgument(alias.getInt());
      unsigned which = add.getInputs()[0] == argument ? 0 : 1;
      if (add.getInputs()[which] != argument)
        continue;
      Value addend = add.getInputs()[1 - which];
      if (succeeded(accumulateProduct(add, argument, addend)))
        continue;
      SmallVector<int64_t> aliases = {which};
      add.setAliases(aliases);
    }
  }

  /// The product whose only use is as this addend and which overwrites nothing
  /// yet, or null.
  static qkern::DispatchOp productFor(Value addend) {
    auto product = addend.getDefiningOp<qkern::DispatchOp>();
    bool fits = product && product.getKernel() == "matmul" &&
                product.getInputs().size() == 2 && addend.hasOneUse();
    return fits ? product : nullptr;
  }

  /// Gradients that meet: the later of two products adds itself to what is
  /// there, if nothing else wants that, and no pass over memory is left.
  void accumulateFanIn() {
    SmallVector<qkern::DispatchOp> adds;
    for (auto call : function.getBody().front().getOps<qkern::DispatchOp>())
      if (call.getKernel() == "add" && call.getAliases()[0] == -1)
        adds.push_back(call);
    for (qkern::DispatchOp add : adds) {
      Value a = add.getInputs()[0], b = add.getInputs()[1];
      qkern::DispatchOp product = productFor(b);
      if (auto other = productFor(a);
          other && (!product || product->isBeforeInBlock(other))) {
        product = other;
        std::swap(a, b);
      }
      auto there = a.getDefiningOp<qkern::DispatchOp>();
      if (!product || !there || !there->isBeforeInBlock(product) ||
          !a.hasOneUse() || a.getType() != b.getType())
        continue;
      (void)accumulateProduct(add, a, b);
    }
  }

  /// sum = add(argument, product) as one product that accumulates in place.
  LogicalResult accumulateProduct(qkern::DispatchOp add, Value argument,
                                  Value addend) {
    auto product = productFor(addend);
    if (!product)
      return failure();
    builder.setInsertionPoint(product);
    NamedAttrList config(product.getConfig());
    config.set("accumulate", builder.getBoolAttr(true));
    SmallVector<Value> inputs(product.getInputs());
    inputs.push_back(argument);
    FailureOr<qkern::DispatchOp> call =
        dispatch(product, "matmul", config.getDictionary(builder.getContext()),
                 inputs, {argument.getType()});
    if (failed(call))
      return failure();
    call->setAliases({2});
    add.getResult(0).replaceAllUsesWith(call->getResult(0));
    add.erase();
    mayAlias.erase(product);
    product.erase();
    return success();
  }

  /// Whether the planner puts a value where an argument or an output is.
  bool hasPlaceOfItsOwn(Value value) {
    return llvm::any_of(value.getUses(), [&](OpOperand &use) {
      unsigned result = use.getOperandNumber();
      return isa<func::ReturnOp>(use.getOwner()) &&
             (function.getResultAttr(result, kAliasAttr) ||
              function.getResultAttr(result, kNameAttr));
    });
  }

  /// Lets an output take over the storage of an operand that ends here.
  void shareStorage() {
    Block &body = function.getBody().front();
    DenseMap<Value, Operation *> lastUse;
    for (Operation &op : body)
      for (Value operand : op.getOperands())
        lastUse[addressOf(operand).root] = &op;
    for (auto call : body.getOps<qkern::DispatchOp>()) {
      SmallVector<int64_t> aliases(call.getAliases());
      for (auto [output, input] : mayAlias.lookup(call)) {
        Value operand = call.getInputs()[input];
        Address address = addressOf(operand);
        if (hasPlaceOfItsOwn(call.getResult(output)))
          continue;
        bool ends = isa<OpResult>(operand) && address.root == operand &&
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
