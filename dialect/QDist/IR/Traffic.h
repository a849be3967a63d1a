#ifndef QWEN35_DIALECT_QDIST_IR_TRAFFIC_H
#define QWEN35_DIALECT_QDIST_IR_TRAFFIC_H

#include "dialect/QDist/IR/QDistDialect.h"

namespace qwen35::qdist {

/// sum = add(argument, reduction), or what has waited for one: it can wait for
/// its sum's reader.
bool isAccumulation(mlir::Operation *op);

/// Bytes of ranked tensors.
int64_t bytesOf(mlir::ValueRange values);

} // namespace qwen35::qdist

#endif // QWEN35_DIALECT_QDIST_IR_TRAFFIC_H
