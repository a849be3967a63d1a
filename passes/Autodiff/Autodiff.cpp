#include "dialect/Qwen35/IR/StepAttrs.h"
#include "passes/Autodiff/Passes.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;

namespace qwen35 {

#define GEN_PASS_DEF_AUTODIFF
#include "passes/Autodiff/Passes.h.inc"

namespace {

/// What reached one forward value: whole cotangents, and cotangents of slices.
struct Contributions {
  SmallVector<Value> whole;
  SmallVector<std::pair<SliceOp, Value>> slices;
};

class Differentiator {
public:
  Differentiator(func::FuncOp function)
      : function(function), builder(function.getBody()) {
    builder.setInsertionPoint(function.getBody().front().getTerminator());
  }

  LogicalResult run() {
    if (failed(collectParams()))
      return failure();
    Operation *end = function.getBody().front().getTerminator();
    Value loss = end->getOperand(0);
    findActive();
    if (!active.contains(loss))
      return function.emitError("the loss does not depend on any parameter");

    contributions[loss].whole.push_back(
        OnesOp::create(builder, loss.getLoc(), loss.getType()));
    SmallVector<Operation *> forward;
    for (Operation &op : function.getBody().front().without_terminator())
      if (llvm::any_of(op.getResults(),
                       [&](Value v) { return active.contains(v); }))
        forward.push_back(&op);
    for (Operation *op : llvm::reverse(forward))
      if (!isa<ParamOp>(op) && failed(differentiate(op)))
        return failure();
    return finish(end);
  }

private:
  LogicalResult collectParams() {
    llvm::StringSet<> names;
    for (auto param : function.getOps<ParamOp>()) {
      if (!names.insert(param.getName()).second)
        return param.emitOpError("parameter \"")
               << param.getName()
               << "\" appears twice, expected one op with several uses";
      params.push_back(param);
    }
    return success();
  }

  /// Values that some parameter reaches.
  void findActive() {
    for (Operation &op : function.getBody().front().without_terminator())
      if (isa<ParamOp>(op) ||
          llvm::any_of(op.getOperands(),
                       [&](Value v) { return active.contains(v); }))
        active.insert(op.result_begin(), op.result_end());
  }

  /// The type of cotangents of `value`: its own, but that of the parameter
  /// where it is one in the type in which products read it. Such a gradient
  /// stays as it was accumulated.
  static RankedTensorType cotangentType(Value value) {
    if (auto cast = value.getDefiningOp<CastOp>())
      if (auto param = cast.getX().getDefiningOp<ParamOp>())
        value = param.getResult();
    return cast<RankedTensorType>(value.getType());
  }

  Value castTo(RankedTensorType type, Value value) {
    type = type.clone(cast<RankedTensorType>(value.getType()).getShape());
    return type == value.getType()
               ? value
               : CastOp::create(builder, value.getLoc(), type, value);
  }

  /// The cotangent of `value`, or null if nothing reached it.
  Value take(Value value) {
    auto found = contributions.find(value);
    if (found == contributions.end())
      return {};
    Contributions parts = std::move(found->second);
    contributions.erase(found);
    joinSlices(value, parts);
    RankedTensorType type = cotangentType(value);
    Value sum = castTo(type, parts.whole.front());
    for (Value more : llvm::drop_begin(parts.whole))
      sum = AddOp::create(builder, value.getLoc(), sum, castTo(type, more));
    return sum;
  }

  /// Turns the slice cotangents of `value` into whole ones: disjoint slices of
  /// one axis become one concat, whose gaps are zeros.
  void joinSlices(Value value, Contributions &parts) {
    auto &slices = parts.slices;
    if (slices.empty())
      return;
    auto position = [](SliceOp slice) {
      return std::make_pair(slice.getAxis(), slice.getStart());
    };
    llvm::sort(slices, [&](auto &a, auto &b) {
      return position(a.first) < position(b.first);
    });
    RankedTensorType type = cotangentType(value);
    for (size_t next = 0; next < slices.size();) {
      int64_t axis = slices[next].first.getAxis(), end = 0;
      SmallVector<Value> pieces;
      auto zeros = [&](int64_t size) {
        SmallVector<int64_t> shape(type.getShape());
        shape[axis] = size;
        if (size > 0)
          pieces.push_back(ZerosOp::create(
              builder, value.getLoc(),
              RankedTensorType::get(shape, type.getElementType())));
      };
      for (; next < slices.size(); ++next) {
        auto [slice, cotangent] = slices[next];
        int64_t start = slice.getStart();
        if (static_cast<int64_t>(slice.getAxis()) != axis || start < end)
          break; // overlaps, or cuts another way: a concat of its own
        zeros(start - end);
        pieces.push_back(castTo(type, cotangent));
        end = start + slice.getSize();
      }
      zeros(type.getDimSize(axis) - end);
      parts.whole.push_back(
          ConcatOp::create(builder, value.getLoc(), pieces, axis));
    }
  }

