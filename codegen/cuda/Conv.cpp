// causal_conv: a depthwise causal convolution inside each document, then SiLU;
// cp_causal_conv: of a rank's stripes of a row.
// MODEL.md 4.3, gradients 13.10. Kernels: q35/conv.cuh.

#include "codegen/cuda/Families.h"
#include "codegen/cuda/Rows.h"
#include "codegen/cuda/Stripes.h"

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

/// x, tails if striped, weight, seq, stripes if striped, from `first` on. Gives
/// the ranks that share the row, 0 if it is whole.
FailureOr<int64_t> checkConv(const KernelSpec &spec, unsigned first,
                             bool striped, EmitError emitError) {
  if (failed(requireAttrs(spec, {"tokens", "max_docs"}, emitError)))
    return failure();
  MemRefType x = spec.inputs[first];
  MemRefType weight = spec.inputs[first + (striped ? 2 : 1)];
  MemRefType seq = spec.inputs[first + (striped ? 3 : 2)];
  SeqTable table{spec.integer("tokens"), spec.integer("max_docs")};
  Type f32 = Float32Type::get(x.getContext());
  Type i32 = IntegerType::get(x.getContext(), 32);
  if (failed(requireType(spec, x, "x", {table.tokens, kAny}, floatTypes(spec),
                         emitError)) ||
      failed(requireType(spec, weight, "weight", {x.getDimSize(1), 1, kAny},
                         f32, emitError)) ||
      failed(requireDense(spec, weight, "weight", emitError)) ||
      failed(requireType(spec, seq, "seq", {table.words()}, i32, emitError)))
    return failure();
  if (!striped)
    return 0;
  FailureOr<int64_t> ranks =
      requireStripes(spec, spec.inputs[first + 4], table.tokens, emitError);
  if (failed(ranks))
    return failure();
  int64_t halo = weight.getDimSize(2) - 1;
  if (halo < 1 || halo > table.tokens / StripeTable::kLocal)
    return emitError() << spec.op << ": " << halo + 1 << " taps on stripes of "
                       << table.tokens / StripeTable::kLocal << " tokens";
  MemRefType tails = spec.inputs[first + 1];
  if (failed(requireType(spec, tails, "tails",
                         {StripeTable::kLocal * *ranks, halo, x.getDimSize(1)},
                         x.getElementType(), emitError)) ||
      failed(requireDense(spec, tails, "tails", emitError)))
    return failure();
  return ranks;
}

class CausalConv : public KernelFamily {
public:
  explicit CausalConv(bool striped) : striped(striped) {}
  StringRef op() const override {
    return striped ? "cp_causal_conv" : "causal_conv";
  }

  FailureOr<KernelPlan> plan(const KernelSpec &spec, const GpuTarget &target,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, striped ? 5 : 3, 1, emitError)))
      return failure();
    FailureOr<int64_t> ranks = checkConv(spec, 0, striped, emitError);
    if (failed(ranks) ||
        failed(requireSameShape(spec, spec.inputs[0], "x", spec.outputs[0], "y",
                                emitError)))
      return failure();
    SmallVector<RowOperand> operands = {{"x", spec.inputs[0]},
                                        {"y", spec.outputs[0]}};
    if (striped)
      operands.push_back({"tails", spec.inputs[1]});
    SeqTable seq{spec.integer("tokens"), spec.integer("max_docs")};
    Runs runs(operands, spec.inputs[striped ? 2 : 1].getDimSize(2), 8, target);
    DeviceStage stage = runs.stage(op(), seq, operands);
    if (striped)
      setStripes(stage, {seq.tokens, *ranks});
    KernelPlan plan;
    plan.stages = {stage};
    return plan;
  }

private:
  bool striped;
};

/// Stage 0: dx, and dw of each block of runs to the workspace. Stage 1: dw, and
/// of stripes dhalo.
class CausalConvBwd : public KernelFamily {
public:
  explicit CausalConvBwd(bool striped) : striped(striped) {}
  StringRef op() const override {
    return striped ? "cp_causal_conv_bwd" : "causal_conv_bwd";
  }

  FailureOr<KernelPlan> plan(const KernelSpec &spec, const GpuTarget &target,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, striped ? 6 : 4, striped ? 3 : 2,
                             emitError)))
      return failure();
    FailureOr<int64_t> ranks = checkConv(spec, 1, striped, emitError);
    if (failed(ranks))
      return failure();
    MemRefType x = spec.inputs[1], weight = spec.inputs[striped ? 3 : 2];
    MemRefType dweight = spec.outputs.back();
    if (failed(
            requireSameShape(spec, spec.inputs[0], "dy", x, "x", emitError)) ||
        failed(
            requireSameShape(spec, spec.outputs[0], "dx", x, "x", emitError)) ||
        failed(requireSameShape(spec, dweight, "dweight", weight, "weight",
                                emitError)) ||
        failed(requireDense(spec, dweight, "dweight", emitError)))
      return failure();
    SmallVector<RowOperand> operands = {
        {"x", x}, {"dy", spec.inputs[0]}, {"dx", spec.outputs[0]}};
    if (striped) {
      MemRefType dhalo = spec.outputs[1];
      if (failed(requireType(spec, dhalo, "dhalo",
                             {StripeTable::kLocal, weight.getDimSize(2) - 1,
                              x.getDimSize(1)},
                             x.getElementType(), emitError)) ||
          failed(requireDense(spec, dhalo, "dhalo", emitError)))
        return failure();
      operands.push_back({"tails", spec.inputs[2]});
    }
    SeqTable seq{spec.integer("tokens"), spec.integer("max_docs")};
    // Sums and weights take the registers of more channels.
    Runs runs(operands, weight.getDimSize(2), 8 / bytesOf(x.getElementType()),
              target);
    int64_t columns = runs.taps * runs.channels;
    DeviceStage rows = runs.stage(op(), seq, operands);
    DeviceStage sum = sumPartialsStage(runs.runBlocks, columns, kHeader,
                                       (op() + "_sum").str());
    sum.constant("channels", runs.channels).constant("taps", runs.taps);
    if (striped) {
      setStripes(rows, {seq.tokens, *ranks});
      setStripes(sum, {seq.tokens, *ranks});
      sum.constant("sumBlocks", sum.blocks).constant("docEnd", seq.docEnd());
      for (const RowOperand &operand : operands)
        sum.constant((operand.name + "Row").str(), *rowStride(operand.type));
      sum.blocks += llvm::divideCeil(StripeTable::kLocal * runs.channels,
                                     int64_t(sum.threads));
    }
    KernelPlan plan;
    plan.stages = {rows, sum};
    plan.workspaceBytes =
        runs.runBlocks * columns * static_cast<int64_t>(sizeof(float));
    return plan;
  }

private:
  bool striped;
};

} // namespace

void registerConvKernels() {
  for (bool striped : {false, true}) {
    registerKernel(std::make_unique<CausalConv>(striped));
    registerKernel(std::make_unique<CausalConvBwd>(striped));
  }
}

} // namespace qwen35::codegen::cuda
