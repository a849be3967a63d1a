#ifndef QWEN35_FRONTEND_MODEL_TRAINMODEL_H
#define QWEN35_FRONTEND_MODEL_TRAINMODEL_H

#include "frontend/config/ModelConfig.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace qwen35 {

/// The load-balance loss of the routers. MODEL.md 5.5.
enum class AuxScope { None, Pooled, PerLayer };

struct TrainModelOptions {
  int64_t tokens = 0; ///< T, token slots of a packed row
  /// Documents a row may hold, padding included: the user's limit plus one.
  int64_t maxDocs = 0;
  AuxScope aux = AuxScope::None; ///< a dense model has none
  double auxCoefficient = 0.001;
};

/// The model and its loss at stage S0 (docs/stages.md): `@model` with the
/// results loss, and with an auxiliary loss also lm_loss and aux_loss. The
/// parameters are those of `parameterTable(config)`, in its order.
///
/// Errors  null after an MLIR error diagnostic: a config that `checkConfig`
///         refuses, sizes of the row that are not positive, an auxiliary loss
///         of a dense model, a coefficient that is negative or not a number.
mlir::OwningOpRef<mlir::ModuleOp>
buildTrainModel(mlir::MLIRContext &context, const ModelConfig &config,
                const TrainModelOptions &options);

} // namespace qwen35

#endif // QWEN35_FRONTEND_MODEL_TRAINMODEL_H