  LogicalResult differentiate(Operation *op) {
    SmallVector<Value> cotangents;
    for (Value result : op->getResults())
      cotangents.push_back(take(result));
    if (llvm::none_of(cotangents, [](Value v) { return bool(v); }))
      return success();
    if (auto slice = dyn_cast<SliceOp>(op)) {
      contributions[slice.getX()].slices.push_back({slice, cotangents[0]});
      return success();
    }
    auto differentiable = dyn_cast<DifferentiableOp>(op);
    if (!differentiable)
      return op->emitOpError("lies between parameters and the loss but has no "
                             "gradient");
    SmallVector<Value> gradients;
    builder.setInsertionPoint(function.getBody().front().getTerminator());
    if (failed(differentiable.buildVjp(builder, cotangents, gradients)))
      return failure();
    if (gradients.size() != op->getNumOperands())
      return op->emitOpError("its gradient returned ")
             << gradients.size() << " values for " << op->getNumOperands()
             << " operands";
    for (auto [operand, gradient] : llvm::zip(op->getOperands(), gradients))
      if (gradient && active.contains(operand))
        contributions[operand].whole.push_back(gradient);
    return success();
  }

  /// Appends the gradients to the results.
  LogicalResult finish(Operation *end) {
    SmallVector<Value> results(end->getOperands());
    SmallVector<Type> types(function.getResultTypes());
    SmallVector<Attribute> attrs;
    for (unsigned i = 0; i < types.size(); ++i)
      attrs.push_back(DictionaryAttr::get(function.getContext(),
                                          function.getResultAttrs(i)));
    builder.setInsertionPoint(end);
    for (ParamOp param : params) {
      Value gradient = take(param.getResult());
      if (!gradient)
        gradient = ZerosOp::create(builder, param.getLoc(),
                                   param.getResult().getType());
      results.push_back(gradient);
      types.push_back(gradient.getType());
      attrs.push_back(builder.getDictionaryAttr(
          builder.getNamedAttr(kGradientAttr, param.getNameAttr())));
    }
    end->setOperands(results);
    function.setFunctionType(
        builder.getFunctionType(function.getArgumentTypes(), types));
    function.setAllResultAttrs(attrs);
    return success();
  }

  func::FuncOp function;
  OpBuilder builder;
  SmallVector<ParamOp> params;
  DenseSet<Value> active;
  DenseMap<Value, Contributions> contributions;
};

/// lm_loss and lm_loss_grad of the same operands form the same logits: the
/// gradient op moves to the loss and takes its place.
void mergeLossHeads(func::FuncOp function) {
  SmallVector<LmLossGradOp> gradients(function.getOps<LmLossGradOp>());
  for (LmLossGradOp gradient : gradients)
    for (LmLossOp loss :
         llvm::make_early_inc_range(function.getOps<LmLossOp>()))
      if (loss->getOperands() == gradient->getOperands()) {
        gradient->moveBefore(loss);
        loss.getResult().replaceAllUsesWith(gradient.getLoss());
        loss.erase();
      }
}

struct Autodiff : impl::AutodiffBase<Autodiff> {
  void runOnOperation() override {
    auto model = getOperation().lookupSymbol<func::FuncOp>("model");
    if (!model) {
      getOperation().emitError("has no function @model to differentiate");
      return signalPassFailure();
    }
    auto gradients = model.clone();
    gradients.setSymName("gradients");
    OpBuilder builder(model);
    builder.setInsertionPointAfter(model);
    builder.insert(gradients);
    if (failed(Differentiator(gradients).run()))
      return signalPassFailure();
    mergeLossHeads(gradients);
  }
};

} // namespace
} // namespace qwen35
