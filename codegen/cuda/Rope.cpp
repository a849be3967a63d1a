// Rotary positions: rope_table, rope, and rms_norm_rope, the group of a head
// norm and the rotation that alone reads it. Kernels: q35/rope.cuh.

#include "codegen/cuda/Families.h"
#include "codegen/cuda/Rows.h"
#include "codegen/cuda/Stripes.h"

#include "runtime/schema/seq_table.h"

#include "llvm/Support/Format.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/raw_ostream.h"

#include <cmath>

using namespace mlir;

namespace qwen35::codegen::cuda {

namespace {

constexpr const char *kHeader = "q35/rope.cuh";
constexpr int64_t kThreads = 256;

/// (cos, sin) of (t - first token of the document) * theta^(-2j/R), in f64;
/// cp_rope_table is of a rank's stripes of a row.
class RopeTable : public KernelFamily {
public:
  explicit RopeTable(bool striped) : striped(striped) {}
  StringRef op() const override {
    return striped ? "cp_rope_table" : "rope_table";
  }

  FailureOr<KernelPlan> plan(const KernelSpec &spec, const GpuTarget &,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, striped ? 2 : 1, 1, emitError)) ||
        failed(requireAttrs(spec, {"theta", "rotary_dim", "tokens", "max_docs"},
                            emitError)))
      return failure();
    MLIRContext *context = spec.inputs[0].getContext();
    SeqTable seq{spec.integer("tokens"), spec.integer("max_docs")};
    int64_t rotary = spec.integer("rotary_dim");
    if (rotary <= 0 || rotary % 2) {
      emitError() << spec.op << ": rotary_dim must be positive and even, got "
                  << rotary;
      return failure();
    }
    if (failed(requireType(spec, spec.inputs[0], "seq", {seq.words()},
                           IntegerType::get(context, 32), emitError)) ||
        failed(requireType(spec, spec.outputs[0], "the table",
                           {seq.tokens, rotary / 2, 2},
                           Float32Type::get(context), emitError)) ||
        failed(requireDense(spec, spec.outputs[0], "the table", emitError)))
      return failure();
    DeviceStage stage;
    stage.header = kHeader;
    stage.function = op().str();
    stage.blocks = llvm::divideCeil(seq.tokens * (rotary / 2), kThreads);
    stage.threads = kThreads;
    std::string theta = "double ";
    llvm::raw_string_ostream(theta)
        << llvm::format("%a", std::log2(spec.number("theta")));
    stage.constant("tokens", seq.tokens)
        .constant("pairs", rotary / 2)
        .constant("docStart", seq.docStart());
    if (striped) {
      FailureOr<int64_t> ranks =
          requireStripes(spec, spec.inputs[1], seq.tokens, emitError);
      if (failed(ranks))
        return failure();
      setStripes(stage, {seq.tokens, *ranks});
    }
    stage.constants.emplace_back("logTheta", theta);
    KernelPlan plan;
    plan.stages = {stage};
    return plan;
  }

private:
  bool striped;
};

/// The stage of `op`, or of its form for any sizes, `op`_any.
FailureOr<DeviceStage> planRotation(const KernelSpec &spec,
                                    const GpuTarget &target, MemRefType table,
                                    EmitError emitError) {
  MemRefType x = spec.inputs[0], y = spec.outputs[0];
  Type f32 = Float32Type::get(x.getContext());
  if (failed(requireType(spec, x, "x", {kAny, kAny, kAny}, floatTypes(spec),
                         emitError)) ||
      failed(requireType(spec, table, "the table", {x.getDimSize(0), kAny, 2},
                         f32, emitError)) ||
      failed(requireDense(spec, table, "the table", emitError)) ||
      failed(requireSameShape(spec, x, "x", y, "y", emitError)))
    return failure();
  int64_t half = table.getDimSize(1), dim = x.getDimSize(2);
  if (2 * half > dim) {
    emitError() << spec.op << ": the table turns " << 2 * half
                << " dims but heads have " << dim;
    return failure();
  }
  FailureOr<RowLayout> layout =
      RowLayout::choose(spec, {{"x", x}, {"y", y}}, emitError);
  if (failed(layout))
    return failure();
  // Partners are looked for in the warp, whole accesses away.
  bool inLanes = layout->vectors == 1 && half % layout->width == 0 &&
                 2 * half / layout->width <= std::min<int64_t>(32, layout->lanes);
  if (inLanes)
    layout->unroll = 2;
  DeviceStage stage = layout->stage(
      target, kHeader, inLanes ? spec.op : spec.op + "_any", /*resident=*/1024);
  if (!inLanes) {
    stage.blocks = llvm::divideCeil(layout->rows, kThreads / 32);
    stage.threads = kThreads;
    stage.minBlocks = 1;
  }
  stage.constant("heads", x.getDimSize(1))
      .constant("half", half)
      .constant("inverse", spec.flag("inverse"));
  return stage;
}

/// Pairs (j, j + R/2) of the first R dims of each head turned by the angles of
/// the table, or back with {inverse}; the other dims are copied.
class Rope : public KernelFamily {
public:
  StringRef op() const override { return "rope"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec, const GpuTarget &target,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 2, 1, emitError)))
      return failure();
    FailureOr<DeviceStage> stage =
        planRotation(spec, target, spec.inputs[1], emitError);
    if (failed(stage))
      return failure();
    KernelPlan plan;
    plan.stages = {*stage};
    plan.mayAlias = {{0, 0}};
    return plan;
  }
};

/// Operands are x [T,H,d], w [d], table [T,R/2,2]; results y [T,H,d], rstd
/// [T,H]. The normalized heads stay in registers.
class RmsNormRope : public KernelFamily {
public:
  StringRef op() const override { return "rms_norm_rope"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec, const GpuTarget &target,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 3, 2, emitError)) ||
        failed(requireAttrs(spec, {"eps", "offset"}, emitError)))
      return failure();
    FailureOr<DeviceStage> stage =
        planRotation(spec, target, spec.inputs[2], emitError);
    if (failed(stage))
      return failure();
    MemRefType x = spec.inputs[0];
    Type f32 = Float32Type::get(x.getContext());
    if (failed(requireType(spec, spec.inputs[1], "w", {x.getDimSize(2)}, f32,
                           emitError)) ||
        failed(requireType(spec, spec.outputs[1], "rstd",
                           {x.getDimSize(0), x.getDimSize(1)}, f32,
                           emitError)) ||
        failed(requireDense(spec, spec.outputs[1], "rstd", emitError)))
      return failure();
    stage->constant("eps", spec.number("eps"))
        .constant("offset", spec.number("offset"));
    KernelPlan plan;
    plan.stages = {*stage};
    return plan;
  }
};

} // namespace

void registerRopeKernels() {
  registerKernel(std::make_unique<RopeTable>(/*striped=*/false));
  registerKernel(std::make_unique<RopeTable>(/*striped=*/true));
  registerKernel(std::make_unique<Rope>());
  registerKernel(std::make_unique<RmsNormRope>());
}

} // namespace qwen35::codegen::cuda
