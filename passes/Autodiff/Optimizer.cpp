#include "dialect/Qwen35/IR/StepAttrs.h"
#include "passes/Autodiff/Passes.h"

#include "mlir/IR/IRMapping.h"

using namespace mlir;

namespace qwen35 {

#define GEN_PASS_DEF_OPTIMIZER
#include "passes/Autodiff/Passes.h.inc"

namespace {

/// Builds one function of the step around a copy of `@model` or `@gradients`.
class StepBuilder {
public:
  StepBuilder(func::FuncOp source, StringRef name)
      : source(source), builder(source) {
    function = func::FuncOp::create(builder, source.getLoc(), name,
                                    builder.getFunctionType({}, {}));
    function.addEntryBlock();
    for (auto param : source.getOps<ParamOp>())
      params.push_back(param);
  }

  /// The cast through which products read the parameter, or null.
  static CastOp castOf(ParamOp param) {
    for (Operation *user : param->getUsers())
      if (auto cast = dyn_cast<CastOp>(user))
        return cast;
    return {};
  }

  /// One state argument per parameter.
  SmallVector<BlockArgument> addState(StringRef role) {
    SmallVector<BlockArgument> added;
    for (ParamOp param : params) {
      NamedAttrList attrs;
      attrs.set(kRoleAttr, builder.getStringAttr(role));
      attrs.set(kNameAttr, param.getNameAttr());
      if (role == "weight") {
        attrs.set(kInitAttr, param.getInitAttr());
        attrs.set(kDecayAttr, param.getDecayAttr());
        attrs.set(kFileDtypeAttr, param.getFileDtypeAttr());
      }
      added.push_back(addArgument(param.getResult().getType(), attrs,
                                  param.getLoc()));
    }
    return added;
  }

  /// One state argument per parameter that is cast: the result of the cast,
  /// kept between steps. Null for the others.
  SmallVector<Value> addWork() {
    SmallVector<Value> added(params.size());
    for (auto [param, work] : llvm::zip_equal(params, added))
      if (CastOp cast = castOf(param)) {
        NamedAttrList attrs;
        attrs.set(kRoleAttr, builder.getStringAttr("work"));
        attrs.set(kNameAttr, param.getNameAttr());
        work = addArgument(cast.getY().getType(), attrs, param.getLoc());
      }
    return added;
  }

  /// One running sum per result of `@model`.
  SmallVector<BlockArgument> addSums(func::FuncOp model) {
    SmallVector<BlockArgument> added;
    for (unsigned i = 0; i < model.getNumResults(); ++i) {
      NamedAttrList attrs;
      attrs.set(kRoleAttr, builder.getStringAttr("sum"));
      attrs.set(kNameAttr, model.getResultAttr(i, kNameAttr));
      added.push_back(
          addArgument(model.getResultTypes()[i], attrs, model.getLoc()));
    }
    return added;
  }

  BlockArgument addScalar(StringRef name) {
    NamedAttrList attrs;
    attrs.set(kRoleAttr, builder.getStringAttr("scalar"));
    attrs.set(kNameAttr, builder.getStringAttr(name));
    return addArgument(RankedTensorType::get({}, builder.getF32Type()), attrs,
                       source.getLoc());
  }

  /// Adds the batch arguments of the source and copies its body, parameters
  /// replaced by `weights` and their casts by `works`. Returns the values that
  /// the source returns.
  SmallVector<Value> copyBody(ArrayRef<BlockArgument> weights,
                              ArrayRef<Value> works) {
    IRMapping map;
    for (auto [i, old] : llvm::enumerate(source.getArguments())) {
      NamedAttrList attrs(source.getArgAttrDict(i));
      bool scalar = isa<RankedTensorType>(old.getType()) &&
                    cast<RankedTensorType>(old.getType()).getRank() == 0;
      attrs.set(kRoleAttr,
                builder.getStringAttr(scalar ? "scalar" : "input"));
      map.map(old, addArgument(old.getType(), attrs, old.getLoc()));
    }
    for (auto [param, weight, work] :
         llvm::zip_equal(params, weights, works)) {
      map.map(param.getResult(), weight);
      for (Operation *user : param->getUsers())
        if (auto cast = dyn_cast<CastOp>(user);
            cast && work && cast.getY().getType() == work.getType())
          map.map(cast.getY(), work);
    }
    builder.setInsertionPointToEnd(&function.getBody().front());
    Block &body = source.getBody().front();
    for (Operation &op : body.without_terminator())
      if (!isa<ParamOp>(op) &&
          (!isa<CastOp>(op) || !map.contains(op.getResult(0))))
        builder.clone(op, map);
    SmallVector<Value> returned;
    for (Value value : body.getTerminator()->getOperands())
      returned.push_back(map.lookup(value));
    return returned;
  }

