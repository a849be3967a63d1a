#include "passes/Fusion/Passes.h"

#include "mlir/IR/Remarks.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

using namespace mlir;

namespace qwen35 {

#define GEN_PASS_DEF_FUSE
#include "passes/Fusion/Passes.h.inc"

namespace {

constexpr remark::RemarkOpts kAddNorm =
    remark::RemarkOpts::name("add-norm").category("fusion");
constexpr remark::RemarkOpts kNormGradient =
    remark::RemarkOpts::name("norm-gradient").category("fusion");

constexpr remark::RemarkOpts kNormRope =
    remark::RemarkOpts::name("norm-rope").category("fusion");
constexpr remark::RemarkOpts kOutputGate =
    remark::RemarkOpts::name("output-gate").category("fusion");

bool isGrouped(Operation *op) { return isa<qkern::GroupOp>(op->getParentOp()); }

/// Moves `ops` into a group where `position` stands; `leaving` are the values
/// that outside readers see.
void groupOps(PatternRewriter &rewriter, Operation *position,
              ArrayRef<Operation *> ops, ArrayRef<Value> leaving) {
  rewriter.setInsertionPoint(position);
  auto group = qkern::GroupOp::create(rewriter, position->getLoc(),
                                      ValueRange(leaving).getTypes());
  Block *body = rewriter.createBlock(&group.getBody());
  for (Operation *op : ops)
    rewriter.moveOpBefore(op, body, body->end());
  rewriter.setInsertionPointToEnd(body);
  auto yield = qkern::YieldOp::create(rewriter, position->getLoc(), leaving);
  for (auto [inside, outside] : llvm::zip_equal(leaving, group.getResults()))
    rewriter.replaceUsesWithIf(inside, outside, [&](OpOperand &use) {
      return use.getOwner() != yield && use.getOwner()->getBlock() != body;
    });
}

/// s = add(h, d); y, r = rms_norm(s, w)  ->  one group of both
struct GroupAddNorm : OpRewritePattern<RmsNormOp> {
  GroupAddNorm(MLIRContext *context, int64_t maxRow)
      : OpRewritePattern(context), maxRow(maxRow) {}

  LogicalResult matchAndRewrite(RmsNormOp norm,
                                PatternRewriter &rewriter) const override {
    auto add = norm.getX().getDefiningOp<AddOp>();
    if (!add || isGrouped(norm) || isGrouped(add))
      return rewriter.notifyMatchFailure(norm, "no sum, or grouped already");

    // The shape is right from here on, so a refusal is worth a remark.
    int64_t row =
        cast<RankedTensorType>(norm.getX().getType()).getShape().back();
    if (row > maxRow) {
      remark::missed(norm.getLoc(), kAddNorm)
          << remark::reason("row of {0} exceeds max-row={1}", row, maxRow);
      return failure();
    }
    auto readsEarly = [&](Operation *reader) { // It may sit in another group.
      reader = norm->getBlock()->findAncestorOpInBlock(*reader);
      return reader != norm && reader->isBeforeInBlock(norm);
    };
    if (llvm::any_of(add->getUsers(), readsEarly)) {
      remark::missed(norm.getLoc(), kAddNorm)
          << remark::reason("the sum is read ahead of the norm");
      return failure();
    }

    remark::passed(norm.getLoc(), kAddNorm) << remark::metric("row", row);
    groupOps(rewriter, norm, {add, norm},
             {add.getSum(), norm.getY(), norm.getRstd()});
    return success();
  }

  int64_t maxRow;
};

/// dx, dw = rms_norm_bwd(dy, x, w, r); g = add(res, dx)  ->  one group of both
struct GroupNormGradient : OpRewritePattern<AddOp> {
  GroupNormGradient(MLIRContext *context, int64_t maxRow)
      : OpRewritePattern(context), maxRow(maxRow) {}

  LogicalResult matchAndRewrite(AddOp add,
                                PatternRewriter &rewriter) const override {
    auto norm = add.getB().getDefiningOp<RmsNormBwdOp>();
    if (!norm || norm.getDx() != add.getB() || isGrouped(add) ||
        isGrouped(norm))
      return rewriter.notifyMatchFailure(add, "adds no norm gradient");

    int64_t row =
        cast<RankedTensorType>(norm.getX().getType()).getShape().back();
    if (row > maxRow) {
      remark::missed(norm.getLoc(), kNormGradient)
          << remark::reason("row of {0} exceeds max-row={1}", row, maxRow);
      return failure();
    }
    if (!norm.getDx().hasOneUse()) {
      remark::missed(norm.getLoc(), kNormGradient)
          << remark::reason("the norm's gradient has other readers");
      return failure();
    }
    Operation *residual = add.getA().getDefiningOp();
    if (residual && !residual->isBeforeInBlock(norm)) {
      remark::missed(norm.getLoc(), kNormGradient)
          << remark::reason("the residual gradient comes later");
      return failure();
    }

    remark::passed(norm.getLoc(), kNormGradient)
        << remark::metric("row", row);
    groupOps(rewriter, norm, {norm, add}, {add.getSum(), norm.getDweight()});
    return success();
  }

  int64_t maxRow;
};

/// y, r = rms_norm(x, w); z = rope(y, table)  ->  one group of both
struct GroupNormRope : OpRewritePattern<RopeOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(RopeOp rope,
                                PatternRewriter &rewriter) const override {
    auto norm = rope.getX().getDefiningOp<RmsNormOp>();
    if (!norm || isGrouped(rope) || isGrouped(norm))
      return rewriter.notifyMatchFailure(rope, "rotates no norm");
    if (!norm.getY().hasOneUse()) {
      remark::missed(rope.getLoc(), kNormRope)
          << remark::reason("the normalized heads have other readers");
      return failure();
    }
    // Readers of the statistics between the two would see the group too late.
    if (llvm::any_of(norm.getRstd().getUsers(), [&](Operation *reader) {
          return rope->getBlock()
              ->findAncestorOpInBlock(*reader)
              ->isBeforeInBlock(rope);
        })) {
      remark::missed(rope.getLoc(), kNormRope)
          << remark::reason("the statistics are read ahead of the rotation");
      return failure();
    }
    remark::passed(rope.getLoc(), kNormRope);
    groupOps(rewriter, rope, {norm, rope}, {rope.getY(), norm.getRstd()});
    return success();
  }
};

/// Says why the output gate stays a kernel of its own.
void remarkGates(func::FuncOp function) {
  function.walk([](MulSigmoidOp gate) {
    if (gate.getX().getDefiningOp<AttentionOp>())
      remark::missed(gate.getLoc(), kOutputGate)
          << remark::reason("attention keeps its ungated output for backward, "
                            "so the gate would save no pass over it");
  });
}

struct Fuse : impl::FuseBase<Fuse> {
  using FuseBase::FuseBase;

  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<GroupAddNorm, GroupNormGradient>(&getContext(), maxRow);
    patterns.add<GroupNormRope>(&getContext());
    // Nothing but grouping: the order of ops is the order of execution.
    GreedyRewriteConfig config;
    config.enableFolding(false)
        .enableConstantCSE(false)
        .setRegionSimplificationLevel(GreedySimplifyRegionLevel::Disabled);
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns),
                                     config)))
      return signalPassFailure();
    remarkGates(getOperation());
  }
};

} // namespace
} // namespace qwen35
