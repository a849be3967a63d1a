#include "frontend/model/FeedForward.h"

namespace qwen35 {

using dsl::Builder;
using dsl::Tensor;

DenseMlp::DenseMlp(Builder &builder, const llvm::Twine &path,
                   int64_t hiddenSize, int64_t width)
    : Module(builder, path),
      gateProj(builder, child("gate_proj"), hiddenSize, width),
      upProj(builder, child("up_proj"), hiddenSize, width),
      downProj(builder, child("down_proj"), width, hiddenSize) {}

Tensor DenseMlp::operator()(Tensor x) const {
  Builder::Scope scope(builder, path());
  Tensor gate = gateProj(x);
  Tensor up = upProj(x);
  return downProj(builder.swiglu(gate, up));
}

MoeBlock::MoeBlock(Builder &builder, const llvm::Twine &path,
                   const ModelConfig &config)
    : Module(builder, path), topK(config.numExpertsPerTok),
      gate(builder, child("gate"), config.hiddenSize, config.numExperts),
      gateUp(
          builder.parameter(child("experts.gate_up_proj"),
                            {config.numExperts, 2 * config.moeIntermediateSize,
                             config.hiddenSize})),
      down(builder.parameter(
          child("experts.down_proj"),
          {config.numExperts, config.hiddenSize, config.moeIntermediateSize})),
      sharedExpert(builder, child("shared_expert"), config.hiddenSize,
                   config.sharedExpertIntermediateSize),
      sharedExpertGate(builder, child("shared_expert_gate"), config.hiddenSize,
                       1) {}

Tensor
MoeBlock::operator()(Tensor x,
                     llvm::SmallVectorImpl<Builder::Routing> &routing) const {
  Builder::Scope scope(builder, path());
  routing.push_back(builder.router(gate(x), topK));
  Tensor routed = builder.moeExperts(x, routing.back(), gateUp, down);
  Tensor shared = sharedExpert(x);
  Tensor opening = sharedExpertGate(x);
  return builder.add(routed, builder.mulSigmoid(shared, opening));
}

} // namespace qwen35
