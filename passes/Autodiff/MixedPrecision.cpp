#include "passes/Autodiff/Passes.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace qwen35 {

#define GEN_PASS_DEF_MIXEDPRECISION
#include "passes/Autodiff/Passes.h.inc"

namespace {

/// True if the operand is read as a matrix of products or as rows: what a
/// parameter there is worth being kept in the compute type for.
bool isMatrixOperand(OpOperand &operand) {
  unsigned i = operand.getOperandNumber();
  return TypeSwitch<Operation *, bool>(operand.getOwner())
      .Case<LinearOp, EmbedOp, LmLossOp>([&](Operation *) { return i == 1; })
      .Case<MoeExpertsOp>([&](MoeExpertsOp op) {
        return operand.get() == op.getWGateUp() ||
               operand.get() == op.getWDown();
      })
      .Default(false);
}

class Narrowing {
public:
  Narrowing(func::FuncOp function, Type element)
      : function(function), element(element), builder(function.getContext()) {}

  LogicalResult run() {
    for (auto param :
         llvm::make_early_inc_range(function.getOps<ParamOp>()))
      castParam(param);
    for (auto router :
         llvm::make_early_inc_range(function.getOps<RouterOp>()))
      widenLogits(router);
    Block &body = function.getBody().front();
    for (Operation &op : body.without_terminator())
      if (failed(retype(op)))
        return failure();
    return widenResults(body.getTerminator());
  }

private:
  Value cast(Value value, Type to) {
    auto type = mlir::cast<RankedTensorType>(value.getType());
    return CastOp::create(builder, value.getLoc(), type.clone(to), value);
  }

  /// One copy in the compute type for all products that read the parameter.
  void castParam(ParamOp param) {
    if (!getElementTypeOrSelf(param.getResult()).isF32() ||
        llvm::none_of(param->getUses(), isMatrixOperand))
      return;
    builder.setInsertionPointAfter(param);
    Value narrow = cast(param.getResult(), element);
    param.getResult().replaceUsesWithIf(narrow, isMatrixOperand);
  }

  /// Logits leave their product in f32: rounding would make ties.
  void widenLogits(RouterOp router) {
    auto f32 = builder.getF32Type();
    auto product = router.getLogits().getDefiningOp<LinearOp>();
    if (product && router.getLogits().hasOneUse()) {
      product.setOutTypeAttr(TypeAttr::get(f32));
      return;
    }
    builder.setInsertionPoint(router);
    router.getLogitsMutable().assign(cast(router.getLogits(), f32));
  }

  /// Gives the results the types that follow from the operands.
  LogicalResult retype(Operation &op) {
    if (auto reshape = dyn_cast<ReshapeOp>(op)) {
      auto type = mlir::cast<RankedTensorType>(reshape.getY().getType());
      reshape.getY().setType(
          type.clone(getElementTypeOrSelf(reshape.getX().getType())));
      return success();
    }
    auto inference = dyn_cast<InferTypeOpInterface>(op);
    if (!inference)
      return success();
    SmallVector<Type> types;
    if (failed(inference.inferReturnTypes(
            op.getContext(), op.getLoc(), op.getOperands(),
            op.getDiscardableAttrDictionary(), op.getPropertiesStorage(),
            op.getRegions(), types)))
      return failure();
    for (auto [result, type] : llvm::zip_equal(op.getResults(), types))
      result.setType(type);
    return success();
  }

  /// What the function returns keeps its type.
  LogicalResult widenResults(Operation *end) {
    builder.setInsertionPoint(end);
    for (auto [operand, type] :
         llvm::zip_equal(end->getOpOperands(), function.getResultTypes()))
      if (operand.get().getType() != type)
        operand.set(cast(operand.get(), getElementTypeOrSelf(type)));
    return success();
  }

  func::FuncOp function;
  Type element;
  OpBuilder builder;
};

struct MixedPrecision : impl::MixedPrecisionBase<MixedPrecision> {
  using MixedPrecisionBase::MixedPrecisionBase;

  void runOnOperation() override {
    if (compute == "fp32")
      return;
    if (compute != "bf16") {
      getOperation().emitError("cannot compute in \"")
          << compute << "\", expected fp32 or bf16";
      return signalPassFailure();
    }
    auto model = getOperation().lookupSymbol<func::FuncOp>("model");
    if (!model) {
      getOperation().emitError("has no function @model to narrow");
      return signalPassFailure();
    }
    if (failed(Narrowing(model, BFloat16Type::get(&getContext())).run()))
      signalPassFailure();
  }
};

} // namespace
} // namespace qwen35
