#include "dialect/Qwen35/IR/StepAttrs.h"
#include "passes/Sharding/Passes.h"
#include "runtime/schema/stripe_table.h"

#include "llvm/ADT/StringMap.h"

#include <map>

using namespace mlir;

namespace qwen35 {

#define GEN_PASS_DEF_SHARDSEED
#include "passes/Sharding/Passes.h.inc"

namespace {

using qdist::Sharding;

StringRef argAttr(func::FuncOp function, unsigned argument, StringRef name) {
  auto value = function.getArgAttrOfType<StringAttr>(argument, name);
  return value ? value.getValue() : StringRef();
}

struct ShardSeed : impl::ShardSeedBase<ShardSeed> {
  using ShardSeedBase::ShardSeedBase;

  void runOnOperation() override {
    if (failed(run()))
      signalPassFailure();
  }

  LogicalResult run() {
    ModuleOp module = getOperation();
    auto eval = module.lookupSymbol<func::FuncOp>("eval");
    if (!eval)
      return module.emitError("has no function @eval; run "
                              "--qwen35-pipeline-autodiff first");
    std::string error;
    std::optional<MeshShape> shape = parseMeshShape(mesh, error);
    if (!shape)
      return module.emitError(error);
    if (zero < 0 || zero > 3)
      return module.emitError("zero is ")
             << zero.getValue() << ", expected 0, 1, 2 or 3";
    if (shape->pp != 1)
      return module.emitError("pp=")
             << shape->pp << ": pipeline stages are not built, expected pp=1";
    int64_t dataRanks = shape->dpr * shape->dps;
    if (failed(readLimits(eval, dataRanks)))
      return failure();
    if (std::string why = explainMesh(*shape, limits); !why.empty())
      return module.emitError("the model cannot be split so: ") << why;
    *shape = withKvCut(*shape, limits);
    ranks = *Mesh::make(*shape, error);
    module->setAttr(qdist::kMeshAttr,
                    qdist::MeshAttr::get(&getContext(), *shape));
    striped = shape->cp > 1 && canStripe(eval, shape->cp);
    for (auto function : module.getOps<func::FuncOp>())
      if (striped && failed(addStripes(function)))
        return failure();
    for (auto function : module.getOps<func::FuncOp>())
      if (failed(seed(function)))
        return failure();
    return success();
  }

private:
  /// What the mesh has to divide, and the sections of conv channels, from the
  /// ops of the forward pass.
  LogicalResult readLimits(func::FuncOp eval, int64_t dataRanks) {
    int64_t tokens = 0;
    for (Operation &op : eval.getBody().front()) {
      auto dim = [&](Value value, unsigned index) {
        return cast<RankedTensorType>(value.getType()).getDimSize(index);
      };
      auto both = [](int64_t known, int64_t size) {
        return std::gcd(known, size); // of 0 and n: n
      };
      if (auto attention = dyn_cast<AttentionOp>(op)) {
        limits.queryHeads = dim(attention.getQ(), 1);
        limits.kvHeads = dim(attention.getK(), 1);
      } else if (auto delta = dyn_cast<GatedDeltaRuleOp>(op)) {
        limits.keyHeads = dim(delta.getK(), 1);
        limits.valueHeads = dim(delta.getV(), 1);
      } else if (auto swiglu = dyn_cast<SwigluOp>(op)) {
        limits.ffn = both(limits.ffn, dim(swiglu.getGate(), 1));
      } else if (auto experts = dyn_cast<MoeExpertsOp>(op)) {
        limits.experts = dim(experts.getWDown(), 0);
      } else if (auto embed = dyn_cast<EmbedOp>(op)) {
        limits.vocab = dim(embed.getTable(), 0);
        tokens = dim(embed.getIds(), 0);
      } else if (auto conv = dyn_cast<CausalConvOp>(op)) {
        readSections(eval, conv);
      }
    }
    for (unsigned i = 0; i < eval.getNumArguments(); ++i)
      if (auto seq = dyn_cast<SeqType>(eval.getArgumentTypes()[i]))
        if (seq.getTokens() % dataRanks != 0 ||
            seq.getMaxDocs() % dataRanks != 0)
          return eval.emitError("has a batch of ")
                 << seq.getTokens() << " tokens and " << seq.getMaxDocs()
                 << " documents for " << dataRanks
                 << " data ranks (dpr x dps), expected as many rows of equal "
                    "size";
    limits.rowTokens = tokens / dataRanks;
    return success();
  }

