#include "frontend/model/GatedDeltaNet.h"

#include <cmath>

namespace qwen35 {

using dsl::Builder;
using dsl::Init;
using dsl::Tensor;

// Under the root of the L2 norms; fixed in the reference, unlike rms_norm_eps.
constexpr double kL2Eps = 1e-6;

GatedDeltaNet::GatedDeltaNet(Builder &builder, const llvm::Twine &path,
                             const ModelConfig &config)
    : Module(builder, path), keyHeads(config.linearNumKeyHeads),
      keyHeadDim(config.linearKeyHeadDim),
      valueHeads(config.linearNumValueHeads),
      valueHeadDim(config.linearValueHeadDim), eps(config.rmsNormEps),
      dtBias(builder.parameter(child("dt_bias"), {valueHeads}, Init::ones(),
                               builder.fileType())),
      // Published files keep these two in float32 among bf16 tensors.
      aLog(builder.parameter(child("A_log"), {valueHeads},
                             Init::logUniform(0.01, 16), FileType::Float32)),
      convWeight(builder.parameter(
          child("conv1d.weight"),
          {config.linearConvDim(), 1, config.linearConvKernelDim})),
      normWeight(builder.parameter(child("norm.weight"), {valueHeadDim},
                                   Init::ones(), FileType::Float32)),
      outProj(builder, child("out_proj"), config.linearValueDim(),
              config.hiddenSize),
      inProjQkv(builder, child("in_proj_qkv"), config.hiddenSize,
                config.linearConvDim()),
      inProjZ(builder, child("in_proj_z"), config.hiddenSize,
              config.linearValueDim()),
      inProjB(builder, child("in_proj_b"), config.hiddenSize, valueHeads),
      inProjA(builder, child("in_proj_a"), config.hiddenSize, valueHeads) {}

Tensor GatedDeltaNet::operator()(Tensor x) const {
  Builder::Scope scope(builder, path());
  Builder &b = builder;
  int64_t tokens = b.documents().tokens();
  int64_t keyDim = keyHeads * keyHeadDim, valueDim = valueHeads * valueHeadDim;

  // Three contiguous sections: q, k, v, each head by head.
  Tensor mixed = b.causalConv(inProjQkv(x), convWeight);
  auto section = [&](int64_t start, int64_t heads, int64_t dim) {
    return b.reshape(b.slice(mixed, /*axis=*/1, start, heads * dim),
                     {tokens, heads, dim});
  };
  Tensor q = section(0, keyHeads, keyHeadDim);
  Tensor k = section(keyDim, keyHeads, keyHeadDim);
  Tensor v = section(2 * keyDim, valueHeads, valueHeadDim);

  // Named one by one: C++ does not order the arguments of a call, and the same
  // model must give the same text under every compiler.
  Tensor decayInput = inProjA(x);
  Tensor writeInput = inProjB(x);
  Builder::Gates gates = b.gdnGates(decayInput, writeInput, aLog, dtBias);
  Tensor o = b.gatedDeltaRule(q, k, v, gates, 1 / std::sqrt(double(keyHeadDim)),
                              kL2Eps);

  Tensor z = b.reshape(inProjZ(x), {tokens, valueHeads, valueHeadDim});
  Tensor y = b.gatedRmsNorm(o, z, normWeight, eps);
  return outProj(b.reshape(y, {tokens, valueDim}));
}

} // namespace qwen35
