#include "passes/Partition/Stripes.h"

#include "dialect/Qwen35/IR/StepAttrs.h"
#include "passes/Partition/Reshard.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace qwen35 {

SmallVector<Value> StripedOps::gather(Location loc, ValueRange values) {
  int64_t ranks = mesh.shape().cp;
  SmallVector<Type> types;
  for (Value value : values) {
    auto type = cast<RankedTensorType>(value.getType());
    SmallVector<int64_t> shape(type.getShape());
    shape[0] *= ranks;
    types.push_back(type.clone(shape));
  }
  auto op = qdist::AllGatherOp::create(b, loc, types, values,
                                       namesOf(b, *mesh.axes("cp"), mesh),
                                       qdist::WireAttr(), /*dim=*/0);
  return SmallVector<Value>(op.getOutputs());
}

SmallVector<Value> StripedOps::reduceScatter(Location loc, ValueRange values) {
  int64_t ranks = mesh.shape().cp;
  SmallVector<Type> types;
  for (Value value : values) {
    auto type = cast<RankedTensorType>(value.getType());
    SmallVector<int64_t> shape(type.getShape());
    shape[0] /= ranks;
    types.push_back(type.clone(shape));
  }
  auto op = qdist::ReduceScatterOp::create(b, loc, types, values,
                                           namesOf(b, *mesh.axes("cp"), mesh),
                                           qdist::WireAttr(), /*dim=*/0);
  return SmallVector<Value>(op.getOutputs());
}

Value StripedOps::gatheredTails(Location loc, Value x, Value weight) {
  int64_t taps = cast<RankedTensorType>(weight.getType()).getDimSize(2);
  Value tails = StripeTailsOp::create(b, loc, x, taps);
  return gather(loc, tails)[0];
}

StripedOps::Maps StripedOps::mapsOf(Location loc, Value k, Value v, Value g,
                                    Value beta, FloatAttr eps, Value seq,
                                    Value stripes) {
  for (const Maps &maps : known)
    if (maps.k == k && maps.v == v && maps.g == g && maps.beta == beta)
      return maps;
  auto own = GdnAffineOp::create(b, loc, k, v, g, beta, seq, stripes, eps);
  SmallVector<Value> all = gather(loc, {own.getM(), own.getB()});
  Value states = AffineScanOp::create(b, loc, all[0], all[1], stripes);
  known.push_back({k, v, g, beta, own.getM(), states});
  return known.back();
}

SmallVector<Value> StripedOps::place(Operation *op, ValueRange in,
                                     Value stripes) {
  Location loc = op->getLoc();
  using Values = SmallVector<Value>;
  return llvm::TypeSwitch<Operation *, Values>(op)
      .Case([&](RopeTableOp rope) -> Values {
        return {CpRopeTableOp::create(b, loc, in[0], stripes,
                                      rope.getThetaAttr(),
                                      rope.getRotaryDimAttr())};
      })
      .Case([&](AttentionOp attention) -> Values {
        Values kv = gather(loc, {in[1], in[2]});
        auto local = CpAttentionOp::create(b, loc, in[0], kv[0], kv[1], in[3],
                                           stripes, attention.getScaleAttr());
        return {local.getO(), local.getLse()};
      })
      .Case([&](AttentionBwdOp attention) -> Values {
        // Not those of forward: they are as many times as large as the rank's
        // own as there are ranks.
        Values kv = gather(loc, {in[2], in[3]});
        kv[0].getDefiningOp()->setAttr(kRecomputeAttr, b.getUnitAttr());
        auto local = CpAttentionBwdOp::create(
            b, loc, in[0], in[1], kv[0], kv[1], in[4], in[5], in[6], stripes,
            attention.getScaleAttr());
        Values sums = reduceScatter(loc, {local.getDk(), local.getDv()});
        for (auto [sum, like] : llvm::zip_equal(sums, in.slice(2, 2)))
          if (sum.getType() != like.getType())
            sum = CastOp::create(b, loc, like.getType(), sum);
        return {local.getDq(), sums[0], sums[1]};
      })
      .Case([&](CausalConvOp) -> Values {
        Value tails = gatheredTails(loc, in[0], in[1]);
        return {CpCausalConvOp::create(b, loc, in[0], tails, in[1], in[2],
                                       stripes)};
      })
      .Case([&](CausalConvBwdOp) -> Values {
        Value tails = gatheredTails(loc, in[1], in[2]);
        auto local = CpCausalConvBwdOp::create(b, loc, in[0], in[1], tails,
                                               in[2], in[3], stripes);
        Value halo = gather(loc, local.getDhalo())[0];
        return {AddToTailsOp::create(b, loc, local.getDx(), halo, stripes),
                local.getDweight()};
      })
      .Case([&](GatedDeltaRuleOp rule) -> Values {
        Maps maps = mapsOf(loc, in[1], in[2], in[3], in[4], rule.getEpsAttr(),
                           in[5], stripes);
        return {CpGatedDeltaRuleOp::create(
            b, loc, in[0], in[1], in[2], in[3], in[4], maps.states, in[5],
            stripes, rule.getScaleAttr(), rule.getEpsAttr())};
      })
      .Case([&](GatedDeltaRuleBwdOp rule) -> Values {
        Maps maps = mapsOf(loc, in[2], in[3], in[4], in[5], rule.getEpsAttr(),
                           in[6], stripes);
        Value own = GdnStateGradOp::create(
            b, loc, in[0], in[1], in[2], in[4], in[5], in[6], stripes,
            rule.getScaleAttr(), rule.getEpsAttr());
        Values all = gather(loc, {maps.m, own});
        Value gradients =
            AffineScanBwdOp::create(b, loc, all[0], all[1], stripes);
        auto local = CpGatedDeltaRuleBwdOp::create(
            b, loc, in[0], in[1], in[2], in[3], in[4], in[5], maps.states,
            gradients, in[6], stripes, rule.getScaleAttr(), rule.getEpsAttr());
        return Values(local->getResults());
      })
      .Default([](Operation *) -> Values { return {}; });
}

} // namespace qwen35
