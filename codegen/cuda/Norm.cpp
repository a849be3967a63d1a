// rms_norm:       y = x * rstd * (offset + w), rstd = 1 / sqrt(mean(x^2) + eps)
// gated_rms_norm: y = w * o * rstd * silu(z), rows are heads
// MODEL.md 2.2 and 2.3, gradients 13.1 and 13.2. Kernels: q35/norm.cuh.
//
// Weight gradients take two stages: every block of a persistent grid sums its
// rows in order into a row of the workspace, then those are added in order.

#include "codegen/cuda/Families.h"
#include "codegen/cuda/Rows.h"

using namespace mlir;

namespace qwen35::codegen::cuda {

namespace {

constexpr const char *kHeader = "q35/norm.cuh";

/// Threads per multiprocessor that leave as many registers as the kernels use.
constexpr int64_t kThreads = 1024, kGatedBackwardThreads = 768;

int64_t backwardThreads(const RowLayout &layout) {
  return layout.vectors == 1 ? kThreads : 640;
}

/// Loads in flight of forward kernels: 32 bytes per thread.
int64_t unrollFor(const RowLayout &layout, int64_t inputs) {
  return layout.vectors == 1 && (inputs == 1 || layout.lanes <= 32) ? 2 : 1;
}

LogicalResult requireFloatRows(const KernelSpec &spec, MemRefType type,
                               StringRef what, EmitError emitError) {
  if (type.getRank() < 1)
    return emitError() << spec.op << ": " << what << " is " << type
                       << ", expected rank 1 or more";
  return requireType(spec, type, what, type.getShape(), floatTypes(spec),
                     emitError);
}

LogicalResult requireVector(const KernelSpec &spec, MemRefType type,
                            StringRef what, MemRefType rows,
                            EmitError emitError) {
  return requireType(spec, type, what, {rows.getShape().back()},
                     Float32Type::get(rows.getContext()), emitError);
}

LogicalResult requireStats(const KernelSpec &spec, MemRefType type,
                           MemRefType rows, EmitError emitError) {
  if (failed(requireType(spec, type, "rstd", rows.getShape().drop_back(),
                         Float32Type::get(rows.getContext()), emitError)))
    return failure();
  return requireDense(spec, type, "rstd", emitError);
}

/// All have the shape and element type of the first.
LogicalResult requireAlike(const KernelSpec &spec,
                           ArrayRef<RowOperand> operands,
                           EmitError emitError) {
  for (const RowOperand &other : operands.drop_front())
    if (failed(requireSameShape(spec, operands[0].type, operands[0].name,
                                other.type, other.name, emitError)))
      return failure();
  return success();
}

/// With `adds`, the group add_rms_norm: x = a + b is an output, so operands are
/// a, b, w and results x, y, rstd. The sum is rounded before it is squared.
class RmsNorm : public KernelFamily {
public:
  explicit RmsNorm(bool adds) : adds(adds) {}

  StringRef op() const override { return adds ? "add_rms_norm" : "rms_norm"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec, const GpuTarget &target,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, adds ? 3 : 2, adds ? 3 : 2, emitError)) ||
        failed(requireAttrs(spec, {"eps", "offset"}, emitError)))
      return failure();
    SmallVector<RowOperand> operands = {{adds ? "a" : "x", spec.inputs[0]}};
    if (adds)
      operands.append({{"b", spec.inputs[1]}, {"x", spec.outputs[0]}});
    operands.push_back({"y", spec.outputs[adds ? 1 : 0]});
    MemRefType x = spec.inputs[0];
    if (failed(requireFloatRows(spec, x, adds ? "a" : "x", emitError)) ||
        failed(requireVector(spec, spec.inputs[adds ? 2 : 1], "w", x,
                             emitError)) ||
        failed(requireAlike(spec, operands, emitError)) ||
        failed(requireStats(spec, spec.outputs[adds ? 2 : 1], x, emitError)))
      return failure();
    FailureOr<RowLayout> layout = RowLayout::choose(spec, operands, emitError);
    if (failed(layout))
      return failure();
    layout->unroll = unrollFor(*layout, adds ? 2 : 1);
    DeviceStage stage = layout->stage(target, kHeader, op(), kThreads);
    stage.constant("eps", spec.number("eps"))
        .constant("offset", spec.number("offset"));
    KernelPlan plan;
    plan.stages = {stage};
    plan.mayAlias = {{0, 0}};
    if (adds)
      plan.mayAlias = {{0, 0}, {0, 1}};
    return plan;
  }

private:
  bool adds;
};

/// With `adds`, the group rms_norm_bwd_add: a fifth operand is added to dx.
class RmsNormBwd : public KernelFamily {
public:
  explicit RmsNormBwd(bool adds) : adds(adds) {}

