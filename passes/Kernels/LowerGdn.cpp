#include "passes/Kernels/Passes.h"

#include "mlir/IR/PatternMatch.h"
#include "mlir/Transforms/WalkPatternRewriteDriver.h"

using namespace mlir;

namespace qwen35 {

#define GEN_PASS_DEF_LOWERGDN
#include "passes/Kernels/Passes.h.inc"

namespace {

/// o = gated_delta_rule(q, k, v, g, beta, seq)  ->  gdn_prep, gdn_scan, gdn_out
struct LowerForward : OpRewritePattern<GatedDeltaRuleOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(GatedDeltaRuleOp op,
                                PatternRewriter &rewriter) const override {
    Location loc = op.getLoc();
    auto prep = qkern::GdnPrepOp::create(rewriter, loc, op.getQ(), op.getK(),
                                         op.getG(), op.getBeta(), op.getSeq(),
                                         op.getEpsAttr());
    auto scan = qkern::GdnScanOp::create(rewriter, loc, prep.getKn(), op.getV(),
                                         op.getBeta(), prep.getGamma(),
                                         prep.getTinv(), op.getSeq());
    rewriter.replaceOpWithNewOp<qkern::GdnOutOp>(
        op, prep.getQn(), prep.getKn(), prep.getGamma(), scan.getStates(),
        scan.getVnew(), op.getSeq(), op.getScaleAttr());
    return success();
  }
};

/// dq, dk, dv, dg, dbeta = gated_delta_rule_bwd(do, q, k, v, g, beta, seq)
///   ->  gdn_prep, gdn_scan, gdn_scan_bwd, gdn_local_bwd
struct LowerBackward : OpRewritePattern<GatedDeltaRuleBwdOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(GatedDeltaRuleBwdOp op,
                                PatternRewriter &rewriter) const override {
    Location loc = op.getLoc();
    auto prep = qkern::GdnPrepOp::create(rewriter, loc, op.getQ(), op.getK(),
                                         op.getG(), op.getBeta(), op.getSeq(),
                                         op.getEpsAttr());
    auto scan = qkern::GdnScanOp::create(rewriter, loc, prep.getKn(), op.getV(),
                                         op.getBeta(), prep.getGamma(),
                                         prep.getTinv(), op.getSeq());
    auto scanBwd = qkern::GdnScanBwdOp::create(
        rewriter, loc, prep.getQn(), prep.getKn(), op.getDO(), op.getBeta(),
        prep.getGamma(), prep.getTinv(), op.getSeq(), op.getScaleAttr());
    rewriter.replaceOpWithNewOp<qkern::GdnLocalBwdOp>(
        op, prep.getQn(), prep.getKn(), prep.getQr(), prep.getKr(), op.getV(),
        op.getDO(), op.getBeta(), prep.getGamma(), scan.getStates(),
        scanBwd.getDstates(), scan.getVnew(), scanBwd.getZ(), op.getSeq(),
        op.getScaleAttr());
    return success();
  }
};

/// The queries of the delta rule that reads the maps of `op`, so that both
/// share what they prepare; its keys if it is not there or later.
Value queriesBeside(GdnAffineOp op) {
  for (Operation *user : op.getK().getUsers()) {
    auto rule = dyn_cast<CpGatedDeltaRuleOp>(user);
    if (!rule || rule->getBlock() != op->getBlock() ||
        rule.getK() != op.getK() || rule.getG() != op.getG() ||
        rule.getBeta() != op.getBeta() || rule.getSeq() != op.getSeq() ||
        rule.getEps() != op.getEps())
      continue;
    Operation *made = rule.getQ().getDefiningOp();
    if (!made || made->isBeforeInBlock(op))
      return rule.getQ();
  }
  return op.getK();
}

/// m, b = gdn_affine(k, v, g, beta)  ->  gdn_prep, cp_gdn_affine
struct LowerAffine : OpRewritePattern<GdnAffineOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(GdnAffineOp op,
                                PatternRewriter &rewriter) const override {
    auto prep = qkern::GdnPrepOp::create(
        rewriter, op.getLoc(), queriesBeside(op), op.getK(), op.getG(),
        op.getBeta(), op.getSeq(), op.getEpsAttr());
    rewriter.replaceOpWithNewOp<qkern::CpGdnAffineOp>(
        op, prep.getKn(), op.getV(), op.getBeta(), prep.getGamma(),
        prep.getTinv(), op.getSeq(), op.getStripes());
    return success();
  }
};

