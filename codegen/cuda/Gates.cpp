// Decay and write strength of the delta rule; MODEL.md 4.3 and 13.9. Kernels:
// q35/gates.cuh.

#include "codegen/cuda/Families.h"
#include "codegen/cuda/Rows.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace qwen35::codegen::cuda {

namespace {

constexpr const char *kHeader = "q35/gates.cuh";
constexpr int64_t kThreads = 256;

/// The inputs a and b from `firstMatrix` on and the parameters after them.
LogicalResult requireGates(const KernelSpec &spec, unsigned firstMatrix,
                           EmitError emitError) {
  MemRefType a = spec.inputs[firstMatrix];
  Type f32 = Float32Type::get(a.getContext());
  if (failed(requireType(spec, a, "a", {kAny, kAny}, floatTypes(spec),
                         emitError)) ||
      failed(requireSameShape(spec, a, "a", spec.inputs[firstMatrix + 1], "b",
                              emitError)) ||
      failed(requireType(spec, spec.inputs[firstMatrix + 2], "a_log",
                         {a.getDimSize(1)}, f32, emitError)))
    return failure();
  return requireType(spec, spec.inputs[firstMatrix + 3], "dt_bias",
                     {a.getDimSize(1)}, f32, emitError);
}

/// Every element is read before it is written, by one thread: buffers of equal
/// elements may be the same.
void addAliases(const KernelSpec &spec, unsigned inputs, KernelPlan &plan) {
  for (unsigned output = 0; output < 2; ++output)
    for (unsigned input = 0; input < inputs; ++input)
      if (spec.outputs[output].getElementType() ==
          spec.inputs[input].getElementType())
        plan.mayAlias.push_back({output, input});
}

void setRows(DeviceStage &stage, ArrayRef<RowOperand> operands) {
  for (const RowOperand &operand : operands)
    stage.constant((operand.name + "Row").str(), *rowStride(operand.type));
}

class GdnGates : public KernelFamily {
public:
  StringRef op() const override { return "gdn_gates"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec, const GpuTarget &,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 4, 2, emitError)) ||
        failed(requireGates(spec, 0, emitError)))
      return failure();
    MemRefType a = spec.inputs[0];
    Type f32 = Float32Type::get(a.getContext());
    if (failed(requireType(spec, spec.outputs[0], "g", a.getShape(), f32,
                           emitError)) ||
        failed(requireType(spec, spec.outputs[1], "beta", a.getShape(), f32,
                           emitError)))
      return failure();
    DeviceStage stage;
    stage.header = kHeader;
    stage.function = op().str();
    stage.blocks = llvm::divideCeil(elementCount(a), kThreads);
    stage.threads = kThreads;
    stage.constant("tokens", a.getDimSize(0))
        .constant("heads", a.getDimSize(1));
    setRows(stage, {{"a", a},
                    {"b", spec.inputs[1]},
                    {"g", spec.outputs[0]},
                    {"beta", spec.outputs[1]}});
    KernelPlan plan;
    plan.stages = {stage};
    addAliases(spec, 2, plan);
    return plan;
  }
};

class GdnGatesBwd : public KernelFamily {
public:
  StringRef op() const override { return "gdn_gates_bwd"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec, const GpuTarget &target,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 6, 4, emitError)) ||
        failed(requireGates(spec, 2, emitError)))
      return failure();
    MemRefType a = spec.inputs[2];
    Type f32 = Float32Type::get(a.getContext());
    StringRef names[] = {"dg", "dbeta"}, results[] = {"da", "db"},
              vectors[] = {"da_log", "ddt_bias"};
    for (unsigned i = 0; i < 2; ++i)
      if (failed(requireType(spec, spec.inputs[i], names[i], a.getShape(), f32,
                             emitError)) ||
          failed(requireSameShape(spec, a, "a", spec.outputs[i], results[i],
                                  emitError)) ||
          failed(requireType(spec, spec.outputs[2 + i], vectors[i],
                             {a.getDimSize(1)}, f32, emitError)))
        return failure();
    int64_t tokens = a.getDimSize(0), heads = a.getDimSize(1);
    int64_t lanes = std::min(heads, kThreads), groups = kThreads / lanes;
    int64_t rows = llvm::divideCeil(
        tokens, std::min<int64_t>(llvm::divideCeil(tokens, groups),
                                  2 * target.multiprocessors));
    DeviceStage stage;
    stage.header = kHeader;
    stage.function = op().str();
    stage.blocks = llvm::divideCeil(tokens, rows);
    stage.threads = kThreads;
    stage.constant("tokens", tokens)
        .constant("heads", heads)
        .constant("lanes", lanes)
        .constant("groups", groups)
        .constant("rows", rows);
    setRows(stage, {{"dg", spec.inputs[0]},
                    {"dbeta", spec.inputs[1]},
                    {"a", a},
                    {"b", spec.inputs[3]},
                    {"da", spec.outputs[0]},
                    {"db", spec.outputs[1]}});
    DeviceStage sum = sumPartialsStage(stage.blocks, 2 * heads, kHeader,
                                       (op() + "_sum").str());
    sum.constant("heads", heads);
    KernelPlan plan;
    plan.stages = {stage, sum};
    plan.workspaceBytes =
        stage.blocks * 2 * heads * static_cast<int64_t>(sizeof(float));
    addAliases(spec, 4, plan);
    return plan;
  }
};

} // namespace

void registerGateKernels() {
  registerKernel(std::make_unique<GdnGates>());
  registerKernel(std::make_unique<GdnGatesBwd>());
}

} // namespace qwen35::codegen::cuda
