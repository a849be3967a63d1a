#include "dialect/QDist/IR/Traffic.h"
#include "dialect/Qwen35/IR/StepAttrs.h"
#include "passes/Partition/Passes.h"

#include "llvm/ADT/MapVector.h"

using namespace mlir;

namespace qwen35 {

#define GEN_PASS_DEF_BUCKET
#include "passes/Partition/Passes.h.inc"

namespace {

bool isReduction(Operation *op) {
  return isa_and_nonnull<qdist::AllReduceOp, qdist::ReduceScatterOp>(op);
}

/// What a collective moves: its larger side.
int64_t bytesOf(Operation *op) {
  return std::max(qdist::bytesOf(op->getOperands()), qdist::bytesOf(op->getResults()));
}

/// Packs the collectives of one function.
class Packer {
public:
  Packer(Block &block, int64_t limit) : block(block), limit(limit) {}

  void run() {
    // Reductions and what only adds their results to a sum go down to their
    // readers, so that readers stand in nobody's way; packed, they come up.
    SmallVector<Operation *> accumulations;
    DenseMap<Operation *, size_t> order; // as they were
    for (Operation &op : block)
      if (isReduction(&op))
        order[&op] = order.size();
    for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
      if (isReduction(&op) || qdist::isAccumulation(&op)) {
        Operation *reader = firstReader(&op);
        if (!reader)
          continue;
        op.moveBefore(reader);
        if (!isReduction(&op))
          accumulations.push_back(&op);
      }
    // A reduction of what another has reduced comes after it.
    DenseMap<Operation *, unsigned> depths;
    SmallVector<SmallVector<Operation *>> levels;
    for (Operation &op : block) {
      unsigned depth = 0;
      for (Value operand : op.getOperands())
        if (Operation *made = operand.getDefiningOp())
          if (auto known = depths.find(made); known != depths.end())
            depth = std::max(depth, known->second);
      if (isReduction(&op)) {
        levels.resize(std::max<size_t>(levels.size(), depth + 1));
        levels[depth].push_back(&op);
        depths[&op] = depth + 1;
      } else if (qdist::isAccumulation(&op)) {
        depths[&op] = depth;
      }
    }
    for (auto &level : levels) {
      llvm::sort(level, [&](Operation *a, Operation *b) {
        Operation *readyA = ready(a), *readyB = ready(b);
        return readyA == readyB ? order.lookup(a) < order.lookup(b)
                                : before(readyA, readyB);
      });
      pack(level, [&](Operation *op) { return ready(op); });
    }
    for (Operation *op : llvm::reverse(accumulations))
      moveAfter(op, ready(op));
    // The others stay where they are: what they make is larger than what they
    // take.
    SmallVector<Operation *> others;
    for (Operation &op : block)
      if (isa<qdist::AllGatherOp, qdist::AllToAllOp>(op))
        others.push_back(&op);
    pack(others, [](Operation *op) { return op; });
  }

private:
  /// Null is the start of the block.
  static bool before(Operation *a, Operation *b) {
    return b && (!a || a->isBeforeInBlock(b));
  }

  /// The last op that makes an operand.
  static Operation *ready(Operation *op) {
    Operation *last = nullptr;
    for (Value operand : op->getOperands())
      if (Operation *made = operand.getDefiningOp(); before(last, made))
        last = made;
    return last;
  }

  static Operation *firstReader(Operation *op) {
    Operation *first = nullptr;
    for (Operation *user : op->getUsers())
      if (!first || user->isBeforeInBlock(first))
        first = user;
    return first;
  }

  void moveAfter(Operation *op, Operation *place) {
    if (place == op)
      return;
    if (place)
      op->moveAfter(place);
    else
      op->moveBefore(&block, block.begin());
  }

  struct Bucket {
    SmallVector<Operation *> ops;
    int64_t bytes = 0;
    Operation *place = nullptr;  // it comes after this
    Operation *reader = nullptr; // and before this
  };

  /// Packs ops, which are in the order of the places that they could have.
  void pack(ArrayRef<Operation *> ops,
            llvm::function_ref<Operation *(Operation *)> placeOf) {
    llvm::MapVector<Attribute, Bucket> open;
    for (Operation *op : ops) {
      Operation *reader = firstReader(op), *place = placeOf(op);
      for (auto &[key, bucket] : open)
        if (!bucket.ops.empty() && !before(place, bucket.reader))
          close(bucket);
      int64_t bytes = bytesOf(op);
      Bucket alone{{op}, bytes, place, reader};
      if (!reader || bytes >= limit) {
        close(alone);
        continue;
      }
      Bucket &bucket = open[keyOf(op)];
      if (!bucket.ops.empty() && bucket.bytes + bytes > limit)
        close(bucket);
      if (bucket.ops.empty()) {
        bucket = alone;
        continue;
      }
      bucket.ops.push_back(op);
      bucket.bytes += bytes;
      bucket.place = place;
      if (before(reader, bucket.reader))
        bucket.reader = reader;
    }
    for (auto &[key, bucket] : open)
      if (!bucket.ops.empty())
        close(bucket);
  }

  /// Collectives of one key can be one: name, axes, kind or dimension, wire and
  /// element type are the same, and so is whether they recompute.
  static Attribute keyOf(Operation *op) {
    Builder b(op->getContext());
    return b.getArrayAttr(
        {b.getStringAttr(op->getName().getStringRef()),
         op->getAttrDictionary(),
         TypeAttr::get(getElementTypeOrSelf(op->getOperand(0).getType()))});
  }

  void close(Bucket &bucket) {
    Operation *first = bucket.ops[0];
    if (bucket.ops.size() == 1) {
      if (isReduction(first))
        moveAfter(first, bucket.place);
      bucket = Bucket();
      return;
    }
    OpBuilder b(block.getParentOp()->getContext());
    if (bucket.place)
      b.setInsertionPointAfter(bucket.place);
    else
      b.setInsertionPointToStart(&block);
    OperationState state(first->getLoc(), first->getName());
    state.attributes = first->getAttrDictionary();
    for (Operation *op : bucket.ops) {
      state.addOperands(op->getOperands());
      state.addTypes(op->getResultTypes());
    }
    Operation *packed = b.create(state);
    unsigned at = 0;
    for (Operation *op : bucket.ops)
      for (Value result : op->getResults())
        result.replaceAllUsesWith(packed->getResult(at++));
    for (Operation *op : bucket.ops)
      op->erase();
    bucket = Bucket();
  }

  Block &block;
  int64_t limit;
};

struct BucketPass : impl::BucketBase<BucketPass> {
  using BucketBase::BucketBase;

  void runOnOperation() override {
    if (bytes < 0) {
      getOperation().emitError("bytes of a bucket are ")
          << bytes.getValue() << ", expected 0 or more";
      return signalPassFailure();
    }
    if (bytes > 0)
      Packer(getOperation().getBody().front(), bytes).run();
  }
};

} // namespace
} // namespace qwen35
