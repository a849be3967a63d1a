#include "frontend/model/TrainModel.h"

#include "frontend/config/Text.h"
#include "frontend/model/Decoder.h"

#include <cmath>

namespace qwen35 {

using dsl::Builder;
using dsl::Tensor;

mlir::OwningOpRef<mlir::ModuleOp>
buildTrainModel(mlir::MLIRContext &context, const ModelConfig &config,
                const TrainModelOptions &options) {
  auto refuse = [&](const llvm::Twine &message) {
    mlir::emitError(mlir::UnknownLoc::get(&context)) << message;
    return nullptr;
  };
  if (llvm::Error error = checkConfig(config))
    return refuse(llvm::toString(std::move(error)));
  if (options.aux != AuxScope::None && !config.moe)
    return refuse("an auxiliary loss was asked for, but the model is dense and "
                  "has no routers; expected none");
  if (!(options.auxCoefficient >= 0) || !std::isfinite(options.auxCoefficient))
    return refuse("the coefficient of the auxiliary loss is " +
                  shortestReal(options.auxCoefficient) +
                  ", expected a number of at least zero");

  Builder b(context, {.tokens = options.tokens,
                      .maxDocs = options.maxDocs,
                      .initializerRange = config.initializerRange,
                      .fileType = config.dtype});
  Decoder decoder(b, "model", config);
  Tensor head = decoder.embedTokens.weight;
  if (!config.tieWordEmbeddings)
    head = b.parameter("lm_head.weight", {config.vocabSize, config.hiddenSize});

  LayerState state;
  Tensor h = decoder(b.ids(), state);
  Builder::Scope scope(b, "lm_head");
  Tensor loss = b.lmLoss(h, head, b.labels(), b.invCount());
  if (options.aux == AuxScope::None)
    return b.finish(loss);

  Builder::Scope auxScope(b, "router_aux");
  Tensor aux = b.routerAux(
      state.routing, options.aux == AuxScope::Pooled ? "pooled" : "per_layer");
  aux = b.mulScalar(aux, b.auxScale());
  Tensor total = b.add(loss, b.scale(aux, options.auxCoefficient));
  return b.finish(total, dsl::AuxiliaryLoss{loss, aux});
}

} // namespace qwen35
