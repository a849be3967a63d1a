#include "dialect/QDist/Rules/ShardRule.h"

using namespace mlir;

// The rules of the qwen35 ops. t: tokens; d: hidden; h, g: heads and their
// group; e: experts or experts' scores; k: slots or contracted columns.

namespace qwen35::qdist {
namespace {

ShardRule linearIn(ShardRule rule, std::initializer_list<unsigned> operands) {
  for (unsigned operand : operands)
    rule.linear[operand] = true;
  return rule;
}

/// The first result needs no sum over the ranks that split a factor: the op
/// adds them up itself (Partition.cpp).
ShardRule complete(ShardRule rule, StringRef names) {
  for (ShardRule::Factor &factor : rule.factors)
    if (names.contains(factor.name))
      factor.complete = 1;
  return rule;
}

int64_t rankOf(Value value) {
  return cast<RankedTensorType>(value.getType()).getRank();
}

/// "t", "th" and so on: all dimensions but the last of a rank.
std::string rows(int64_t rank) {
  return std::string("thijk").substr(0, rank - 1);
}

/// Products.
ShardRule rule(LinearOp op) { return ShardRule::make(op, "tk,nk->tn"); }
ShardRule rule(MatmulOp op) {
  std::string a = op.getTransposeA() ? "km" : "mk";
  std::string b = op.getTransposeB() ? "nk" : "kn";
  return ShardRule::make(op, a + "," + b + "->mn");
}

/// Element by element.
ShardRule rule(AddOp op) {
  return linearIn(ShardRule::elementwise(op), {0, 1});
}
ShardRule rule(ScaleOp op) { return linearIn(ShardRule::elementwise(op), {0}); }
ShardRule rule(MulScalarOp op) {
  return linearIn(ShardRule::elementwise(op), {0});
}
ShardRule rule(CastOp op) { return linearIn(ShardRule::elementwise(op), {0}); }
ShardRule rule(SwigluOp op) { return ShardRule::elementwise(op); }
ShardRule rule(SwigluBwdOp op) { return ShardRule::elementwise(op); }
ShardRule rule(RescaleSumOp op) { return ShardRule::elementwise(op); }
ShardRule rule(MulSigmoidOp op) {
  if (op.getX().getType() == op.getGate().getType())
    return ShardRule::elementwise(op);
  return ShardRule::make(op, "td,tu->td", "u");
}
ShardRule rule(MulSigmoidBwdOp op) {
  if (op.getX().getType() == op.getGate().getType())
    return ShardRule::elementwise(op);
  return ShardRule::make(op, "td,td,tu->td,tu", "u");
}
ShardRule rule(AdamWOp op) {
  ShardRule rule = ShardRule::elementwise(op);
  rule.first = {1, 2}; // where m and v lie, the update happens
  return rule;
}

/// Another shape or another place.
ShardRule rule(ReshapeOp op) {
  // Factors from the outermost: as far as sizes divide, both sides share them.
  ArrayRef<int64_t> from = cast<RankedTensorType>(op.getX().getType()).getShape();
  ArrayRef<int64_t> to = cast<RankedTensorType>(op.getY().getType()).getShape();
  ShardRule rule;
  rule.operands.resize(1);
  rule.results.resize(1);
  rule.linear = {true};
  ShardRule::Dims &in = rule.operands[0], &out = rule.results[0];
  in.resize(from.size());
  out.resize(to.size());
  size_t i = 0, j = 0;
  int64_t left = from.empty() ? 1 : from[0], right = to.empty() ? 1 : to[0];
  while (i < from.size() && j < to.size()) {
    int64_t size = std::min(left, right);
    if (std::max(left, right) % size != 0)
      size = 0; // no common piece: neither side is split from here on
    rule.factors.push_back({'a', size,
                            size ? ShardRule::Kind::Split
                                 : ShardRule::Kind::Whole});
    int factor = static_cast<int>(rule.factors.size()) - 1;
    if (size == 0)
      break;
    in[i].push_back(factor);
    out[j].push_back(factor);
    left /= size;
    right /= size;
    if (left == 1 && ++i < from.size())
      left = from[i];
    if (right == 1 && ++j < to.size())
      right = to[j];
  }
  auto rest = [&](ShardRule::Dims &dims, ArrayRef<int64_t> shape) {
    for (auto [dim, size] : llvm::zip_equal(dims, shape)) {
      int64_t covered = 1;
      for (int factor : dim)
        covered *= rule.factors[factor].size;
      if (covered != size || dim.empty()) {
        rule.factors.push_back({'b', size / covered, ShardRule::Kind::Whole});
        dim.push_back(static_cast<int>(rule.factors.size()) - 1);
      }
    }
  };
  rest(in, from);
  rest(out, to);
  return rule;
}
ShardRule rule(SliceOp op) {
  ShardRule rule = linearIn(ShardRule::elementwise(op), {0});
  rule.axis = op.getAxis();
  return rule;
}
ShardRule rule(ConcatOp op) {
  ShardRule rule = ShardRule::elementwise(op);
  rule.linear.assign(op.getInputs().size(), true);
  rule.axis = op.getAxis();
  return rule;
}
ShardRule rule(ZerosOp op) { return ShardRule::elementwise(op); }
ShardRule rule(OnesOp op) { return ShardRule::elementwise(op); }

/// Norms.
ShardRule rule(RmsNormOp op) {
  std::string r = rows(rankOf(op.getX()));
  return ShardRule::make(op, r + "d,d->" + r + "d," + r, "d");
}
ShardRule rule(RmsNormBwdOp op) {
  std::string r = rows(rankOf(op.getX()));
  return ShardRule::make(op, r + "d," + r + "d,d," + r + "->" + r + "d,d", "d");
}
ShardRule rule(GatedRmsNormOp op) {
  return ShardRule::make(op, "thd,thd,d->thd,th", "d");
}
ShardRule rule(GatedRmsNormBwdOp op) {
  return ShardRule::make(op, "thd,thd,thd,d,th->thd,thd,d", "d");
}

/// Attention.
ShardRule rule(RopeTableOp op) {
  return ShardRule::make(op, "t->tjc", "jc", "t");
}
ShardRule rule(RopeOp op) {
  return ShardRule::make(op, "thd,tjc->thd", "djc");
}
ShardRule rule(AttentionOp op) {
  return ShardRule::make(op, "t(hg)d,thd,thd,t->t(hg)d,t(hg)", "d", "t");
}
ShardRule rule(AttentionBwdOp op) {
  return ShardRule::make(
      op, "t(hg)d,t(hg)d,thd,thd,t(hg)d,t(hg),t->t(hg)d,thd,thd", "d", "t");
}

/// Gated delta rule.
ShardRule rule(CausalConvOp op) {
  return ShardRule::make(op, "tc,cuw,t->tc", "uw", "t");
}
ShardRule rule(CausalConvBwdOp op) {
  return ShardRule::make(op, "tc,tc,cuw,t->tc,cuw", "uw", "t");
}
ShardRule rule(GdnGatesOp op) { return ShardRule::make(op, "th,th,h,h->th,th"); }
ShardRule rule(GdnGatesBwdOp op) {
  return ShardRule::make(op, "th,th,th,th,h,h->th,th,h,h");
}
ShardRule rule(GatedDeltaRuleOp op) {
  return ShardRule::make(op, "thd,thd,t(hg)e,t(hg),t(hg),t->t(hg)e", "de", "t");
}
ShardRule rule(GatedDeltaRuleBwdOp op) {
  return ShardRule::make(
      op, "t(hg)e,thd,thd,t(hg)e,t(hg),t(hg),t->thd,thd,t(hg)e,t(hg),t(hg)",
      "de", "t");
}

/// Experts.
ShardRule rule(RouterOp op) { return ShardRule::make(op, "te->tk,tk,te", "ek"); }
ShardRule rule(RouterBwdOp op) {
  return ShardRule::make(op, "tk,tk,tk->te", "ek");
}
ShardRule rule(SoftmaxBwdOp op) {
  return ShardRule::make(op, "te,te->te", "e");
}
ShardRule rule(MoeExpertsOp op) {
  return ShardRule::make(op, "td,tk,tk,ejd,edi->td", "dkji");
}
ShardRule rule(MoeExpertsBwdOp op) {
  return ShardRule::make(op, "td,td,tk,tk,ejd,edi->td,tk,ejd,edi", "dkji");
}

/// Rows of documents, whose ranks add up what they count (Partition.cpp): the
/// counts are those of the whole batch.
template <typename Op> ShardRule auxRule(Op op) {
  std::string text;
  for (size_t i = 0; i < op->getNumOperands(); ++i) {
    Type type = op->getOperand(i).getType();
    if (i)
      text += ",";
    text += isa<SeqType>(type) ? "t"
            : cast<RankedTensorType>(type).getRank() == 0 ? ""
            : getElementTypeOrSelf(type).isInteger(32)    ? "tk"
                                                          : "te";
  }
  text += "->";
  for (size_t i = 0; i < op->getNumResults(); ++i)
    text += (i ? "," : "") +
            std::string(rankOf(op->getResult(i)) == 0 ? "" : "te");
  return complete(ShardRule::make(op, text, "ek", "t"), "t");
}
ShardRule rule(RouterAuxOp op) { return auxRule(op); }
ShardRule rule(RouterAuxBwdOp op) { return auxRule(op); }
ShardRule rule(RouterStatsOp op) {
  std::string text;
  for (size_t i = 0; i < op.getProbs().size(); ++i)
    text += "te,";
  for (size_t i = 0; i < op.getIdx().size(); ++i)
    text += "tk,";
  return ShardRule::make(op, text + "t->ge,ge,", "egk", "t");
}
ShardRule rule(RouterStatsAuxOp op) {
  return ShardRule::make(op, "ge,ge,->", "ge");
}
ShardRule rule(RouterStatsGradOp op) {
  std::string text = ",ge,,t->te";
  for (size_t i = 1; i < op.getLayers(); ++i)
    text += ",te";
  return ShardRule::make(op, text, "ge", "t");
}

/// Vocabulary.
ShardRule rule(EmbedOp op) { return ShardRule::make(op, "t,vd->td", "d"); }
ShardRule rule(EmbedBwdOp op) { return ShardRule::make(op, "td,t->vd", "d"); }
ShardRule rule(LmLossOp op) {
  return complete(ShardRule::make(op, "td,vd,t,->", "d"), "v");
}
ShardRule rule(LmLossGradOp op) {
  return complete(ShardRule::make(op, "td,vd,t,->,td,vd", "d"), "v");
}
ShardRule rule(LmStatsOp op) {
  return ShardRule::make(op, "td,vd,t->t,t,t", "dv");
}
ShardRule rule(LmStatsLossOp op) { return ShardRule::make(op, "t,,t,t,t->"); }
ShardRule rule(LmStatsGradOp op) {
  return ShardRule::make(op, "td,vd,t,,t,t->td,vd", "d");
}

/// The end of a step. norm_sq is square in x; partitioning adds up the ranks.
ShardRule rule(NormSqOp op) {
  return complete(ShardRule::elementwise(op), "abcdef");
}
ShardRule rule(ClipFactorOp op) { return ShardRule::make(op, "->,,"); }

template <typename Op>
struct Model : ShardableOp::ExternalModel<Model<Op>, Op> {
  ShardRule shardRule(Operation *op) const { return rule(cast<Op>(op)); }
};

template <typename... Ops> void attach(MLIRContext *context) {
  (Ops::template attachInterface<Model<Ops>>(*context), ...);
}

} // namespace

void registerShardRules(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, Qwen35Dialect *) {
    attach<LinearOp, MatmulOp, AddOp, ScaleOp, MulScalarOp, CastOp, SwigluOp,
           SwigluBwdOp, RescaleSumOp, MulSigmoidOp, MulSigmoidBwdOp, AdamWOp,
           ReshapeOp, SliceOp, ConcatOp, ZerosOp, OnesOp, RmsNormOp,
           RmsNormBwdOp, GatedRmsNormOp, GatedRmsNormBwdOp, RopeTableOp, RopeOp,
           AttentionOp, AttentionBwdOp, CausalConvOp, CausalConvBwdOp,
           GdnGatesOp, GdnGatesBwdOp, GatedDeltaRuleOp, GatedDeltaRuleBwdOp,
           RouterOp, RouterBwdOp, SoftmaxBwdOp, MoeExpertsOp, MoeExpertsBwdOp,
           RouterAuxOp, RouterAuxBwdOp, RouterStatsOp, RouterStatsAuxOp,
           RouterStatsGradOp, EmbedOp, EmbedBwdOp, LmLossOp,
           LmLossGradOp, LmStatsOp, LmStatsLossOp, LmStatsGradOp, NormSqOp,
           ClipFactorOp>(context);
  });
}

} // namespace qwen35::qdist
