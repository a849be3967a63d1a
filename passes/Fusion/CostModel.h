#ifndef QWEN35_PASSES_FUSION_COSTMODEL_H
#define QWEN35_PASSES_FUSION_COSTMODEL_H

#include "dialect/QDist/IR/QDistDialect.h"

namespace qwen35 {

/// What a rank's device and its links do per second.
///
/// Units   Operations, bytes and seconds.
/// Source  DESIGN.md 11: constants of an H200, 8 to a node.
struct CostConstants {
  double products = 650e12;          // and experts
  double attention = 600e12;         // forward; backward below
  double attentionBackward = 380e12;
  double deltaPerHead = 180e3;       // operations per value head and token
  double memory = 4.0e12;
  double launch = 3e-6;
  double link = 370e9;               // within a node
  double nic = 45e9;                 // per device, between nodes
  double linkDelay = 12e-6, nicDelay = 30e-6;
  int64_t node = 8; // devices
};

/// Predicted seconds of an op on local shapes: its arithmetic or its bytes,
/// whichever takes longer. Collectives take none of the device's time.
double computeSeconds(mlir::Operation *op, const CostConstants &constants = {});

/// Predicted seconds of a collective on its links; 0 for other ops.
double exchangeSeconds(mlir::Operation *op, const Mesh &mesh,
                       const CostConstants &constants = {});

} // namespace qwen35

#endif // QWEN35_PASSES_FUSION_COSTMODEL_H
