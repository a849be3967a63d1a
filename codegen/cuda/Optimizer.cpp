// The end of a step: global norm in f64, clip factor, AdamW. norm_sq and adamw
// also take lists of tensors: all p, then all m, ...; one launch for all. For
// tensors whose squares another kernel has summed up, norm_sq takes these sums.

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

/// The tables of kernels on these tensors (q35/lists.cuh); returns how many
/// pieces there are.
int64_t addLists(DeviceStage &stage, ArrayRef<MemRefType> tensors,
                 int64_t piece) {
  SmallVector<int64_t> ends, elements;
  int64_t pieces = 0;
  for (MemRefType tensor : tensors) {
    elements.push_back(elementCount(tensor));
    ends.push_back(pieces += llvm::divideCeil(elements.back(), piece));
  }
  stage.tables = {{"ends", ends}, {"elements", elements}};
  stage.packed = true;
  stage.constant("lists", static_cast<int64_t>(tensors.size()));
  return pieces;
}

/// result = acc + sum of x^2 in f64, over one x or several, and f64 scalars
/// before acc: a partial per block, then their sum in order; small tensors by one
/// block.
struct NormSq : KernelFamily {
  StringRef op() const override { return "norm_sq"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec, const GpuTarget &target,
                             EmitError emitError) const override {
    size_t lists = std::max<size_t>(spec.inputs.size(), 2) - 1, sums = 0;
    if (failed(requireCounts(spec, lists + 1, 1, emitError)))
      return failure();
    while (lists > 1 && spec.inputs[lists - 1].getElementType().isF64())
      --lists, ++sums;
    MemRefType x = spec.inputs[0];
    Type f32 = Float32Type::get(x.getContext());
    Type f64 = Float64Type::get(x.getContext());
    for (MemRefType x : ArrayRef(spec.inputs).take_front(lists))
      if (failed(requireType(spec, x, "x", x.getShape(), f32, emitError)) ||
          failed(requireDense(spec, x, "x", emitError)))
        return failure();
    for (MemRefType sum : ArrayRef(spec.inputs).slice(lists, sums))
      if (failed(requireType(spec, sum, "a sum", {}, f64, emitError)))
        return failure();
    if (failed(requireType(spec, spec.inputs.back(), "acc", {}, f64,
                           emitError)) ||
        failed(requireType(spec, spec.outputs[0], "the result", {}, f64,
                           emitError)))
      return failure();
    if (lists + sums > 1)
      return planLists(spec, lists, target);
    constexpr int64_t kOneBlock = 65536, kManyThreads = 1024;
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

private:
  static constexpr int64_t kBatch = 4;

  static KernelPlan planLists(const KernelSpec &spec, size_t lists,
                              const GpuTarget &target) {
    unsigned acc = spec.inputs.size() - 1;
    constexpr int kBlocks = 6; // of a multiprocessor
    DeviceStage stage;
    stage.header = kHeader;
    stage.function = "norm_sq_list_parts";
    stage.threads = kThreads;
    stage.minBlocks = kBlocks;
    int64_t pieces = addLists(stage, ArrayRef(spec.inputs).take_front(lists),
                              kThreads * kBatch * 4);
    stage.blocks =
        std::min<int64_t>(pieces, kBlocks * target.multiprocessors);
    stage.constant("threads", kThreads)
        .constant("sums", static_cast<int64_t>(acc - lists))
        .constant("pieces", pieces)
        .constant("parts", stage.blocks);
    DeviceStage total = stage;
    total.function = "norm_sq_list_total";
    total.blocks = total.minBlocks = 1;
    KernelPlan plan;
    plan.stages = {stage, total};
    plan.workspaceBytes = stage.blocks * 8;
    plan.mayAlias = {{0, acc}};
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

/// AdamW on f32 state, of one parameter or several; a fourth output takes the
/// new parameter in bf16.
struct AdamW : KernelFamily {
  StringRef op() const override { return "adamw"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec, const GpuTarget &target,
                             EmitError emitError) const override {
    size_t lists = spec.inputs.size() < 9 ? 1 : (spec.inputs.size() - 5) / 4;
    bool copies = spec.outputs.size() == 4 * lists;
    if (failed(requireCounts(spec, 4 * lists + 5, (copies ? 4 : 3) * lists,
                             emitError)) ||
        failed(requireAttrs(spec, {"beta1", "beta2", "eps", "weight_decay"},
                            emitError)))
      return failure();
    for (size_t i = 0; i < lists; ++i)
      if (failed(checkTensors(spec, lists, i, emitError)))
        return failure();
    MemRefType p = spec.inputs[0];
    Type f32 = Float32Type::get(p.getContext());
    StringRef scalars[] = {"lr", "factor", "bc1", "bc2", "commit"};
    for (unsigned i = 0; i < 5; ++i)
      if (failed(requireType(spec, spec.inputs[4 * lists + i], scalars[i], {},
                             f32, emitError)))
        return failure();
    double beta1 = spec.number("beta1"), beta2 = spec.number("beta2");
    DeviceStage stage;
    stage.header = kHeader;
    stage.threads = kThreads;
    if (lists == 1) {
      int64_t elements = elementCount(p), vectors = elements / 4;
      stage.function = "adamw";
      stage.blocks = std::max<int64_t>(1, llvm::divideCeil(vectors, kThreads));
      stage.constant("vectors", vectors).constant("tail", elements % 4);
    } else {
      stage.function = "adamw_list";
      stage.minBlocks = 4; // With the loads of all their threads in flight.
      stage.blocks = addLists(stage, ArrayRef(spec.inputs).take_front(lists),
                              kThreads * kBatch * 4);
      stage.constant("threads", kThreads)
          .constant("batch", kBatch)
          .constant("copies", copies);
    }
    stage.constant("beta1", beta1)
        .constant("rest1", 1 - beta1)
        .constant("beta2", beta2)
        .constant("rest2", 1 - beta2)
        .constant("eps", spec.number("eps"))
        .constant("weightDecay", spec.number("weight_decay"));
    KernelPlan plan;
    plan.stages = {stage};
    for (unsigned i = 0; i < 3 * lists; ++i)
      plan.mayAlias.push_back({i, i});
    return plan;
  }

private:
  static constexpr int64_t kBatch = 2;

  /// The state of parameter i of a list.
  static LogicalResult checkTensors(const KernelSpec &spec, size_t lists,
                                    size_t i, EmitError emitError) {
    MemRefType p = spec.inputs[i];
    MLIRContext *context = p.getContext();
    if (failed(requireType(spec, p, "p", p.getShape(),
                           Float32Type::get(context), emitError)) ||
        failed(requireDense(spec, p, "p", emitError)))
      return failure();
    StringRef names[] = {"p", "m", "v", "g"};
    auto requireLikeP = [&](MemRefType type, StringRef name) {
      return success(
          succeeded(requireSameShape(spec, p, "p", type, name, emitError)) &&
          succeeded(requireDense(spec, type, name, emitError)));
    };
    for (unsigned role = 1; role < 4; ++role)
      if (failed(requireLikeP(spec.inputs[role * lists + i], names[role])))
        return failure();
    for (unsigned role = 0; role < 3; ++role)
      if (failed(requireLikeP(spec.outputs[role * lists + i], names[role])))
        return failure();
    if (spec.outputs.size() == 3 * lists)
      return success();
    MemRefType copy = spec.outputs[3 * lists + i];
    return success(succeeded(requireType(spec, copy, "the working copy",
                                         p.getShape(),
                                         BFloat16Type::get(context),
                                         emitError)) &&
                   succeeded(requireDense(spec, copy, "the working copy",
                                          emitError)));
  }
};

} // namespace

void registerOptimizerKernels() {
  registerKernel(std::make_unique<NormSq>());
  registerKernel(std::make_unique<ClipFactor>());
  registerKernel(std::make_unique<AdamW>());
}

} // namespace qwen35::codegen::cuda
