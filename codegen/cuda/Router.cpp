// The router of a mixture of experts and its load-balance loss; see
// q35/router.cuh. Everything here is float, whatever the activations are.

#include "codegen/cuda/Families.h"
#include "codegen/cuda/Rows.h"
#include "runtime/schema/seq_table.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace qwen35::codegen::cuda {
namespace {

using llvm::divideCeil;

constexpr int kThreads = 256;

Type f32Of(const KernelSpec &spec) {
  return Float32Type::get(spec.inputs[0].getContext());
}
Type i32Of(const KernelSpec &spec) {
  return IntegerType::get(spec.inputs[0].getContext(), 32);
}
int64_t stride(MemRefType type) { return stridesOf(type)[0]; }

DeviceStage stageOf(StringRef function, int64_t blocks) {
  DeviceStage stage;
  stage.header = "q35/router.cuh";
  stage.function = function.str();
  stage.blocks = blocks;
  stage.threads = kThreads;
  return stage;
}

class Router : public KernelFamily {
public:
  StringRef op() const override { return "router"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec, const GpuTarget &,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 1, 3, emitError)) ||
        failed(requireAttrs(spec, {"top_k"}, emitError)) ||
        failed(requireType(spec, spec.inputs[0], "logits", {kAny, kAny},
                           f32Of(spec), emitError)))
      return failure();
    int64_t tokens = spec.inputs[0].getDimSize(0);
    int64_t experts = spec.inputs[0].getDimSize(1);
    int64_t topK = spec.integer("top_k");
    if (topK < 1 || topK > experts) {
      emitError() << "router: top_k is " << topK << ", expected 1 to "
                  << experts;
      return failure();
    }
    if (failed(requireType(spec, spec.outputs[0], "weights", {tokens, topK},
                           f32Of(spec), emitError)) ||
        failed(requireType(spec, spec.outputs[1], "idx", {tokens, topK},
                           i32Of(spec), emitError)) ||
        failed(requireType(spec, spec.outputs[2], "probs", {tokens, experts},
                           f32Of(spec), emitError)))
      return failure();
    DeviceStage stage = stageOf("router", divideCeil(tokens, kThreads / 32));
    stage.constant("tokens", tokens).constant("experts", experts);
    stage.constant("topK", topK);
    stage.constant("logitsStride", stride(spec.inputs[0]));
    stage.constant("weightsStride", stride(spec.outputs[0]));
    stage.constant("idxStride", stride(spec.outputs[1]));
    stage.constant("probsStride", stride(spec.outputs[2]));
    KernelPlan plan;
    plan.stages = {stage};
    return plan;
  }
};

class RouterBwd : public KernelFamily {
public:
  StringRef op() const override { return "router_bwd"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec, const GpuTarget &,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 3, 1, emitError)) ||
        failed(requireAttrs(spec, {"experts"}, emitError)) ||
        failed(requireType(spec, spec.inputs[1], "weights", {kAny, kAny},
                           f32Of(spec), emitError)) ||
        failed(requireSameShape(spec, spec.inputs[1], "weights",
                                spec.inputs[0], "dweights", emitError)))
      return failure();
    int64_t tokens = spec.inputs[1].getDimSize(0);
    int64_t topK = spec.inputs[1].getDimSize(1);
    if (failed(requireType(spec, spec.inputs[2], "idx", {tokens, topK},
                           i32Of(spec), emitError)) ||
        failed(requireType(spec, spec.outputs[0], "dlogits",
                           {tokens, spec.integer("experts")}, f32Of(spec),
                           emitError)))
      return failure();
    DeviceStage stage =
        stageOf("router_bwd", divideCeil(tokens, kThreads / 32));
    stage.constant("tokens", tokens).constant("topK", topK);
    stage.constant("experts", spec.integer("experts"));
    stage.constant("dweightsStride", stride(spec.inputs[0]));
    stage.constant("weightsStride", stride(spec.inputs[1]));
    stage.constant("idxStride", stride(spec.inputs[2]));
    stage.constant("dlogitsStride", stride(spec.outputs[0]));
    KernelPlan plan;
    plan.stages = {stage};
    return plan;
  }
};

/// What router_aux and its gradient share: probs and idx of every layer from
/// operand `first` on, then the document table.
struct AuxShape {
  AuxShape(const KernelSpec &spec, unsigned first)
      : spec(spec), first(first), layers((spec.inputs.size() - first - 1) / 2),
        tokens(spec.inputs[first].getDimSize(0)),
        experts(spec.inputs[first].getDimSize(1)),
        topK(spec.inputs[first + layers].getDimSize(1)) {}

