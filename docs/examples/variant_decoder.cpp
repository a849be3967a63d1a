// A decoder that is not in any preset, written with the DSL: two full-attention
// layers around each linear one, mixer and feed-forward block side by side
// instead of one after the other, and a bottleneck of our own in front of the
// head. Prints the model at stage S0; from there on it is compiled like any
// other:
//
//   qwen35-example-variant-decoder | qwen35-opt --qwen35-autodiff ...
#include "frontend/model/Attention.h"
#include "frontend/model/FeedForward.h"
#include "frontend/model/GatedDeltaNet.h"

#include "mlir/IR/MLIRContext.h"

using namespace qwen35;
using dsl::Builder;
using dsl::Tensor;

namespace {

/// x + mixer(norm(x)) + mlp(norm(x)): one norm feeds both branches.
template <typename Mixer> class ParallelLayer : public dsl::Module {
public:
  ParallelLayer(Builder &b, const llvm::Twine &path, const char *mixerName,
                const ModelConfig &config)
      : Module(b, path), mixer(b, child(mixerName), config),
        mlp(b, child("mlp"), config.hiddenSize, config.intermediateSize),
        norm(b, child("norm"), config.hiddenSize, config.rmsNormEps) {}

  template <typename... Extra>
  Tensor operator()(Tensor x, Extra... extra) const {
    Builder::Scope scope(builder, path());
    Tensor normed = norm(x);
    Tensor mixed = builder.add(x, mixer(normed, extra...));
    return builder.add(mixed, mlp(normed));
  }

private:
  Mixer mixer;
  DenseMlp mlp;
  dsl::RmsNorm norm;
};

/// h + up(swiglu(gate h, down h)): plain expressions over parameters.
Tensor bottleneck(Builder &b, Tensor h, int64_t width) {
  Builder::Scope scope(b, "model.bottleneck");
  int64_t hidden = h.dim(1);
  Tensor gate = b.parameter("model.bottleneck.gate", {width, hidden});
  Tensor down = b.parameter("model.bottleneck.down", {width, hidden});
  Tensor up = b.parameter("model.bottleneck.up", {hidden, width});
  Tensor opened = b.linear(h, gate);
  Tensor inner = b.swiglu(opened, b.linear(h, down));
  return b.add(h, b.linear(inner, up));
}

} // namespace

int main() {
  ModelConfig config; // Only the sizes: there is no config.json behind it.
  config.vocabSize = 256;
  config.hiddenSize = 64;
  config.intermediateSize = 128;
  config.numAttentionHeads = 4;
  config.numKeyValueHeads = 2;
  config.headDim = 32;
  config.linearNumKeyHeads = 2;
  config.linearNumValueHeads = 4;
  config.linearKeyHeadDim = config.linearValueHeadDim = 32;

  mlir::MLIRContext context;
  Builder b(context, {.tokens = 96, .maxDocs = 4});
  dsl::Embedding embed(b, "model.embed_tokens", config.vocabSize,
                       config.hiddenSize);
  ParallelLayer<Attention> first(b, "model.layers.0", "self_attn", config);
  ParallelLayer<GatedDeltaNet> second(b, "model.layers.1", "linear_attn",
                                      config);
  ParallelLayer<Attention> third(b, "model.layers.2", "self_attn", config);
  dsl::RmsNorm norm(b, "model.norm", config.hiddenSize, config.rmsNormEps);

  Tensor table = b.ropeTable(config.ropeTheta, config.rotaryDims());
  Tensor x = embed(b.ids());
  x = third(second(first(x, table)), table);
  x = norm(bottleneck(b, x, /*width=*/16));
  Tensor loss = b.lmLoss(x, embed.weight, b.labels(), b.invCount()); // tied

  mlir::OwningOpRef<mlir::ModuleOp> module = b.finish(loss);
  if (!module)
    return 1; // A diagnostic has said what is wrong, and where.
  module->print(llvm::outs());
  return 0;
}
