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

struct LowerGdn : impl::LowerGdnBase<LowerGdn> {
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<LowerForward, LowerBackward>(&getContext());
    walkAndApplyPatterns(getOperation(), std::move(patterns));
  }
};

} // namespace
} // namespace qwen35