  /// Whether the ranks of a row can hold stripes of it (rationale 0011). If
  /// not, they gather its tokens for the ops that read them in order, which is
  /// said.
  bool canStripe(func::FuncOp eval, int64_t cp) {
    int64_t stripe = limits.rowTokens / (StripeTable::kLocal * cp);
    auto gathers = [&](Operation &op) {
      return op.emitRemark("with cp=")
             << cp
             << " the tokens of a row are gathered for attention, "
                "convolutions and the delta rule: ";
    };
    for (Operation &op : eval.getBody().front()) {
      if (auto conv = dyn_cast<CausalConvOp>(op)) {
        int64_t taps =
            cast<RankedTensorType>(conv.getWeight().getType()).getDimSize(2);
        if (taps - 1 > stripe) {
          gathers(op) << "a convolution of " << taps
                      << " taps reads further back than the " << stripe
                      << " tokens of a stripe";
          return false;
        }
      }
    }
    return true;
  }

  /// Behind the document table: the stripe tables of all ranks that hold other
  /// tokens, one after the other.
  LogicalResult addStripes(func::FuncOp function) {
    int64_t cp = ranks.shape().cp;
    int64_t holders = ranks.size(*ranks.axes("data") | *ranks.axes("cp"));
    Builder b(&getContext());
    auto type = RankedTensorType::get(
        {holders * StripeTable{limits.rowTokens / cp, cp}.words()},
        b.getI32Type());
    auto attrs = b.getDictionaryAttr(
        {b.getNamedAttr(kRoleAttr, b.getStringAttr("input")),
         b.getNamedAttr(kNameAttr, b.getStringAttr(kStripesName))});
    for (unsigned i = 0; i < function.getNumArguments(); ++i) {
      if (!isa<SeqType>(function.getArgumentTypes()[i]))
        continue;
      if (failed(function.insertArgument(i + 1, type, attrs,
                                         function.getArgument(i).getLoc())))
        return failure();
      for (unsigned r = 0; r < function.getNumResults(); ++r)
        if (auto alias =
                function.getResultAttrOfType<IntegerAttr>(r, kAliasAttr);
            alias && alias.getInt() > i)
          function.setResultAttr(
              r, kAliasAttr,
              IntegerAttr::get(alias.getType(), alias.getInt() + 1));
    }
    return success();
  }

  static StringRef weightName(func::FuncOp function, Value value) {
    auto argument = dyn_cast<BlockArgument>(value);
    return argument
               ? argAttr(function, argument.getArgNumber(), kNameAttr)
               : StringRef();
  }

  /// The channels of a convolution that are sliced apart behind it are split
  /// each on their own, and so are the rows that make them.
  void readSections(func::FuncOp eval, CausalConvOp conv) {
    SmallVector<std::pair<int64_t, int64_t>> parts;
    for (Operation *user : conv.getY().getUsers())
      if (auto slice = dyn_cast<SliceOp>(user); slice && slice.getAxis() == 1)
        parts.emplace_back(slice.getStart(), slice.getSize());
    llvm::sort(parts);
    SmallVector<int64_t> sizes;
    int64_t end = 0;
    for (auto [start, size] : parts) {
      if (start != end)
        return;
      sizes.push_back(size);
      end += size;
    }
    if (end != cast<RankedTensorType>(conv.getY().getType()).getDimSize(1))
      return;
    sections[weightName(eval, conv.getWeight())] = sizes;
    if (auto linear = conv.getX().getDefiningOp<LinearOp>())
      sections[weightName(eval, linear.getWeight())] = sizes;
  }

  /// DESIGN.md 4.2, by the last words of the Hugging Face name.
  Sharding parameter(StringRef name, RankedTensorType type) {
    Sharding sharding(type.getRank());
    auto split = [&](size_t dim, StringRef axes) {
      sharding.dims[dim] = *ranks.axes({axes.data(), axes.size()});
    };
    auto is = [&](std::initializer_list<StringRef> suffixes) {
      return llvm::any_of(suffixes,
                          [&](StringRef s) { return name.ends_with(s); });
    };
    if (is({"experts.gate_up_proj", "experts.down_proj"}))
      split(0, "ep");
    else if (is({"k_proj.weight", "v_proj.weight"}))
      split(0, "kv");
    else if (is({"embed_tokens.weight", "lm_head.weight", "q_proj.weight",
                 "in_proj_qkv.weight", "conv1d.weight", "in_proj_z.weight",
                 "in_proj_a.weight", "in_proj_b.weight", ".A_log", ".dt_bias",
                 ".gate_proj.weight", ".up_proj.weight"}))
      split(0, "tp");
    else if (is({"o_proj.weight", "out_proj.weight", ".down_proj.weight"}))
      split(1, "tp");
    auto found = sections.find(name);
    if (found != sections.end() && sharding.dims[0])
      sharding.setSections(0, found->second);
    return sharding;
  }

