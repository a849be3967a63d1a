#include "dialect/QDist/IR/QDistDialect.h"
#include "dialect/Qwen35/IR/StepAttrs.h"
#include "passes/Fusion/Passes.h"

#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/DenseSet.h"

using namespace mlir;

namespace qwen35 {

#define GEN_PASS_DEF_REMAT
#include "passes/Fusion/Passes.h.inc"

namespace {

enum class Policy { Selective, Full };

/// "layers.12" of loc("layers.12.linear_attn"); "" outside layers.
StringRef layerOf(Operation *op) {
  auto name = dyn_cast<NameLoc>(op->getLoc());
  if (!name)
    return "";
  StringRef text = name.getName().strref();
  size_t layers = text.find("layers.");
  if (layers == StringRef::npos)
    return "";
  size_t end = text.find('.', layers + StringRef("layers.").size());
  return text.substr(layers, end == StringRef::npos ? end : end - layers);
}

class Rematerializer {
public:
  Rematerializer(func::FuncOp function, Policy policy)
      : policy(policy), block(function.getBody().front()),
        builder(function.getContext()) {
    for (Operation &op : block) {
      // The loss head is the last forward op and the first backward op.
      if (isa<LmLossGradOp, LmStatsGradOp>(op))
        cut = &op;
    }
  }

  void run() {
    if (!cut)
      return;
    for (Operation &op : block) {
      forward.insert(&op);
      if (&op == cut)
        break;
    }
    // Collected first: copies are inserted on the way.
    SmallVector<Operation *> backward;
    for (Operation *op = cut->getNextNode(); op; op = op->getNextNode())
      backward.push_back(op);
    for (Operation *op : backward) {
      builder.setInsertionPoint(op);
      for (OpOperand &operand : op->getOpOperands())
        operand.set(available(operand.get()));
    }
  }

private:
  /// `value` itself if it is kept, else its copy.
  Value available(Value value) {
    Operation *op = value.getDefiningOp();
    if (!op || !forward.contains(op))
      return value;
    if (auto gather = dyn_cast<qdist::AllGatherOp>(op);
        gather && llvm::all_of(gather.getInputs(), llvm::IsaPred<BlockArgument>))
      return weightAgain(gather, cast<OpResult>(value));
    if (Value copy = copies.lookupOrNull(value))
      return copy;
    if (auto gather = dyn_cast<qdist::AllGatherOp>(op);
        gather && gathersKeys(gather))
      return keysAgain(gather, value);
    if (isKept(value))
      return value;
    IRMapping operands;
    for (Value operand : op->getOperands())
      operands.map(operand, available(operand));
    Operation *copy = builder.clone(*op, operands);
    copy->setAttr(kRecomputeAttr, builder.getUnitAttr());
    for (auto [old, recomputed] :
         llvm::zip_equal(op->getResults(), copy->getResults()))
      copies.map(old, recomputed);
    return copies.lookup(value);
  }

  /// A weight that ranks keep parts of, gathered anew: where backward does that
  /// for its own products, or here if that is later.
  Value weightAgain(qdist::AllGatherOp gather, OpResult value) {
    Operation *here = &*builder.getInsertionPoint();
    Value part = gather.getInputs()[value.getResultNumber()];
    for (OpOperand &use : part.getUses()) {
      auto again = dyn_cast<qdist::AllGatherOp>(use.getOwner());
      if (!again || forward.contains(again) ||
          again.getDim() != gather.getDim() ||
          again.getAxes() != gather.getAxes())
        continue;
      if (here->isBeforeInBlock(again))
        again->moveBefore(here);
      return again->getResult(use.getOperandNumber());
    }
    auto again = qdist::AllGatherOp::create(
        builder, gather.getLoc(), TypeRange(value.getType()), part,
        gather.getAxes(), gather.getWireAttr(), gather.getDim());
    again->setAttr(kRecomputeAttr, builder.getUnitAttr());
    return again.getResult(0);
  }

  static bool gathersKeys(qdist::AllGatherOp gather) {
    return llvm::all_of(gather->getUsers(), [](Operation *user) {
      return isa<CpAttentionOp, CpAttentionBwdOp>(user);
    });
  }

  /// Keys and values of all ranks, which backward gathers anew: it does so
  /// here if attention is computed again.
  Value keysAgain(qdist::AllGatherOp gather, Value value) {
    for (Operation *user : gather.getInputs()[0].getUsers()) {
      auto again = dyn_cast<qdist::AllGatherOp>(user);
      if (!again || forward.contains(again) ||
          again->getOperands() != gather->getOperands() ||
          again.getAxes() != gather.getAxes())
        continue;
      Operation *here = &*builder.getInsertionPoint();
      if (here->isBeforeInBlock(again))
        again->moveBefore(here);
      OpBuilder::InsertionGuard guard(builder);
      builder.setInsertionPoint(again);
      for (OpOperand &operand : again->getOpOperands())
        operand.set(available(operand.get()));
      for (auto [old, anew] :
           llvm::zip_equal(gather.getOutputs(), again.getOutputs()))
        copies.map(old, anew);
      return copies.lookup(value);
    }
    return value;
  }

  bool isKept(Value value) {
    Operation *op = value.getDefiningOp();
    if (op == cut)
      return true;
    // Views cost nothing and must follow what they view.
    if (isa<ReshapeOp, SliceOp>(op))
      return false;
    if (op->getName().getDialectNamespace() == "qdist")
      return true; // Sent once; all ranks keep what they got.
    // What the maps of other ranks made of the states, and the rank's own map:
    // as small as a state, and the gathered maps need not live for them.
    if (isa<GdnAffineOp, AffineScanOp>(op))
      return true;
    return policy == Policy::Full ? leavesLayer(op, value)
                                  : !isCheap(op, value);
  }

  /// Made from kept values without a product, a scan or a softmax.
  static bool isCheap(Operation *op, Value value) {
    if (auto norm = dyn_cast<RmsNormOp>(op))
      return value == norm.getY();
    if (auto norm = dyn_cast<GatedRmsNormOp>(op))
      return value == norm.getY();
    return isa<RopeOp, CausalConvOp, CpCausalConvOp, GdnGatesOp, SwigluOp,
               MulSigmoidOp>(op);
  }

  bool leavesLayer(Operation *op, Value value) {
    StringRef layer = layerOf(op);
    if (layer.empty())
      return true;
    return llvm::any_of(value.getUsers(), [&](Operation *user) {
      return forward.contains(user) && layerOf(user) != layer;
    });
  }

  Policy policy;
  Block &block;
  OpBuilder builder;
  Operation *cut = nullptr;
  DenseSet<Operation *> forward;
  IRMapping copies;
};

struct Remat : impl::RematBase<Remat> {
  using RematBase::RematBase;

  void runOnOperation() override {
    if (policy == "none")
      return;
    if (policy != "selective" && policy != "full") {
      getOperation().emitError("unknown remat policy \"")
          << policy << "\", expected none, selective or full";
      return signalPassFailure();
    }
    Rematerializer(getOperation(),
                   policy == "full" ? Policy::Full : Policy::Selective)
        .run();
  }
};

} // namespace
} // namespace qwen35