/// c = gdn_state_grad(do, q, k, g, beta)  ->  gdn_prep, cp_gdn_state_grad
struct LowerStateGrad : OpRewritePattern<GdnStateGradOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(GdnStateGradOp op,
                                PatternRewriter &rewriter) const override {
    auto prep = qkern::GdnPrepOp::create(
        rewriter, op.getLoc(), op.getQ(), op.getK(), op.getG(), op.getBeta(),
        op.getSeq(), op.getEpsAttr());
    rewriter.replaceOpWithNewOp<qkern::CpGdnStateGradOp>(
        op, prep.getQn(), prep.getKn(), op.getDO(), op.getBeta(),
        prep.getGamma(), prep.getTinv(), op.getSeq(), op.getStripes(),
        op.getScaleAttr());
    return success();
  }
};

/// o = cp_gated_delta_rule(q, k, v, g, beta, states)
///   ->  gdn_prep, cp_gdn_scan, gdn_out
struct LowerStriped : OpRewritePattern<CpGatedDeltaRuleOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(CpGatedDeltaRuleOp op,
                                PatternRewriter &rewriter) const override {
    Location loc = op.getLoc();
    auto prep = qkern::GdnPrepOp::create(rewriter, loc, op.getQ(), op.getK(),
                                         op.getG(), op.getBeta(), op.getSeq(),
                                         op.getEpsAttr());
    auto scan = qkern::CpGdnScanOp::create(
        rewriter, loc, prep.getKn(), op.getV(), op.getBeta(), prep.getGamma(),
        prep.getTinv(), op.getStates(), op.getSeq(), op.getStripes());
    rewriter.replaceOpWithNewOp<qkern::GdnOutOp>(
        op, prep.getQn(), prep.getKn(), prep.getGamma(), scan.getStates(),
        scan.getVnew(), op.getSeq(), op.getScaleAttr());
    return success();
  }
};

/// dq, dk, dv, dg, dbeta = cp_gated_delta_rule_bwd(do, q, k, v, g, beta,
///   states, gradients)  ->  gdn_prep, cp_gdn_scan, cp_gdn_scan_bwd,
///   gdn_local_bwd
struct LowerStripedBackward : OpRewritePattern<CpGatedDeltaRuleBwdOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(CpGatedDeltaRuleBwdOp op,
                                PatternRewriter &rewriter) const override {
    Location loc = op.getLoc();
    auto prep = qkern::GdnPrepOp::create(rewriter, loc, op.getQ(), op.getK(),
                                         op.getG(), op.getBeta(), op.getSeq(),
                                         op.getEpsAttr());
    auto scan = qkern::CpGdnScanOp::create(
        rewriter, loc, prep.getKn(), op.getV(), op.getBeta(), prep.getGamma(),
        prep.getTinv(), op.getStates(), op.getSeq(), op.getStripes());
    auto scanBwd = qkern::CpGdnScanBwdOp::create(
        rewriter, loc, prep.getQn(), prep.getKn(), op.getDO(), op.getBeta(),
        prep.getGamma(), prep.getTinv(), op.getGradients(), op.getSeq(),
        op.getStripes(), op.getScaleAttr());
    rewriter.replaceOpWithNewOp<qkern::GdnLocalBwdOp>(
        op, prep.getQn(), prep.getKn(), prep.getQr(), prep.getKr(), op.getV(),
        op.getDO(), op.getBeta(), prep.getGamma(), scan.getStates(),
        scanBwd.getDstates(), scan.getVnew(), scanBwd.getZ(), op.getSeq(),
        op.getScaleAttr());
    return success();
  }
};

struct LowerGdn : impl::LowerGdnBase<LowerGdn> {
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<LowerForward, LowerBackward, LowerAffine, LowerStateGrad,
                 LowerStriped, LowerStripedBackward>(&getContext());
    walkAndApplyPatterns(getOperation(), std::move(patterns));
  }
};

} // namespace
} // namespace qwen35
