#include "dialect/QDist/Rules/ShardRule.h"
#include "dialect/Qwen35/IR/StepAttrs.h"
#include "passes/Sharding/Passes.h"

#include "llvm/ADT/StringMap.h"

using namespace mlir;

namespace qwen35 {

#define GEN_PASS_DEF_SHARDPROPAGATE
#include "passes/Sharding/Passes.h.inc"

namespace {

using qdist::Sharding;

/// Derives the sharding of every value of one function.
class Propagator {
public:
  Propagator(func::FuncOp function, const Mesh &mesh,
             llvm::StringMap<Sharding> &gradients)
      : function(function), mesh(mesh), gradients(gradients) {}

  LogicalResult run() {
    if (failed(readArguments()))
      return failure();
    for (Operation &op : function.getBody().front().without_terminator())
      if (failed(visit(&op)))
        return failure();
    return writeResults();
  }

private:
  StringRef argAttr(unsigned argument, StringRef name) {
    auto value = function.getArgAttrOfType<StringAttr>(argument, name);
    return value ? value.getValue() : StringRef();
  }

  LogicalResult readArguments() {
    for (BlockArgument argument : function.getArguments()) {
      unsigned i = argument.getArgNumber();
      StringRef role = argAttr(i, kRoleAttr), name = argAttr(i, kNameAttr);
      auto attr = function.getArgAttrOfType<qdist::ShardingAttr>(
          i, qdist::kShardingAttr);
      if (attr) {
        shardings[argument] = Sharding::of(attr, mesh);
      } else if (role == "grad") {
        auto found = gradients.find(name);
        if (found != gradients.end())
          shardings[argument] = found->second;
        else if (!argument.use_empty())
          return function.emitError("argument ")
                 << i << " is the gradient of \"" << name
                 << "\", which @first and @only do not say";
      } else {
        return function.emitError("argument ")
               << i << " has no '" << qdist::kShardingAttr
               << "'; run --qwen35-shard-seed first";
      }
      if (role == "weight" || role == "work" || role == "m" || role == "v")
        names[argument] = name.str();
    }
    return success();
  }

  void write(Operation *op, const qdist::OpSharding &sharding) {
    auto list = [&](ArrayRef<Sharding> all) {
      SmallVector<Attribute> attrs;
      for (const Sharding &one : all)
        attrs.push_back(one.attr(op->getContext(), mesh));
      return ArrayAttr::get(op->getContext(), attrs);
    };
    op->setAttr(qdist::kOperandsAttr, list(sharding.operands));
    op->setAttr(qdist::kResultsAttr, list(sharding.results));
    for (auto [value, result] :
         llvm::zip_equal(op->getResults(), sharding.results))
      shardings[value] = result;
  }

  LogicalResult visit(Operation *op) {
    if (auto seed = dyn_cast<qdist::ShardConstraintOp>(op)) {
      Sharding sharding = Sharding::of(seed.getSharding(), mesh);
      if (seed.getKeepPartial())
        sharding.partial =
            shardings.lookup(seed.getX()).partial & ~sharding.split();
      write(op, {{sharding}, {sharding}});
      if (auto found = names.find(seed.getX()); found != names.end()) {
        std::string name = found->second; // a parameter is one where it is whole
        names[seed.getY()] = name;
      }
      return success();
    }
    auto shardable = dyn_cast<qdist::ShardableOp>(op);
    if (!shardable)
      return op->emitError("'")
             << op->getName() << "' has no rule how to split it over ranks";
    SmallVector<qdist::Given> given;
    for (Value operand : op->getOperands()) {
      qdist::Given one{shardings.lookup(operand), false, ""};
      if (auto found = names.find(operand); found != names.end()) {
        one.stays = true;
        one.name = found->second;
      }
      given.push_back(std::move(one));
    }
    SmallVector<Sharding> wanted;
    if (auto attrs = op->getAttrOfType<ArrayAttr>(qdist::kResultsAttr))
      for (auto attr : attrs.getAsRange<qdist::ShardingAttr>())
        wanted.push_back(Sharding::of(attr, mesh));
    auto solved = qdist::solve(op, shardable.shardRule(), given, wanted, mesh);
    if (failed(solved))
      return failure();
    write(op, *solved);
    for (Value result : op->getResults())
      if (auto cast = dyn_cast<CastOp>(op)) // the copy that products read
        if (auto found = names.find(cast.getX()); found != names.end()) {
          std::string name = found->second;
          names[result] = name;
        }
    return success();
  }

