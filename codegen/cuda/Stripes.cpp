// stripe_tails, add_to_tails, affine_scan, affine_scan_bwd: what passes between
// the stripes of a row that is cut over ranks. dialect/Qwen35/IR/StripeOps.td;
// kernels: q35/stripes.cuh, q35/affine_scan.cuh.

#include "codegen/cuda/Stripes.h"

#include "codegen/cuda/Families.h"
#include "codegen/cuda/Rows.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace qwen35::codegen::cuda {
namespace {

constexpr int64_t kLocal = StripeTable::kLocal, kThreads = 256;

/// A thread per access of `rows` rows of the operands.
DeviceStage rowAccesses(StringRef function, int64_t rows,
                        ArrayRef<RowOperand> operands) {
  DeviceStage stage;
  stage.header = "q35/stripes.cuh";
  stage.function = function.str();
  stage.threads = kThreads;
  int64_t width = accessWidth(operands);
  int64_t vectors = operands[0].type.getShape().back() / width;
  stage.blocks = llvm::divideCeil(rows * vectors, kThreads);
  stage.constant("width", width).constant("vectors", vectors);
  return stage;
}

class StripeTails : public KernelFamily {
public:
  StringRef op() const override { return "stripe_tails"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec, const GpuTarget &,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 1, 1, emitError)) ||
        failed(requireAttrs(spec, {"taps"}, emitError)))
      return failure();
    MemRefType x = spec.inputs[0], tails = spec.outputs[0];
    int64_t halo = spec.integer("taps") - 1;
    if (failed(requireType(spec, x, "x", {kAny, kAny}, floatTypes(spec),
                           emitError)))
      return failure();
    if (x.getDimSize(0) % kLocal != 0 || halo < 1 ||
        halo > x.getDimSize(0) / kLocal)
      return emitError() << "stripe_tails: " << halo + 1 << " taps on "
                         << x.getDimSize(0)
                         << " tokens, expected two stripes of taps - 1 tokens "
                            "or more";
    if (failed(requireType(spec, tails, "tails",
                           {kLocal, halo, x.getDimSize(1)}, x.getElementType(),
                           emitError)) ||
        failed(requireDense(spec, tails, "tails", emitError)))
      return failure();
    DeviceStage stage =
        rowAccesses(op(), kLocal * halo, {{"x", x}, {"tails", tails}});
    stage.constant("stripeRows", x.getDimSize(0) / kLocal)
        .constant("halo", halo)
        .constant("xRow", *rowStride(x));
    KernelPlan plan;
    plan.stages = {stage};
    return plan;
  }
};

/// In place only the tails are touched.
class AddToTails : public KernelFamily {
public:
  StringRef op() const override { return "add_to_tails"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec, const GpuTarget &,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 3, 1, emitError)))
      return failure();
    MemRefType x = spec.inputs[0], halo = spec.inputs[1], y = spec.outputs[0];
    if (failed(requireType(spec, x, "x", {kAny, kAny}, floatTypes(spec),
                           emitError)) ||
        failed(requireSameShape(spec, x, "x", y, "y", emitError)))
      return failure();
    FailureOr<int64_t> ranks =
        requireStripes(spec, spec.inputs[2], x.getDimSize(0), emitError);
    if (failed(ranks) ||
        failed(requireType(spec, halo, "halo",
                           {kLocal * *ranks, kAny, x.getDimSize(1)},
                           x.getElementType(), emitError)) ||
        failed(requireDense(spec, halo, "halo", emitError)))
      return failure();
    DeviceStage stage = rowAccesses(op(), x.getDimSize(0),
                                    {{"x", x}, {"y", y}, {"halo", halo}});
    setStripes(stage, {x.getDimSize(0), *ranks});
    stage.constant("tokens", x.getDimSize(0))
        .constant("halo", halo.getDimSize(1))
        .constant("xRow", *rowStride(x))
        .constant("yRow", *rowStride(y));
    KernelPlan plan;
    plan.stages = {stage};
    plan.mayAlias = {{0, 0}};
    return plan;
  }
};

/// A block per head and 32 columns: columns do not interact.
class AffineScan : public KernelFamily {
public:
  explicit AffineScan(bool backward) : backward(backward) {}
  StringRef op() const override {
    return backward ? "affine_scan_bwd" : "affine_scan";
  }

  FailureOr<KernelPlan> plan(const KernelSpec &spec, const GpuTarget &,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 3, 1, emitError)))
      return failure();
    MemRefType m = spec.inputs[0], terms = spec.inputs[1];
    MemRefType out = spec.outputs[0];
    Type f32 = Float32Type::get(m.getContext());
    FailureOr<int64_t> ranks =
        requireStripes(spec, spec.inputs[2], kLocal, emitError);
    if (failed(ranks) ||
        failed(requireType(spec, m, "m", {kLocal * *ranks, kAny, kAny, kAny},
                           f32, emitError)))
      return failure();
    int64_t heads = m.getDimSize(1), keyDim = m.getDimSize(2);
    StringRef term = backward ? "c" : "b";
    StringRef result = backward ? "gradients" : "states";
    if (failed(requireType(spec, m, "m",
                           {kLocal * *ranks, heads, keyDim, keyDim}, f32,
                           emitError)) ||
        failed(requireType(spec, terms, term,
                           {kLocal * *ranks, heads, keyDim, kAny}, f32,
                           emitError)) ||
        failed(requireType(spec, out, result,
                           {kLocal, heads, keyDim, terms.getDimSize(3)}, f32,
                           emitError)) ||
        failed(requireDense(spec, m, "m", emitError)) ||
        failed(requireDense(spec, terms, term, emitError)) ||
        failed(requireDense(spec, out, result, emitError)))
      return failure();
    // Of the state in shared memory, which has 48 KiB without asking.
    constexpr int64_t kWarps = 8, kLargest = 256;
    if (keyDim > kLargest)
      return emitError() << spec.op << ": keys of " << keyDim
                         << " elements, expected " << kLargest << " or less";
    int64_t valueDim = terms.getDimSize(3);
    DeviceStage stage;
    stage.header = "q35/affine_scan.cuh";
    stage.function = op().str();
    stage.threads = kWarps * 32;
    int64_t slices = llvm::divideCeil(valueDim, int64_t(32));
    stage.blocks = heads * slices;
    // No token is asked for.
    setStripes(stage, {kLocal, *ranks});
    stage.constant("heads", heads)
        .constant("keyDim", keyDim)
        .constant("valueDim", valueDim)
        .constant("slices", slices)
        .constant("warps", kWarps);
    stage.flops = 2.0 * kLocal * *ranks * heads * keyDim * keyDim * valueDim;
    KernelPlan plan;
    plan.stages = {stage};
    return plan;
  }

private:
  bool backward;
};

} // namespace

void registerStripeKernels() {
  registerKernel(std::make_unique<AffineScan>(/*backward=*/false));
  registerKernel(std::make_unique<AffineScan>(/*backward=*/true));
  registerKernel(std::make_unique<StripeTails>());
  registerKernel(std::make_unique<AddToTails>());
}

} // namespace qwen35::codegen::cuda