  void addResult(Value value, ArrayRef<NamedAttribute> attrs) {
    results.push_back(value);
    resultAttrs.push_back(builder.getDictionaryAttr(attrs));
  }

  void overwrite(Value argument, Value value) {
    addResult(value,
              builder.getNamedAttr(
                  kAliasAttr, builder.getI64IntegerAttr(
                                  cast<BlockArgument>(argument).getArgNumber())));
  }

  /// argument += value, or argument = value, for every pair.
  void total(ArrayRef<BlockArgument> arguments, ArrayRef<Value> values,
             bool adds) {
    for (auto [argument, value] : llvm::zip_equal(arguments, values))
      overwrite(argument, adds ? addTo(argument, value) : value);
  }

  /// argument + value, where value is computed: it need not live any longer.
  Value addTo(BlockArgument argument, Value value) {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointAfterValue(value);
    return AddOp::create(builder, value.getLoc(), argument, value);
  }

  void finish() {
    func::ReturnOp::create(builder, source.getLoc(), results);
    function.setFunctionType(builder.getFunctionType(
        function.getBody().front().getArgumentTypes(),
        ValueRange(results).getTypes()));
    function.setAllArgAttrs(argumentAttrs);
    function.setAllResultAttrs(resultAttrs);
  }

  func::FuncOp source;
  OpBuilder builder;
  func::FuncOp function;
  SmallVector<ParamOp> params;

private:
  BlockArgument addArgument(Type type, NamedAttrList &attrs, Location loc) {
    argumentAttrs.push_back(attrs.getDictionary(builder.getContext()));
    return function.getBody().front().addArgument(type, loc);
  }

  SmallVector<Attribute> argumentAttrs, resultAttrs;
  SmallVector<Value> results;
};

struct Optimizer : impl::OptimizerBase<Optimizer> {
  using OptimizerBase::OptimizerBase;

  void runOnOperation() override {
    auto model = getOperation().lookupSymbol<func::FuncOp>("model");
    auto gradients = getOperation().lookupSymbol<func::FuncOp>("gradients");
    if (!model || !gradients) {
      getOperation().emitError("needs @model and @gradients; run "
                               "--qwen35-autodiff first");
      return signalPassFailure();
    }
    buildEval(model);
    buildAccumulate(model, gradients, "first", /*adds=*/false);
    buildAccumulate(model, gradients, "accumulate", /*adds=*/true);
    buildFinish(model, gradients, "finish", /*adds=*/true);
    buildFinish(model, gradients, "only", /*adds=*/false);
    buildRefresh(model);
    model.erase();
    gradients.erase();
  }

  void buildEval(func::FuncOp model) {
    StepBuilder step(model, "eval");
    auto weights = step.addState("weight");
    auto works = step.addWork();
    auto sums = step.addSums(model);
    SmallVector<Value> losses = step.copyBody(weights, works);
    step.total(sums, losses, /*adds=*/true);
    step.finish();
  }

