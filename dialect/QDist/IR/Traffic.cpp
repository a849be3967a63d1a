#include "dialect/QDist/IR/Traffic.h"

#include "dialect/Qwen35/IR/StepAttrs.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace qwen35::qdist {

bool isAccumulation(Operation *op) {
  auto add = dyn_cast<AddOp>(op);
  if (!add)
    return false;
  for (bool swapped : {false, true}) {
    Value argument = swapped ? add.getB() : add.getA();
    Value other = swapped ? add.getA() : add.getB();
    if (isa<BlockArgument>(argument) &&
        isa_and_nonnull<AllReduceOp, ReduceScatterOp, WaitOp>(
            other.getDefiningOp()))
      return true;
  }
  return false;
}

int64_t bytesOf(ValueRange values) {
  int64_t bytes = 0;
  for (Value value : values) {
    auto type = cast<RankedTensorType>(value.getType());
    bytes += llvm::divideCeil(
        type.getNumElements() * type.getElementTypeBitWidth(), 8);
  }
  return bytes;
}

} // namespace qwen35::qdist
