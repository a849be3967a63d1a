// causal_conv: a depthwise causal convolution inside each document, then SiLU.
// MODEL.md 4.3, gradients 13.10. Kernels: q35/conv.cuh.

#include "codegen/cuda/Families.h"
#include "codegen/cuda/Rows.h"

#include "runtime/schema/seq_table.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace qwen35::codegen::cuda {

namespace {

constexpr const char *kHeader = "q35/conv.cuh";
/// Of a block, in registers that leave room for kResident blocks: 16 warps with
/// kBatch rows of each operand in flight.
constexpr int64_t kWarps = 2, kResident = 8, kBatch = 4;

/// How many runs of tokens there are, and what they are made of.
struct Runs {
  int64_t tokens, channels, taps, width, channelBlocks, run, runBlocks;

  /// As many as run at once, so that all end together. Threads own at most
  /// `maxWidth` channels.
  Runs(ArrayRef<RowOperand> operands, int64_t taps, int64_t maxWidth,
       const GpuTarget &target)
      : tokens(operands[0].type.getDimSize(0)),
        channels(operands[0].type.getDimSize(1)), taps(taps),
        width(std::min(accessWidth(operands), maxWidth)) {
    channelBlocks = llvm::divideCeil(channels, 32 * width);
    int64_t room = target.multiprocessors * kResident;
    int64_t runs = std::max<int64_t>(1, room / channelBlocks) * kWarps;
    // Short runs would read more rows around them than their own.
    run = llvm::alignTo(std::max<int64_t>(llvm::divideCeil(tokens, runs), 8),
                        kBatch);
    runBlocks = llvm::divideCeil(llvm::divideCeil(tokens, run), kWarps);
  }

  DeviceStage stage(StringRef function, const SeqTable &seq,
                    ArrayRef<RowOperand> operands) const {
    DeviceStage stage;
    stage.header = kHeader;
    stage.function = function.str();
    stage.blocks = runBlocks * channelBlocks;
    stage.threads = kWarps * 32;
    stage.minBlocks = kResident;
    stage.constant("tokens", tokens)
        .constant("channels", channels)
        .constant("taps", taps)
        .constant("width", width)
        .constant("run", run)
        .constant("batch", kBatch)
        .constant("warps", kWarps)
        .constant("channelBlocks", channelBlocks)
        .constant("docStart", seq.docStart())
        .constant("docEnd", seq.docEnd());
    for (const RowOperand &operand : operands)
      stage.constant((operand.name + "Row").str(), *rowStride(operand.type));
    return stage;
  }
};

LogicalResult checkConv(const KernelSpec &spec, MemRefType x, MemRefType weight,
                        MemRefType seq, EmitError emitError) {
  if (failed(requireAttrs(spec, {"tokens", "max_docs"}, emitError)))
    return failure();
  SeqTable table{spec.integer("tokens"), spec.integer("max_docs")};
  Type f32 = Float32Type::get(x.getContext());
  Type i32 = IntegerType::get(x.getContext(), 32);
  if (failed(requireType(spec, x, "x", {table.tokens, kAny}, floatTypes(spec),
                         emitError)) ||
      failed(requireType(spec, weight, "weight", {x.getDimSize(1), 1, kAny},
                         f32, emitError)) ||
      failed(requireDense(spec, weight, "weight", emitError)))
    return failure();
  return requireType(spec, seq, "seq", {table.words()}, i32, emitError);
}

class CausalConv : public KernelFamily {
public:
  StringRef op() const override { return "causal_conv"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec, const GpuTarget &target,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 3, 1, emitError)) ||
        failed(checkConv(spec, spec.inputs[0], spec.inputs[1], spec.inputs[2],
                         emitError)) ||
        failed(requireSameShape(spec, spec.inputs[0], "x", spec.outputs[0], "y",
                                emitError)))
      return failure();
    RowOperand operands[] = {{"x", spec.inputs[0]}, {"y", spec.outputs[0]}};
    SeqTable seq{spec.integer("tokens"), spec.integer("max_docs")};
    Runs runs(operands, spec.inputs[1].getDimSize(2), 8, target);
    KernelPlan plan;
    plan.stages = {runs.stage(op(), seq, operands)};
    return plan;
  }
};

/// Stage 0: dx, and dw of each block of runs to the workspace. Stage 1: dw.
class CausalConvBwd : public KernelFamily {
public:
  StringRef op() const override { return "causal_conv_bwd"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec, const GpuTarget &target,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 4, 2, emitError)) ||
        failed(checkConv(spec, spec.inputs[1], spec.inputs[2], spec.inputs[3],
                         emitError)) ||
        failed(requireSameShape(spec, spec.inputs[0], "dy", spec.inputs[1], "x",
                                emitError)) ||
        failed(requireSameShape(spec, spec.outputs[0], "dx", spec.inputs[1],
                                "x", emitError)) ||
        failed(requireSameShape(spec, spec.outputs[1], "dweight",
                                spec.inputs[2], "weight", emitError)) ||
        failed(requireDense(spec, spec.outputs[1], "dweight", emitError)))
      return failure();
    RowOperand operands[] = {{"x", spec.inputs[1]},
                             {"dy", spec.inputs[0]},
                             {"dx", spec.outputs[0]}};
    SeqTable seq{spec.integer("tokens"), spec.integer("max_docs")};
    // Sums and weights take the registers of more channels.
    Runs runs(operands, spec.inputs[2].getDimSize(2),
              8 / bytesOf(spec.inputs[1].getElementType()), target);
    int64_t columns = runs.taps * runs.channels;
    DeviceStage sum = sumPartialsStage(runs.runBlocks, columns, kHeader,
                                       (op() + "_sum").str());
    sum.constant("channels", runs.channels).constant("taps", runs.taps);
    KernelPlan plan;
    plan.stages = {runs.stage(op(), seq, operands), sum};
    plan.workspaceBytes =
        runs.runBlocks * columns * static_cast<int64_t>(sizeof(float));
    return plan;
  }
};

} // namespace

void registerConvKernels() {
  registerKernel(std::make_unique<CausalConv>());
  registerKernel(std::make_unique<CausalConvBwd>());
}

} // namespace qwen35::codegen::cuda