  StringRef op() const override {
    return adds ? "rms_norm_bwd_add" : "rms_norm_bwd";
  }
  bool writesViews(unsigned number) const override { return number == 0; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec, const GpuTarget &target,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, adds ? 5 : 4, 2, emitError)) ||
        failed(requireAttrs(spec, {"offset"}, emitError)))
      return failure();
    MemRefType x = spec.inputs[1];
    SmallVector<RowOperand> operands = {
        {"x", x}, {"dy", spec.inputs[0]}, {"dx", spec.outputs[0]}};
    if (adds)
      operands.push_back({"addend", spec.inputs[4]});
    if (failed(requireFloatRows(spec, x, "x", emitError)) ||
        failed(requireAlike(spec, operands, emitError)) ||
        failed(requireVector(spec, spec.inputs[2], "w", x, emitError)) ||
        failed(requireStats(spec, spec.inputs[3], x, emitError)) ||
        failed(requireVector(spec, spec.outputs[1], "dw", x, emitError)))
      return failure();
    FailureOr<RowLayout> layout = RowLayout::choose(spec, operands, emitError);
    if (failed(layout))
      return failure();
    layout->keepWeight &= layout->lanes <= 32;
    DeviceStage stage =
        layout->stage(target, kHeader, op(), backwardThreads(*layout));
    stage.constant("offset", spec.number("offset"));
    KernelPlan plan;
    plan.stages = {stage, sumPartialsStage(stage.blocks, layout->columns,
                                           kHeader, (op() + "_sum").str())};
    plan.workspaceBytes =
        stage.blocks * layout->columns * static_cast<int64_t>(sizeof(float));
    plan.mayAlias = {{0, 0}, {0, 1}};
    if (adds)
      plan.mayAlias.push_back({0, 4});
    return plan;
  }

private:
  bool adds;
};

class GatedRmsNorm : public KernelFamily {
public:
  StringRef op() const override { return "gated_rms_norm"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec, const GpuTarget &target,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 3, 2, emitError)) ||
        failed(requireAttrs(spec, {"eps"}, emitError)))
      return failure();
    MemRefType o = spec.inputs[0];
    RowOperand operands[] = {
        {"o", o}, {"z", spec.inputs[1]}, {"y", spec.outputs[0]}};
    if (failed(requireFloatRows(spec, o, "o", emitError)) ||
        failed(requireAlike(spec, operands, emitError)) ||
        failed(requireVector(spec, spec.inputs[2], "w", o, emitError)) ||
        failed(requireStats(spec, spec.outputs[1], o, emitError)))
      return failure();
    FailureOr<RowLayout> layout = RowLayout::choose(spec, operands, emitError);
    if (failed(layout))
      return failure();
    layout->unroll = unrollFor(*layout, 2);
    DeviceStage stage = layout->stage(target, kHeader, op(), kThreads);
    stage.constant("eps", spec.number("eps")).constant("offset", 0.0);
    KernelPlan plan;
    plan.stages = {stage};
    plan.mayAlias = {{0, 0}, {0, 1}};
    return plan;
  }
};

class GatedRmsNormBwd : public KernelFamily {
public:
  StringRef op() const override { return "gated_rms_norm_bwd"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec, const GpuTarget &target,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 5, 3, emitError)))
      return failure();
    MemRefType o = spec.inputs[1];
    RowOperand operands[] = {{"o", o},
                             {"dy", spec.inputs[0]},
                             {"z", spec.inputs[2]},
                             {"do", spec.outputs[0]},
                             {"dz", spec.outputs[1]}};
    if (failed(requireFloatRows(spec, o, "o", emitError)) ||
        failed(requireAlike(spec, operands, emitError)) ||
        failed(requireVector(spec, spec.inputs[3], "w", o, emitError)) ||
        failed(requireStats(spec, spec.inputs[4], o, emitError)) ||
        failed(requireVector(spec, spec.outputs[2], "dw", o, emitError)))
      return failure();
    FailureOr<RowLayout> layout = RowLayout::choose(spec, operands, emitError);
    if (failed(layout))
      return failure();
    DeviceStage stage =
        layout->stage(target, kHeader, op(),
                      std::min(kGatedBackwardThreads, backwardThreads(*layout)));
    stage.constant("offset", 0.0);
    KernelPlan plan;
    plan.stages = {stage, sumPartialsStage(stage.blocks, layout->columns,
                                           kHeader, (op() + "_sum").str())};
    plan.workspaceBytes =
        stage.blocks * layout->columns * static_cast<int64_t>(sizeof(float));
    // dz is written while o is still in registers alone.
    plan.mayAlias = {{0, 0}, {0, 1}, {0, 2}, {1, 0}, {1, 1}, {1, 2}};
    return plan;
  }
};

} // namespace

void registerNormKernels() {
  for (bool adds : {false, true}) {
    registerKernel(std::make_unique<RmsNorm>(adds));
    registerKernel(std::make_unique<RmsNormBwd>(adds));
  }
  registerKernel(std::make_unique<GatedRmsNorm>());
  registerKernel(std::make_unique<GatedRmsNormBwd>());
}

} // namespace qwen35::codegen::cuda