  /// Where an update happens: the parameter's split, and with `zero` one
  /// dimension more.
  Sharding storage(StringRef name, RankedTensorType type) {
    Sharding sharding = parameter(name, type);
    MeshAxes axes =
        *ranks.axes(name.contains("experts.") && !name.contains("shared_expert")
                        ? "edp"
                        : "fsdp");
    if (zero == 0 || !axes)
      return sharding;
    for (size_t dim = 0; dim < sharding.dims.size(); ++dim)
      if (!sharding.dims[dim] && type.getDimSize(dim) % ranks.size(axes) == 0) {
        sharding.dims[dim] = axes;
        break;
      }
    return sharding;
  }

  /// Whether an op of the step computes with a weight, other than to update or
  /// to copy it.
  static bool computesWith(Operation *op) {
    return !isa<AdamWOp>(op) &&
           !(isa<CastOp>(op) &&
             op->getParentOfType<func::FuncOp>().getName() == "refresh");
  }

  /// How a rank keeps a state argument between steps.
  Sharding kept(StringRef role, StringRef name, RankedTensorType type) {
    bool moment = role == "m" || role == "v";
    return zero == 3 || moment ? storage(name, type) : parameter(name, type);
  }

  LogicalResult seed(func::FuncOp function) {
    Sharding rows(1);
    rows.dims[0] = *ranks.axes("data");
    if (striped)
      rows.dims[0] |= *ranks.axes("cp");
    for (unsigned i = 0; i < function.getNumArguments(); ++i) {
      Type type = function.getArgumentTypes()[i];
      StringRef role = argAttr(function, i, kRoleAttr);
      StringRef name = argAttr(function, i, kNameAttr);
      auto tensor = dyn_cast<RankedTensorType>(type);
      Sharding sharding(tensor ? tensor.getRank() : 1);
      if (role == "grad")
        continue; // partial over what propagation finds
      if (role == "weight" || role == "work" || role == "m" || role == "v")
        sharding = kept(role, name, tensor);
      else if (role == "input")
        sharding = rows;
      else if (role != "sum" && role != "scalar")
        return function.emitError("argument ")
               << i << " has the role \"" << role
               << "\", expected one of stage S1";
      if (auto wrong = sharding.misfit(type, ranks))
        return function.emitError("argument ")
               << i << " (" << name << "): its split " << *wrong;
      function.setArgAttr(i, qdist::kShardingAttr,
                          sharding.attr(&getContext(), ranks));
    }
    constrainRows(function);
    wantTables(function);
    if (zero == 3)
      gatherWeights(function);
    if (zero >= 1)
      scatterGradients(function);
    return success();
  }

  /// Between blocks, tokens are split over all that is not a pipeline stage.
  void constrainRows(func::FuncOp function) {
    Sharding stream(2);
    stream.dims[0] = *ranks.axes("data") | *ranks.axes("cp") | *ranks.axes("tp");
    SetVector<Value> rows;
    for (auto norm : function.getOps<RmsNormOp>())
      if (cast<RankedTensorType>(norm.getX().getType()).getRank() == 2)
        rows.insert(norm.getX());
    for (Value value : rows) {
      OpBuilder b(&getContext());
      b.setInsertionPointAfterValue(value);
      auto seed = qdist::ShardConstraintOp::create(
          b, value.getLoc(), value.getType(), value,
          stream.attr(&getContext(), ranks));
      value.replaceAllUsesExcept(seed.getY(), seed);
    }
  }

  /// The gradient of a table has rows that no operand of its op has: they are
  /// split like those of the table.
  void wantTables(func::FuncOp function) {
    for (auto gradient : function.getOps<EmbedBwdOp>())
      for (auto embed : function.getOps<EmbedOp>()) {
        auto table = dyn_cast<BlockArgument>(embed.getTable());
        if (embed.getIds() != gradient.getIds() || !table)
          continue;
        Sharding wanted = parameter(
            argAttr(function, table.getArgNumber(), kNameAttr),
            cast<RankedTensorType>(table.getType()));
        gradient->setAttr(
            qdist::kResultsAttr,
            ArrayAttr::get(&getContext(), {wanted.attr(&getContext(), ranks)}));
      }
  }

  Value constrain(OpBuilder &b, Value value, const Sharding &sharding,
                  bool keepPartial = false) {
    return qdist::ShardConstraintOp::create(
        b, value.getLoc(), value.getType(), value,
        sharding.attr(&getContext(), ranks), keepPartial);
  }

  /// "layers.12" of "model.layers.12.mlp.down_proj.weight", with ".experts" of
  /// its routed experts; the name itself outside of layers.
  static std::string layerOf(StringRef name) {
    size_t layers = name.find("layers.");
    if (layers == StringRef::npos)
      return name.str();
    size_t end = name.find('.', layers + StringRef("layers.").size());
    return name.slice(layers, end).str() +
           (name.contains(".experts.") ? ".experts" : "");
  }