  /// What a use of the value by adamw asks for, if one does.
  std::optional<Sharding> askedByUpdate(Value value) {
    for (Operation *user : value.getUsers())
      if (auto seed = dyn_cast<qdist::ShardConstraintOp>(user)) {
        if (auto asked = askedByUpdate(seed.getY()))
          return asked;
      }
    for (Operation *user : value.getUsers())
      if (auto update = dyn_cast<AdamWOp>(user); update &&
                                                 update.getGrad() == value)
        return Sharding::of(
            cast<qdist::ShardingAttr>(
                user->getAttrOfType<ArrayAttr>(qdist::kOperandsAttr)[3]),
            mesh);
    return std::nullopt;
  }

  LogicalResult writeResults() {
    Operation *end = function.getBody().front().getTerminator();
    MLIRContext *context = function.getContext();
    for (auto [i, value] : llvm::enumerate(end->getOperands())) {
      Sharding sharding = shardings.lookup(value);
      auto alias = function.getResultAttrOfType<IntegerAttr>(i, kAliasAttr);
      if (!alias) {
        sharding.partial = 0; // what the host reads
      } else {
        auto argument = static_cast<unsigned>(alias.getInt());
        if (argAttr(argument, kRoleAttr) != "grad") {
          sharding = shardings.lookup(function.getArgument(argument));
        } else {
          StringRef name = argAttr(argument, kNameAttr);
          auto [known, isNew] = gradients.try_emplace(name, sharding);
          // A function that ends a step may have reduced it.
          bool reduced = known->second.sameLayout(sharding) &&
                         !sharding.partial;
          if (!isNew && !(known->second == sharding) && !reduced)
            return function.emitError("makes the gradient of \"")
                   << name << "\" " << sharding.attr(context, mesh)
                   << " but another function makes it "
                   << known->second.attr(context, mesh);
          function.setArgAttr(argument, qdist::kShardingAttr,
                              known->second.attr(context, mesh));
          auto asked = askedByUpdate(value);
          if (asked && asked->sameLayout(sharding))
            sharding.partial = 0;
        }
      }
      function.setResultAttr(i, qdist::kShardingAttr,
                             sharding.attr(context, mesh));
    }
    return success();
  }

  func::FuncOp function;
  const Mesh &mesh;
  llvm::StringMap<Sharding> &gradients;
  DenseMap<Value, Sharding> shardings;
  DenseMap<Value, std::string> names; // parameters and their state
};

struct ShardPropagate : impl::ShardPropagateBase<ShardPropagate> {
  using ShardPropagateBase::ShardPropagateBase;

  void getDependentDialects(DialectRegistry &registry) const override {
    ShardPropagateBase::getDependentDialects(registry);
    qdist::registerShardRules(registry);
  }

  void runOnOperation() override {
    std::optional<Mesh> mesh = qdist::meshOf(getOperation());
    if (!mesh) {
      getOperation().emitError("has no '")
          << qdist::kMeshAttr << "'; run --qwen35-shard-seed first";
      return signalPassFailure();
    }
    // Functions that start the sums say how those are split.
    SmallVector<func::FuncOp> functions, others;
    for (StringRef name : {"first", "only"})
      if (auto function = getOperation().lookupSymbol<func::FuncOp>(name))
        functions.push_back(function);
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!llvm::is_contained(functions, function))
        others.push_back(function);
    functions.append(others);
    llvm::StringMap<Sharding> gradients;
    for (func::FuncOp function : functions)
      if (failed(Propagator(function, *mesh, gradients).run()))
        return signalPassFailure();
  }
};

} // namespace
} // namespace qwen35
