// Row lookup and its gradient.

#include "codegen/cuda/Families.h"
#include "codegen/cuda/Kernel.h"
#include "codegen/cuda/Layout.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace qwen35::codegen::cuda {
namespace {

constexpr llvm::StringLiteral kHeader = "q35/embedding.cuh";
constexpr int64_t kThreads = 256;

/// y[t] = table[ids[t]]; with {shard} 0 where ids[t] is -1.
struct Embed : KernelFamily {
  StringRef op() const override { return "embed"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec, const GpuTarget &target,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 2, 1, emitError)))
      return failure();
    MemRefType ids = spec.inputs[0], table = spec.inputs[1];
    MemRefType y = spec.outputs[0];
    if (failed(requireType(spec, ids, "ids", {kAny},
                           IntegerType::get(ids.getContext(), 32),
                           emitError)) ||
        failed(requireType(spec, table, "table", {kAny, kAny}, floatTypes(spec),
                           emitError)) ||
        failed(requireType(spec, y, "y",
                           {ids.getDimSize(0), table.getDimSize(1)},
                           floatTypes(spec), emitError)))
      return failure();
    if (!y.getLayout().isIdentity()) {
      emitError() << "embed: y " << y << " is not dense";
      return failure();
    }
    int64_t tokens = y.getDimSize(0), columns = y.getDimSize(1);
    int64_t vector = vectorOf({table, y});
    DeviceStage stage;
    stage.header = kHeader;
    stage.function = "embed";
    stage.threads = kThreads;
    stage.blocks = llvm::divideCeil(tokens * (columns / vector), 4 * kThreads);
    stage.constant("tokens", tokens)
        .constant("columns", columns)
        .constant("vector", vector)
        .constant("rowVectors", columns / vector)
        .constant("tableStride", stridesOf(table)[0])
        .constant("shard", spec.flag("shard"));
    KernelPlan plan;
    plan.stages = {stage};
    return plan;
  }
};

/// y = x - first of a table's rows from `first` = coordinate * size on, -1 for
/// rows of other ranks, x where it is negative.
struct LocalIds : KernelFamily {
  StringRef op() const override { return "local_ids"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec, const GpuTarget &target,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 2, 1, emitError)) ||
        failed(requireAttrs(spec, {"size"}, emitError)))
      return failure();
    MemRefType x = spec.inputs[0], y = spec.outputs[0];
    Type i32 = IntegerType::get(x.getContext(), 32);
    if (failed(requireType(spec, x, "x", x.getShape(), i32, emitError)) ||
        failed(requireType(spec, spec.inputs[1], "coordinate", {}, i32,
                           emitError)) ||
        failed(requireSameShape(spec, x, "x", y, "y", emitError)))
      return failure();
    if (!x.getLayout().isIdentity() || !y.getLayout().isIdentity()) {
      emitError() << "local_ids: x " << x << " or y " << y << " is not dense";
      return failure();
    }
    DeviceStage stage;
    stage.header = kHeader;
    stage.function = "local_ids";
    stage.threads = kThreads;
    stage.blocks =
        std::max<int64_t>(1, llvm::divideCeil(x.getNumElements(), kThreads));
    stage.constant("elements", x.getNumElements())
        .constant("size", spec.integer("size"));
    KernelPlan plan;
    plan.stages = {stage};
    plan.mayAlias = {{0, 0}};
    return plan;
  }
};

/// dtable[i] = sum of dy[t] over ids[t] = i, t ascending; with {accumulate =
/// true} added to a third operand. Ids of no row (-1 with {shard}) are skipped.
struct EmbedBwd : KernelFamily {
  StringRef op() const override { return "embed_bwd"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec, const GpuTarget &target,
                             EmitError emitError) const override {
    bool accumulates = spec.flag("accumulate");
    if (failed(requireCounts(spec, accumulates ? 3 : 2, 1, emitError)) ||
        failed(requireAttrs(spec, {"vocab"}, emitError)))
      return failure();
    MemRefType dy = spec.inputs[0], ids = spec.inputs[1];
    MemRefType dtable = spec.outputs[0];
    Type f32 = Float32Type::get(dy.getContext());
    if (failed(requireType(spec, dy, "dy", {kAny, kAny}, floatTypes(spec),
                           emitError)) ||
        failed(requireType(spec, ids, "ids", {dy.getDimSize(0)},
                           IntegerType::get(dy.getContext(), 32),
                           emitError)) ||
        failed(requireType(spec, dtable, "dtable",
                           {spec.integer("vocab"), dy.getDimSize(1)}, f32,
                           emitError)) ||
        (accumulates && failed(requireSameShape(spec, dtable, "dtable",
                                                spec.inputs[2], "acc",
                                                emitError))))
      return failure();
    if (!dtable.getLayout().isIdentity()) {
      emitError() << "embed_bwd: dtable " << dtable << " is not dense";
      return failure();
    }
    KernelPlan plan;
    plan.stages = {start(dtable, accumulates, target), add(spec, target)};
    if (accumulates)
      plan.mayAlias = {{0, 2}};
    return plan;
  }

private:
  /// Of embed_add, for its registers.
  static constexpr int64_t kBlocksPerMultiprocessor = 3;

  static DeviceStage start(MemRefType dtable, bool accumulates,
                           const GpuTarget &target) {
    int64_t vectors = elementCount(dtable) / 4;
    DeviceStage stage;
    stage.header = kHeader;
    stage.function = accumulates ? "embed_copy" : "embed_zero";
    stage.threads = kThreads;
    stage.blocks =
        std::clamp<int64_t>(llvm::divideCeil(vectors, kThreads), 1,
                            8 * target.multiprocessors);
    stage.constant("vectors", vectors)
        .constant("tail", elementCount(dtable) % 4);
    return stage;
  }

  /// As many groups of ids as fill the device once: each looks through all ids.
  static DeviceStage add(const KernelSpec &spec, const GpuTarget &target) {
    MemRefType dy = spec.inputs[0];
    int64_t tokens = dy.getDimSize(0), columns = dy.getDimSize(1);
    int64_t vector = vectorOf({dy, spec.outputs[0]});
    int64_t slices = llvm::divideCeil(columns, 32 * vector);
    int64_t groups = std::clamp<int64_t>(
        kBlocksPerMultiprocessor * target.multiprocessors / slices, 1, tokens);
    DeviceStage stage;
    stage.header = kHeader;
    stage.function = "embed_add";
    stage.threads = kThreads;
    stage.blocks = groups * slices;
    stage.minBlocks = kBlocksPerMultiprocessor;
    stage.constant("tokens", tokens)
        .constant("columns", columns)
        .constant("vector", vector)
        .constant("groups", groups)
        .constant("dyStride", stridesOf(dy)[0]);
    return stage;
  }
};

} // namespace

void registerEmbeddingKernels() {
  registerKernel(std::make_unique<Embed>());
  registerKernel(std::make_unique<LocalIds>());
  registerKernel(std::make_unique<EmbedBwd>());
}

} // namespace qwen35::codegen::cuda