  /// What a rank keeps a part of is whole where a layer computes with it: all
  /// of the layer's weights from the first op that reads one, in forward, and
  /// once more in backward.
  void gatherWeights(func::FuncOp function) {
    Operation *loss = nullptr;
    for (auto op : function.getOps<LmLossGradOp>())
      loss = op;
    struct Layer {
      Operation *first;
      SmallVector<BlockArgument> weights;
    };
    std::map<std::pair<int, std::string>, Layer> layers; // 1: backward
    auto keyOf = [&](BlockArgument argument, Operation *user) {
      int backward = loss && loss->isBeforeInBlock(user) ? 1 : 0;
      std::string layer = layerOf(
          argAttr(function, argument.getArgNumber(), kNameAttr));
      // Outside of layers a weight is read far apart: a tied table.
      if (isa<EmbedOp>(user))
        layer += ".embed";
      return std::pair(backward, layer);
    };
    for (BlockArgument argument : function.getArguments()) {
      unsigned i = argument.getArgNumber();
      StringRef role = argAttr(function, i, kRoleAttr);
      if (role != "weight" && role != "work")
        continue;
      auto type = cast<RankedTensorType>(argument.getType());
      StringRef name = argAttr(function, i, kNameAttr);
      if (storage(name, type) == parameter(name, type))
        continue;
      for (Operation *user : argument.getUsers()) {
        if (!computesWith(user))
          continue;
        Layer &layer =
            layers.try_emplace(keyOf(argument, user), Layer{user, {}})
                .first->second;
        if (user->isBeforeInBlock(layer.first))
          layer.first = user;
        if (!llvm::is_contained(layer.weights, argument))
          layer.weights.push_back(argument);
      }
    }
    for (auto &[key, layer] : layers) {
      OpBuilder b(layer.first);
      for (BlockArgument argument : layer.weights) {
        StringRef name =
            argAttr(function, argument.getArgNumber(), kNameAttr);
        Value whole = constrain(
            b, argument,
            parameter(name, cast<RankedTensorType>(argument.getType())));
        if (key.first == 1) // else it would be the one of the forward pass
          whole.getDefiningOp()->setAttr(kRecomputeAttr, b.getUnitAttr());
        argument.replaceUsesWithIf(whole, [&](OpOperand &use) {
          Operation *user = use.getOwner();
          return user != whole.getDefiningOp() && computesWith(user) &&
                 !isa<qdist::ShardConstraintOp>(user) &&
                 keyOf(argument, user) == key;
        });
      }
    }
  }

  /// Gradients go where the update needs them: before norm and update, and with
  /// zero >= 2 where they are made, so that sums are split as well.
  void scatterGradients(func::FuncOp function) {
    Operation *end = function.getBody().front().getTerminator();
    for (unsigned i = 0; i < function.getNumResults(); ++i) {
      auto alias = function.getResultAttrOfType<IntegerAttr>(i, kAliasAttr);
      if (!alias)
        continue;
      auto argument = static_cast<unsigned>(alias.getInt());
      if (argAttr(function, argument, kRoleAttr) != "grad")
        continue;
      BlockArgument sum = function.getArgument(argument);
      Sharding to = storage(argAttr(function, argument, kNameAttr),
                            cast<RankedTensorType>(sum.getType()));
      Value total = end->getOperand(i);
      // The sum of a tied gradient has no argument in it: not this add.
      auto add = total.getDefiningOp<AddOp>();
      bool adds = add && (add.getA() == sum || add.getB() == sum);
      if (zero >= 2) {
        Value made = !adds ? total : add.getA() == sum ? add.getB() : add.getA();
        OpBuilder b(&getContext());
        b.setInsertionPointAfterValue(made);
        Value part = constrain(b, made, to, /*keepPartial=*/true);
        made.replaceUsesWithIf(part, [&](OpOperand &use) {
          Operation *user = use.getOwner();
          return user != part.getDefiningOp() &&
                 (user == add || isa<NormSqOp, AdamWOp, func::ReturnOp>(user));
        });
        total = end->getOperand(i);
      }
      auto updates = [](Operation *user) {
        return isa<NormSqOp, AdamWOp>(user);
      };
      if (llvm::none_of(total.getUsers(), updates))
        continue;
      OpBuilder b(&getContext());
      b.setInsertionPointAfterValue(total);
      Value whole = constrain(b, total, to);
      total.replaceUsesWithIf(whole, [&](OpOperand &use) {
        return updates(use.getOwner()) ||
               (zero >= 2 && isa<func::ReturnOp>(use.getOwner()));
      });
    }
  }

  MeshLimits limits;
  Mesh ranks;
  bool striped = false; // rows lie in stripes over the ranks of cp
  llvm::StringMap<SmallVector<int64_t>> sections;
};

} // namespace
} // namespace qwen35