  static LogicalResult check(const KernelSpec &spec, unsigned first,
                             EmitError emitError) {
    if (spec.inputs.size() < first + 3 ||
        (spec.inputs.size() - first) % 2 != 1)
      return emitError() << spec.op << ": has " << spec.inputs.size()
                         << " operands, expected probs and idx of every "
                            "layer and the document table";
    if (failed(requireAttrs(spec, {"scope", "tokens", "max_docs"}, emitError)))
      return failure();
    if (failed(requireType(spec, spec.inputs[first], "probs", {kAny, kAny},
                           f32Of(spec), emitError)))
      return failure();
    AuxShape shape(spec, first);
    auto sameLayout = [&](MemRefType type, MemRefType other) {
      return stride(type) == stride(other);
    };
    for (int64_t l = 0; l < shape.layers; ++l) {
      MemRefType probs = spec.inputs[first + l];
      MemRefType idx = spec.inputs[first + shape.layers + l];
      if (failed(requireType(spec, probs, "probs",
                             {shape.tokens, shape.experts}, f32Of(spec),
                             emitError)) ||
          failed(requireType(spec, idx, "idx", {shape.tokens, shape.topK},
                             i32Of(spec), emitError)))
        return failure();
      if (!sameLayout(probs, spec.inputs[first]) ||
          !sameLayout(idx, spec.inputs[first + shape.layers]))
        return emitError() << spec.op
                           << ": probs or idx of two layers have different "
                              "strides";
    }
    SeqTable seq{spec.integer("tokens"), spec.integer("max_docs")};
    return requireType(spec, spec.inputs.back(), "seq", {seq.words()},
                       i32Of(spec), emitError);
  }

  int64_t chunks() const { return divideCeil(tokens, 128); }

  /// Stages 1 and 2, and the constants that `last` shares with them.
  KernelPlan plan(DeviceStage last) const {
    bool backward = first == 1;
    DeviceStage constants;
    constants.constant("layers", layers).constant("tokens", tokens);
    constants.constant("experts", experts).constant("topK", topK);
    constants.constant("probsStride", stride(spec.inputs[first]));
    constants.constant("idxStride", stride(spec.inputs[first + layers]));
    constants.constant("dprobsStride",
                       backward ? stride(spec.outputs[0]) : 0);
    constants.constant("pooled", spec.text("scope") == "pooled");
    constants.constant("backward", backward);
    constants.constant("outputs", int64_t(spec.outputs.size()));
    DeviceStage chunked = stageOf("router_aux_chunks", layers * chunks());
    chunked.sharedBytes = experts * 4;
    DeviceStage layered = stageOf("router_aux_layers",
                                  divideCeil(layers * experts, kThreads));
    chunked.constants = layered.constants = last.constants =
        constants.constants;
    KernelPlan plan;
    plan.stages = {chunked, layered, last};
    plan.workspaceBytes = 2 * layers * experts * (1 + chunks()) * 4;
    return plan;
  }

  const KernelSpec &spec;
  unsigned first;
  int64_t layers, tokens, experts, topK;
};

class RouterAux : public KernelFamily {
public:
  StringRef op() const override { return "router_aux"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec, const GpuTarget &,
                             EmitError emitError) const override {
    if (failed(AuxShape::check(spec, 0, emitError)))
      return failure();
    if (spec.outputs.size() != 1 ||
        failed(requireType(spec, spec.outputs[0], "aux", {}, f32Of(spec),
                           emitError)))
      return failure();
    return AuxShape(spec, 0).plan(stageOf("router_aux", 1));
  }
};

class RouterAuxBwd : public KernelFamily {
public:
  StringRef op() const override { return "router_aux_bwd"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec, const GpuTarget &,
                             EmitError emitError) const override {
    if (failed(AuxShape::check(spec, 1, emitError)) ||
        failed(requireType(spec, spec.inputs[0], "daux", {}, f32Of(spec),
                           emitError)))
      return failure();
    AuxShape shape(spec, 1);
    if (static_cast<int64_t>(spec.outputs.size()) != shape.layers) {
      emitError() << "router_aux_bwd: has " << spec.outputs.size()
                  << " results for " << shape.layers << " layers";
      return failure();
    }
    for (MemRefType output : spec.outputs) {
      if (failed(requireType(spec, output, "dprobs",
                             {shape.tokens, shape.experts}, f32Of(spec),
                             emitError)))
        return failure();
      if (stride(output) != stride(spec.outputs[0]))
        return emitError() << "router_aux_bwd: dprobs of two layers have "
                              "different strides";
    }
    return shape.plan(
        stageOf("router_aux_bwd", shape.layers * shape.chunks()));
  }
};

