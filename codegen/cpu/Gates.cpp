// Decay and write strength of the delta rule; MODEL.md 4.3 and 13.9.

#include "codegen/cpu/Families.h"
#include "codegen/cpu/Loops.h"

using namespace mlir;

namespace qwen35::codegen::cpu {
namespace {

constexpr int64_t kCost = 32;

LogicalResult requireGates(const KernelSpec &spec, unsigned firstMatrix,
                           unsigned firstVector, EmitError emitError) {
  MemRefType a = spec.inputs[firstMatrix];
  Type f32 = Float32Type::get(a.getContext());
  if (failed(requireType(spec, a, "a", {kAny, kAny}, f32, emitError)) ||
      failed(requireSameShape(spec, a, "a", spec.inputs[firstMatrix + 1], "b",
                              emitError)))
    return failure();
  int64_t heads = a.getDimSize(1);
  if (failed(requireType(spec, spec.inputs[firstVector], "a_log", {heads}, f32,
                         emitError)))
    return failure();
  return requireType(spec, spec.inputs[firstVector + 1], "dt_bias", {heads},
                     f32, emitError);
}

/// g = -exp(a_log) * softplus(a + dt_bias), beta = sigmoid(b).
class GdnGates : public KernelFamily {
public:
  StringRef op() const override { return "gdn_gates"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 4, 2, emitError)) ||
        failed(requireGates(spec, 0, 2, emitError)))
      return failure();
    MemRefType a = spec.inputs[0];
    if (failed(
            requireSameShape(spec, a, "a", spec.outputs[0], "g", emitError)) ||
        failed(
            requireSameShape(spec, a, "a", spec.outputs[1], "beta", emitError)))
      return failure();
    KernelPlan plan;
    plan.grids = {rowTasks(a, kCost)};
    plan.mayAlias = {{0, 0}, {0, 1}, {1, 0}, {1, 1}};
    return plan;
  }

  void emit(const KernelSpec &spec, unsigned, KernelBuilder &k) const override {
    View a = k.input(0), b = k.input(1), aLog = k.input(2), bias = k.input(3);
    View g = k.output(0), beta = k.output(1);
    int64_t heads = a.size(1);
    View rate = k.scratch({heads}, k.f32()); // -exp(a_log), once per task
    k.forLanes(heads, [&](Lanes l) {
      rate.store(-exp(aLog.load({l.i}, l)), {l.i}, l);
    });
    auto [lo, hi] = k.taskRange(a.size(0), rowTasks(a.type(), kCost));
    k.forLoop(lo, hi, 1, [&](Val t) {
      k.forLanes(heads, [&](Lanes l) {
        Val step = softplus(a.load({t, l.i}, l) + bias.load({l.i}, l));
        Val strength = sigmoid(b.load({t, l.i}, l));
        g.store(rate.load({l.i}, l) * step, {t, l.i}, l);
        beta.store(strength, {t, l.i}, l);
      });
    });
  }
};

/// da = -dg * exp(a_log) * sigmoid(a + dt_bias), db = dbeta * beta * (1 -
/// beta), da_log = sum over t of dg * g, ddt_bias = sum over t of da.
class GdnGatesBwd : public KernelFamily {
public:
  StringRef op() const override { return "gdn_gates_bwd"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 6, 4, emitError)) ||
        failed(requireGates(spec, 2, 4, emitError)))
      return failure();
    MemRefType a = spec.inputs[2];
    StringRef names[] = {"dg", "dbeta"}, results[] = {"da", "db"};
    for (unsigned i = 0; i < 2; ++i)
      if (failed(requireSameShape(spec, a, "a", spec.inputs[i], names[i],
                                  emitError)) ||
          failed(requireSameShape(spec, a, "a", spec.outputs[i], results[i],
                                  emitError)))
        return failure();
    StringRef vectors[] = {"da_log", "ddt_bias"};
    for (unsigned i = 0; i < 2; ++i)
      if (failed(requireType(spec, spec.outputs[2 + i], vectors[i],
                             {a.getDimSize(1)}, a.getElementType(), emitError)))
        return failure();
    ColumnSums sums = columnSums(a);
    KernelPlan plan;
    plan.grids = {sums.parts, sums.stage1Tasks()};
    plan.workspaceBytes = sums.workspaceBytes();
    for (unsigned output = 0; output < 2; ++output)
      for (unsigned input = 0; input < 4; ++input)
        plan.mayAlias.push_back({output, input});
    return plan;
  }

  void emit(const KernelSpec &spec, unsigned stage,
            KernelBuilder &k) const override {
    View dg = k.input(0), dbeta = k.input(1), a = k.input(2), b = k.input(3);
    View aLog = k.input(4), bias = k.input(5);
    View da = k.output(0), db = k.output(1);
    ColumnSums sums = columnSums(a.type());
    if (stage == 1) {
      sums.finish(k, {k.output(2), k.output(3)});
      return;
    }
    int64_t heads = a.size(1);
    View part = sums.beginPart(k);
    View dLog = part.tile({0}, {heads}), dBias = part.tile({heads}, {heads});
    View rate = k.scratch({heads}, k.f32());
    k.forLanes(heads, [&](Lanes l) {
      rate.store(-exp(aLog.load({l.i}, l)), {l.i}, l);
    });
    auto [lo, hi] = sums.rowsOfTask(k);
    k.forLoop(lo, hi, 1, [&](Val t) {
      k.forLanes(heads, [&](Lanes l) {
        Val x = a.load({t, l.i}, l) + bias.load({l.i}, l);
        Val beta = sigmoid(b.load({t, l.i}, l));
        Val dStrength = dbeta.load({t, l.i}, l) * beta * (1.0 - beta);
        Val scaled = dg.load({t, l.i}, l) * rate.load({l.i}, l);
        Val dx = scaled * sigmoid(x);
        da.store(dx, {t, l.i}, l);
        db.store(dStrength, {t, l.i}, l);
        dLog.store(dLog.load({l.i}, l) + scaled * softplus(x), {l.i}, l);
        dBias.store(dBias.load({l.i}, l) + dx, {l.i}, l);
      });
    });
  }

private:
  static ColumnSums columnSums(MemRefType a) {
    return ColumnSums::choose(a.getDimSize(0), 2 * a.getDimSize(1), kCost);
  }
};

} // namespace

void registerGateKernels() {
  registerKernel(std::make_unique<GdnGates>());
  registerKernel(std::make_unique<GdnGatesBwd>());
}

} // namespace qwen35::codegen::cpu
