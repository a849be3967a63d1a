#include "passes/Fusion/CostModel.h"

#include "dialect/QKern/IR/QKernDialect.h"

#include <cmath>

using namespace mlir;

namespace qwen35 {

static double elementsOf(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type ? static_cast<double>(type.getNumElements()) : 0;
}

static double bytesOf(ValueRange values) {
  double bytes = 0;
  for (Value value : values)
    if (auto type = dyn_cast<RankedTensorType>(value.getType()))
      bytes += static_cast<double>(type.getNumElements()) *
               type.getElementTypeBitWidth() / 8;
  return bytes;
}

static int64_t dimOf(Value value, unsigned dim) {
  return cast<RankedTensorType>(value.getType()).getDimSize(dim);
}

/// Seconds of arithmetic of an op that is not bound by memory.
static double arithmeticSeconds(Operation *op, const CostConstants &c) {
  if (isa<LinearOp, MatmulOp>(op)) {
    double result = elementsOf(op->getResult(0));
    double inner = std::sqrt(elementsOf(op->getOperand(0)) *
                             elementsOf(op->getOperand(1)) / result);
    return 2 * result * inner / c.products;
  }
  StringRef name = op->getName().stripDialect();
  bool backward = name.ends_with("_bwd") || name.ends_with("_grad");
  if (name.contains("attention")) {
    // Of all operands the first has the rank's queries, the widest of the
    // others all keys; half of the pairs are masked.
    double queries = elementsOf(op->getOperand(0)), keys = 0;
    for (Value operand : op->getOperands())
      if (auto type = dyn_cast<RankedTensorType>(operand.getType());
          type && type.getRank() == 3)
        keys = std::max(keys, double(type.getDimSize(0)));
    return backward ? 5 * queries * keys / c.attentionBackward
                    : 2 * queries * keys / c.attention;
  }
  if (name.contains("gated_delta_rule") || name.contains("gdn_affine") ||
      name.contains("gdn_state_grad")) {
    double heads = 0;
    for (Value operand : op->getOperands())
      if (auto type = dyn_cast<RankedTensorType>(operand.getType());
          type && type.getRank() == 3)
        heads = std::max(heads, double(type.getDimSize(0)) *
                                    double(type.getDimSize(1)));
    return (backward ? 2 : 1) * c.deltaPerHead * heads / c.products;
  }
  if (isa<MoeExpertsOp, MoeExpertsBwdOp>(op)) {
    bool forward = isa<MoeExpertsOp>(op);
    Value x = op->getOperand(forward ? 0 : 1);
    Value weights = op->getOperand(forward ? 1 : 2);
    Value down = op->getOperand(forward ? 4 : 5);
    double products = 2.0 * 3 * dimOf(x, 1) * dimOf(down, 2);
    return (forward ? 1 : 3) * products * elementsOf(weights) / c.products;
  }
  if (isa<LmLossOp, LmLossGradOp, LmStatsOp, LmStatsGradOp>(op)) {
    double logits = double(dimOf(op->getOperand(0), 0)) *
                    dimOf(op->getOperand(1), 0);
    int products = isa<LmLossGradOp, LmStatsGradOp>(op) ? 3 : 1;
    return 2 * products * logits * dimOf(op->getOperand(0), 1) / c.products;
  }
  return 0;
}

double computeSeconds(Operation *op, const CostConstants &constants) {
  if (isa<ReshapeOp, SliceOp, ZerosOp, OnesOp>(op) ||
      op->hasTrait<OpTrait::IsTerminator>())
    return 0;
  if (op->getName().getDialectNamespace() == "qdist" &&
      !isa<qdist::AllSliceOp, qdist::LocalIdsOp>(op))
    return 0;
  double arithmetic = 0;
  if (auto group = dyn_cast<qkern::GroupOp>(op)) {
    double bytes = bytesOf(op->getResults());
    for (Operation &part : group.getBody().front()) {
      arithmetic += arithmeticSeconds(&part, constants);
      for (Value operand : part.getOperands())
        if (operand.getParentBlock() != &group.getBody().front())
          bytes += bytesOf(operand);
    }
    return std::max(arithmetic, bytes / constants.memory) + constants.launch;
  }
  arithmetic = arithmeticSeconds(op, constants);
  double bytes = bytesOf(op->getOperands()) + bytesOf(op->getResults());
  return std::max(arithmetic, bytes / constants.memory) + constants.launch;
}

double exchangeSeconds(Operation *op, const Mesh &mesh,
                       const CostConstants &constants) {
  if (!isa<qdist::AllGatherOp, qdist::AllReduceOp, qdist::ReduceScatterOp,
           qdist::AllToAllOp, qdist::ShiftOp>(op))
    return 0;
  MeshAxes axes = qdist::axesOf(mesh, op->getAttrOfType<ArrayAttr>("axes"));
  // Ranks are numbered so that a node holds neighbours.
  std::vector<int64_t> group = mesh.group(0, axes);
  double ranks = static_cast<double>(group.size());
  bool oneNode = group.back() / constants.node == group.front() / constants.node;
  double inside = 0;
  for (int64_t rank : group)
    inside += rank / constants.node == group.front() / constants.node;
  double nodes = ranks / inside;
  double bytes = std::max(bytesOf(op->getOperands()), bytesOf(op->getResults()));
  double passes = isa<qdist::AllReduceOp>(op) ? 2 : 1;
  if (isa<qdist::ShiftOp>(op))
    return bytes / (oneNode ? constants.link : constants.nic) +
           (oneNode ? constants.linkDelay : constants.nicDelay);
  double seconds = bytes * (ranks - 1) / ranks / constants.link;
  if (!oneNode)
    seconds = std::max(seconds, bytes * (nodes - 1) / nodes /
                                    (inside * constants.nic));
  return passes * seconds + (oneNode ? constants.linkDelay
                                     : constants.nicDelay * std::log2(nodes));
}

} // namespace qwen35