/// What router_aux adds up over the tokens of one rank.
class RouterStats : public KernelFamily {
public:
  StringRef op() const override { return "router_stats"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec, const GpuTarget &,
                             EmitError emitError) const override {
    if (failed(AuxShape::check(spec, 0, emitError)))
      return failure();
    AuxShape shape(spec, 0);
    if (spec.outputs.size() != 3)
      return emitError() << "router_stats: has " << spec.outputs.size()
                         << " results, expected counts, sums and tokens";
    int64_t rows = spec.text("scope") == "pooled" ? 1 : shape.layers;
    for (unsigned i : {0, 1}) {
      StringRef name = i ? "sums" : "counts";
      if (failed(requireType(spec, spec.outputs[i], name, {rows, shape.experts},
                             f32Of(spec), emitError)) ||
          failed(requireDense(spec, spec.outputs[i], name, emitError)))
        return failure();
    }
    if (failed(requireType(spec, spec.outputs[2], "tokens", {}, f32Of(spec),
                           emitError)))
      return failure();
    return shape.plan(
        stageOf("router_stats", divideCeil(rows * shape.experts, kThreads)));
  }
};

/// Sizes of router_stats_aux and router_stats_grad, whose counts are operand
/// `first`, as constants of a stage.
LogicalResult describeStats(const KernelSpec &spec, unsigned first,
                            DeviceStage &stage, EmitError emitError) {
  if (failed(requireAttrs(spec, {"scope", "layers", "slots"}, emitError)))
    return failure();
  bool pooled = spec.text("scope") == "pooled";
  int64_t layers = spec.integer("layers");
  MemRefType counts = spec.inputs[first];
  if (failed(requireType(spec, counts, "counts", {pooled ? 1 : layers, kAny},
                         f32Of(spec), emitError)) ||
      failed(requireDense(spec, counts, "counts", emitError)))
    return failure();
  stage.constant("layers", layers)
      .constant("experts", counts.getDimSize(1))
      .constant("topK", spec.integer("slots"))
      .constant("pooled", pooled);
  return success();
}

class RouterStatsAux : public KernelFamily {
public:
  StringRef op() const override { return "router_stats_aux"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec, const GpuTarget &,
                             EmitError emitError) const override {
    DeviceStage stage = stageOf("router_stats_aux", 1);
    if (failed(requireCounts(spec, 3, 1, emitError)) ||
        failed(describeStats(spec, 0, stage, emitError)) ||
        failed(requireSameShape(spec, spec.inputs[0], "counts", spec.inputs[1],
                                "sums", emitError)) ||
        failed(requireDense(spec, spec.inputs[1], "sums", emitError)) ||
        failed(requireType(spec, spec.inputs[2], "tokens", {}, f32Of(spec),
                           emitError)) ||
        failed(requireType(spec, spec.outputs[0], "aux", {}, f32Of(spec),
                           emitError)))
      return failure();
    KernelPlan plan;
    plan.stages = {stage};
    return plan;
  }
};

class RouterStatsGrad : public KernelFamily {
public:
  StringRef op() const override { return "router_stats_grad"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec, const GpuTarget &,
                             EmitError emitError) const override {
    DeviceStage stage = stageOf("router_stats_grad", 1);
    if (spec.inputs.size() != 4)
      return emitError() << "router_stats_grad: has " << spec.inputs.size()
                         << " operands, expected 4";
    if (failed(requireAttrs(spec, {"tokens", "max_docs"}, emitError)) ||
        failed(describeStats(spec, 1, stage, emitError)) ||
        failed(requireType(spec, spec.inputs[0], "daux", {}, f32Of(spec),
                           emitError)) ||
        failed(requireType(spec, spec.inputs[2], "tokens", {}, f32Of(spec),
                           emitError)))
      return failure();
    SeqTable seq{spec.integer("tokens"), spec.integer("max_docs")};
    if (failed(requireType(spec, spec.inputs[3], "seq", {seq.words()},
                           i32Of(spec), emitError)))
      return failure();
    int64_t layers = spec.integer("layers");
    if (static_cast<int64_t>(spec.outputs.size()) != layers)
      return emitError() << "router_stats_grad: has " << spec.outputs.size()
                         << " results for " << layers << " layers";
    for (MemRefType output : spec.outputs) {
      if (failed(requireType(spec, output, "dprobs",
                             {seq.tokens, spec.inputs[1].getDimSize(1)},
                             f32Of(spec), emitError)))
        return failure();
      if (stride(output) != stride(spec.outputs[0]))
        return emitError() << "router_stats_grad: dprobs of two layers have "
                              "different strides";
    }
    stage.constant("tokens", seq.tokens)
        .constant("dprobsStride", stride(spec.outputs[0]));
    stage.blocks = layers * divideCeil(seq.tokens, 128);
    KernelPlan plan;
    plan.stages = {stage};
    return plan;
  }
};

} // namespace

void registerRouterKernels() {
  registerKernel(std::make_unique<RouterStats>());
  registerKernel(std::make_unique<RouterStatsAux>());
  registerKernel(std::make_unique<RouterStatsGrad>());
  registerKernel(std::make_unique<Router>());
  registerKernel(std::make_unique<RouterBwd>());
  registerKernel(std::make_unique<RouterAux>());
  registerKernel(std::make_unique<RouterAuxBwd>());
}

} // namespace qwen35::codegen::cuda