  /// A microbatch whose gradients and losses are added to the sums, or which
  /// starts them.
  void buildAccumulate(func::FuncOp model, func::FuncOp gradients,
                       StringRef name, bool adds) {
    StepBuilder step(gradients, name);
    auto weights = step.addState("weight");
    auto works = step.addWork();
    auto grads = step.addState("grad");
    auto sums = step.addSums(model);
    SmallVector<Value> values = step.copyBody(weights, works);
    step.total(grads, ArrayRef(values).drop_front(sums.size()), adds);
    step.total(sums, ArrayRef(values).take_front(sums.size()), adds);
    step.finish();
  }

  /// The last microbatch of a step, or its only one, and the update.
  void buildFinish(func::FuncOp model, func::FuncOp gradients, StringRef name,
                   bool adds) {
    StepBuilder step(gradients, name);
    auto weights = step.addState("weight");
    auto works = step.addWork();
    auto ms = step.addState("m");
    auto vs = step.addState("v");
    auto grads = step.addState("grad");
    auto sums = step.addSums(model);
    SmallVector<Value> values = step.copyBody(weights, works);
    Value lr = step.addScalar("lr");
    Value bc1 = step.addScalar("bias_correction1");
    Value bc2 = step.addScalar("bias_correction2");

    OpBuilder &b = step.builder;
    Location loc = NameLoc::get(b.getStringAttr("optimizer"));
    // The sums go out after weights, m and v; they are computed first.
    SmallVector<Value> totals;
    for (auto [grad, value] : llvm::zip_equal(
             grads, ArrayRef(values).drop_front(sums.size())))
      totals.push_back(adds ? step.addTo(grad, value) : value);
    Value normSq = ZerosOp::create(
        b, loc, RankedTensorType::get({}, b.getF64Type()));
    for (Value total : totals)
      normSq = NormSqOp::create(b, loc, total, normSq);
    auto clip =
        ClipFactorOp::create(b, loc, normSq, APFloat(gradClip.getValue()));
    SmallVector<AdamWOp> updates;
    for (auto [i, param] : llvm::enumerate(step.params))
      updates.push_back(AdamWOp::create(
          b, loc, weights[i], ms[i], vs[i], totals[i], lr, clip.getFactor(),
          bc1, bc2, clip.getCommit(), APFloat(beta1.getValue()),
          APFloat(beta2.getValue()), APFloat(eps.getValue()),
          APFloat(param.getDecay() ? weightDecay.getValue() : 0.0),
          works[i] ? TypeAttr::get(getElementTypeOrSelf(works[i].getType()))
                   : TypeAttr()));
    for (auto [argument, update] : llvm::zip_equal(weights, updates))
      step.overwrite(argument, update.getPNew());
    for (auto [argument, update] : llvm::zip_equal(works, updates))
      if (argument)
        step.overwrite(argument, update.getWork());
    for (auto [argument, update] : llvm::zip_equal(ms, updates))
      step.overwrite(argument, update.getMNew());
    for (auto [argument, update] : llvm::zip_equal(vs, updates))
      step.overwrite(argument, update.getVNew());
    for (auto [argument, total] : llvm::zip_equal(grads, totals))
      step.overwrite(argument, total);
    step.total(sums, ArrayRef(values).take_front(sums.size()), adds);
    step.addResult(clip.getNorm(),
                   b.getNamedAttr(kNameAttr, b.getStringAttr("grad_norm")));
    step.addResult(clip.getCommit(),
                   b.getNamedAttr(kNameAttr, b.getStringAttr("commit")));
    step.finish();
  }

  /// Working copies from weights that something else than a step has written.
  void buildRefresh(func::FuncOp model) {
    StepBuilder step(model, "refresh");
    llvm::erase_if(step.params, [](ParamOp param) {
      return !StepBuilder::castOf(param);
    });
    if (step.params.empty()) {
      step.function.erase();
      return;
    }
    auto weights = step.addState("weight");
    auto works = step.addWork();
    step.builder.setInsertionPointToEnd(&step.function.getBody().front());
    for (auto [weight, work] : llvm::zip_equal(weights, works))
      step.overwrite(work, CastOp::create(step.builder, weight.getLoc(),
                                          work.getType(), weight));
    step.finish();
  }
};

} // namespace
} // namespace qwen35
