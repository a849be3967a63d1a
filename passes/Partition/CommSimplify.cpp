#include "passes/Partition/Passes.h"

#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

using namespace mlir;

namespace qwen35 {

#define GEN_PASS_DEF_COMMSIMPLIFY
#include "passes/Partition/Passes.h.inc"

namespace {

bool alone(Operation *op) {
  return op->getNumOperands() == 1 && op->getNumResults() == 1;
}

/// Two reductions that differ in their inputs only.
bool sameReduction(Operation *a, Operation *b) {
  return a && b && a != b && a->getName() == b->getName() &&
         isa<qdist::AllReduceOp, qdist::ReduceScatterOp>(a) && alone(a) &&
         alone(b) && a->hasOneUse() && b->hasOneUse() &&
         a->getOperand(0).getType() == b->getOperand(0).getType() &&
         a->getAttrDictionary() == b->getAttrDictionary() &&
         a->getPropertiesAsAttribute() == b->getPropertiesAsAttribute() &&
         !(isa<qdist::AllReduceOp>(a) &&
           cast<qdist::AllReduceOp>(a).getKind() != "sum");
}

/// The reduction of the sum of both inputs, where the later one is.
Value reduceOnce(PatternRewriter &rewriter, Operation *a, Operation *b) {
  Operation *later = a->isBeforeInBlock(b) ? b : a;
  rewriter.setInsertionPoint(later);
  Value sum = AddOp::create(rewriter, later->getLoc(), a->getOperand(0),
                            b->getOperand(0));
  Operation *reduction = rewriter.clone(*a);
  reduction->setOperand(0, sum);
  return reduction->getResult(0);
}

/// reduce(a) + reduce(b)  ->  reduce(a + b)
struct AddOfReductions : OpRewritePattern<AddOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(AddOp add,
                                PatternRewriter &rewriter) const override {
    Operation *a = add.getA().getDefiningOp(), *b = add.getB().getDefiningOp();
    if (!sameReduction(a, b))
      return rewriter.notifyMatchFailure(add, "not two equal reductions");
    rewriter.replaceOp(add, reduceOnce(rewriter, a, b));
    return success();
  }
};

/// (x + reduce(a)) + reduce(b)  ->  x + reduce(a + b)
struct ChainOfReductions : OpRewritePattern<AddOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(AddOp add,
                                PatternRewriter &rewriter) const override {
    for (bool swapped : {false, true}) {
      Value sum = swapped ? add.getB() : add.getA();
      Value last = swapped ? add.getA() : add.getB();
      auto inner = sum.getDefiningOp<AddOp>();
      Operation *b = last.getDefiningOp();
      if (!inner || !inner->hasOneUse())
        continue;
      for (bool first : {true, false}) {
        Operation *a = (first ? inner.getA() : inner.getB()).getDefiningOp();
        Value x = first ? inner.getB() : inner.getA();
        if (!sameReduction(a, b))
          continue;
        Value reduced = reduceOnce(rewriter, a, b);
        rewriter.setInsertionPoint(add);
        rewriter.replaceOpWithNewOp<AddOp>(add, x, reduced);
        return success();
      }
    }
    return rewriter.notifyMatchFailure(add, "no chain of equal reductions");
  }
};

/// all_slice(all_reduce(x))  ->  reduce_scatter(x)
/// all_slice(all_gather(x))  ->  x
struct SliceOfAll : OpRewritePattern<qdist::AllSliceOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(qdist::AllSliceOp slice,
                                PatternRewriter &rewriter) const override {
    if (!alone(slice))
      return rewriter.notifyMatchFailure(slice, "has several inputs");
    Operation *made = slice.getInputs()[0].getDefiningOp();
    if (auto gather = dyn_cast_or_null<qdist::AllGatherOp>(made);
        gather && alone(gather) && gather.getDim() == slice.getDim() &&
        gather.getAxes() == slice.getAxes()) {
      rewriter.replaceOp(slice, gather.getInputs());
      return success();
    }
    auto reduce = dyn_cast_or_null<qdist::AllReduceOp>(made);
    if (!reduce || !alone(reduce) || !reduce->hasOneUse() ||
        reduce.getKind() != "sum" || reduce.getAxes() != slice.getAxes())
      return rewriter.notifyMatchFailure(slice, "of nothing that pays");
    rewriter.replaceOpWithNewOp<qdist::ReduceScatterOp>(
        slice, slice->getResultTypes(), reduce.getInputs(), reduce.getAxes(),
        reduce.getWireAttr(), slice.getDim());
    return success();
  }
};

struct CommSimplify : impl::CommSimplifyBase<CommSimplify> {
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<AddOfReductions, ChainOfReductions, SliceOfAll>(&getContext());
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      return signalPassFailure();
  }
};

} // namespace
} // namespace qwen35
