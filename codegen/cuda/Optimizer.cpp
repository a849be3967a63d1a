// The end of a step: global norm in f64, clip factor, AdamW.

#include "codegen/cuda/Families.h"
#include "codegen/cuda/Kernel.h"

#include "llvm/Support/Format.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;

namespace qwen35::codegen::cuda {
namespace {

constexpr llvm::StringLiteral kHeader = "q35/optimizer.cuh";
constexpr int64_t kThreads = 256;

/// Parameters and their state are whole buffers.
LogicalResult requireDense(const KernelSpec &spec, MemRefType type,
                           StringRef name, EmitError emitError) {
  if (!type.getLayout().isIdentity())
    return emitError() << spec.op << ": " << name << " " << type
                       << " is not dense";
  return success();
}

/// result = acc + sum of x^2 in f64: a partial per block, then their sum in
/// order; small tensors by one block.
struct NormSq : KernelFamily {
  StringRef op() const override { return "norm_sq"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec, const GpuTarget &target,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 2, 1, emitError)))
      return failure();
    MemRefType x = spec.inputs[0];
    Type f32 = Float32Type::get(x.getContext());
    Type f64 = Float64Type::get(x.getContext());
    if (failed(requireType(spec, x, "x", x.getShape(), f32, emitError)) ||
        failed(requireDense(spec, x, "x", emitError)) ||
        failed(requireType(spec, spec.inputs[1], "acc", {}, f64, emitError)) ||
        failed(requireType(spec, spec.outputs[0], "the result", {}, f64,
                           emitError)))
      return failure();
    constexpr int64_t kOneBlock = 65536, kManyThreads = 1024, kBatch = 4;
    int64_t elements = elementCount(x), vectors = elements / 4;
    DeviceStage stage;
    stage.header = kHeader;
    stage.constant("vectors", vectors).constant("tail", elements % 4);
    KernelPlan plan;
    plan.mayAlias = {{0, 1}};
    if (elements <= kOneBlock) {
      stage.function = "norm_sq";
      stage.threads = std::clamp<int64_t>(
          llvm::alignTo(llvm::divideCeil(vectors, kBatch), 128), 128,
          kManyThreads);
      stage.constant("threads", stage.threads);
      plan.stages = {stage};
      return plan;
    }
    stage.function = "norm_sq_parts";
    stage.threads = kThreads;
    stage.blocks = std::min<int64_t>(
        llvm::divideCeil(vectors, kThreads * kBatch), 8 * target.multiprocessors);
    stage.constant("threads", kThreads).constant("parts", stage.blocks);
    DeviceStage total = stage;
    total.function = "norm_sq_total";
    total.blocks = 1;
    plan.stages = {stage, total};
    plan.workspaceBytes = stage.blocks * 8;
    return plan;
  }
};

/// norm = sqrt(norm_sq); factor = min(1, max_norm / (norm + 1e-6)), 1 where
/// max_norm is 0; commit = 1 if norm is finite, else 0 and factor 0.
struct ClipFactor : KernelFamily {
  StringRef op() const override { return "clip_factor"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec, const GpuTarget &target,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 1, 3, emitError)) ||
        failed(requireAttrs(spec, {"max_norm"}, emitError)))
      return failure();
    MLIRContext *context = spec.inputs[0].getContext();
    if (failed(requireType(spec, spec.inputs[0], "norm_sq", {},
                           Float64Type::get(context), emitError)))
      return failure();
    StringRef names[] = {"norm", "factor", "commit"};
    for (auto [type, name] : llvm::zip(spec.outputs, names))
      if (failed(requireType(spec, type, name, {}, Float32Type::get(context),
                             emitError)))
        return failure();
    double maxNorm = spec.number("max_norm");
    if (!(maxNorm >= 0)) {
      emitError() << "clip_factor: max_norm must not be negative, got "
                  << maxNorm;
      return failure();
    }
    DeviceStage stage;
    stage.header = kHeader;
    stage.function = "clip_factor";
    stage.threads = 32;
    std::string text = "double ";
    llvm::raw_string_ostream(text) << llvm::format("%a", maxNorm);
    stage.constants.emplace_back("maxNorm", text);
    KernelPlan plan;
    plan.stages = {stage};
    return plan;
  }
};

/// AdamW on f32 state; a fourth output takes the new parameter in bf16.
struct AdamW : KernelFamily {
  StringRef op() const override { return "adamw"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec, const GpuTarget &target,
                             EmitError emitError) const override {
    bool copies = spec.outputs.size() == 4;
    if (failed(requireCounts(spec, 9, copies ? 4 : 3, emitError)) ||
        failed(requireAttrs(spec, {"beta1", "beta2", "eps", "weight_decay"},
                            emitError)))
      return failure();
    MemRefType p = spec.inputs[0];
    Type f32 = Float32Type::get(p.getContext());
    if (failed(requireType(spec, p, "p", p.getShape(), f32, emitError)) ||
        failed(requireDense(spec, p, "p", emitError)))
      return failure();
    StringRef names[] = {"p", "m", "v", "g"};
    auto requireLikeP = [&](MemRefType type, StringRef name) {
      return success(
          succeeded(requireSameShape(spec, p, "p", type, name, emitError)) &&
          succeeded(requireDense(spec, type, name, emitError)));
    };
    for (unsigned i = 1; i < 4; ++i)
      if (failed(requireLikeP(spec.inputs[i], names[i])))
        return failure();
    StringRef scalars[] = {"lr", "factor", "bc1", "bc2", "commit"};
    for (unsigned i = 0; i < 5; ++i)
      if (failed(requireType(spec, spec.inputs[4 + i], scalars[i], {}, f32,
                             emitError)))
        return failure();
    for (unsigned i = 0; i < 3; ++i)
      if (failed(requireLikeP(spec.outputs[i], names[i])))
        return failure();
    if (copies && (failed(requireType(spec, spec.outputs[3], "the working copy",
                                      p.getShape(),
                                      BFloat16Type::get(p.getContext()),
                                      emitError)) ||
                   failed(requireDense(spec, spec.outputs[3],
                                       "the working copy", emitError))))
      return failure();
    int64_t elements = elementCount(p), vectors = elements / 4;
    double beta1 = spec.number("beta1"), beta2 = spec.number("beta2");
    DeviceStage stage;
    stage.header = kHeader;
    stage.function = "adamw";
    stage.threads = kThreads;
    stage.blocks = std::max<int64_t>(1, llvm::divideCeil(vectors, kThreads));
    stage.constant("vectors", vectors)
        .constant("tail", elements % 4)
        .constant("beta1", beta1)
        .constant("rest1", 1 - beta1)
        .constant("beta2", beta2)
        .constant("rest2", 1 - beta2)
        .constant("eps", spec.number("eps"))
        .constant("weightDecay", spec.number("weight_decay"));
    KernelPlan plan;
    plan.stages = {stage};
    plan.mayAlias = {{0, 0}, {1, 1}, {2, 2}};
    return plan;
  }
};

} // namespace

void registerOptimizerKernels() {
  registerKernel(std::make_unique<NormSq>());
  registerKernel(std::make_unique<ClipFactor>());
  registerKernel(std::make_unique<AdamW>());
}

} // namespace qwen35::codegen::cuda
