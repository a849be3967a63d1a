// The end of a step: global norm in f64, clip factor, AdamW.

#include "codegen/cpu/Families.h"
#include "codegen/cpu/Loops.h"

#include <limits>

using namespace mlir;

namespace qwen35::codegen::cpu {
namespace {

/// result = acc + sum of x^2 in f64: a partial per task, then their sum in
/// order.
class NormSq : public KernelFamily {
public:
  StringRef op() const override { return "norm_sq"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 2, 1, emitError)))
      return failure();
    MemRefType x = spec.inputs[0];
    Type f32 = Float32Type::get(x.getContext());
    Type f64 = Float64Type::get(x.getContext());
    if (failed(requireType(spec, x, "x", x.getShape(), f32, emitError)) ||
        failed(requireType(spec, spec.inputs[1], "acc", {}, f64, emitError)) ||
        failed(requireType(spec, spec.outputs[0], "the result", {}, f64,
                           emitError)))
      return failure();
    KernelPlan plan;
    plan.grids = {elementTasks({x}, kCost), 1};
    plan.workspaceBytes = plan.grids[0] * 8;
    plan.mayAlias = {{0, 1}};
    return plan;
  }

  void emit(const KernelSpec &spec, unsigned stage,
            KernelBuilder &k) const override {
    View x = k.input(0);
    int64_t tasks = elementTasks({x.type()}, kCost);
    View partials = k.workspace(0, {tasks}, k.f64());
    if (stage == 1) {
      Val total =
          k.forLoop(0, tasks, 1, {k.input(1).load({})},
                    [&](Val i, ArrayRef<Val> carried) {
                      return SmallVector<Val>{carried[0] + partials.load({i})};
                    })[0];
      k.output(0).store(total, {});
      return;
    }
    // Lane sums in memory, as forElements carries nothing.
    View sums = k.scratch({k.width()}, k.f64());
    sums.storeVector(k.zero(k.f64(), k.width()), {0});
    forElements(k, {x}, kCost, [&](ArrayRef<View> part, Lanes l) {
      Val v = cast(part[0].load({l.i}, l), k.f64());
      Lanes all{k.index(0), l.width, Val()};
      sums.store(sums.load({0}, all) + v * v, {0}, all);
    });
    partials.store(reduceAdd(sums.loadVector({0}, k.width())), {k.task()});
  }

private:
  static constexpr int64_t kCost = 2;
};

/// norm = sqrt(norm_sq); factor = min(1, max_norm / (norm + 1e-6)), 1 where
/// max_norm is 0; commit = 1 if norm is finite, else 0 and factor 0.
class ClipFactor : public KernelFamily {
public:
  StringRef op() const override { return "clip_factor"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec,
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
    if (!(spec.number("max_norm") >= 0)) {
      emitError() << "clip_factor: max_norm must not be negative, got "
                  << spec.number("max_norm");
      return failure();
    }
    KernelPlan plan;
    plan.grids = {1};
    return plan;
  }

  void emit(const KernelSpec &spec, unsigned, KernelBuilder &k) const override {
    double maxNorm = spec.number("max_norm");
    Val wide = sqrt(k.input(0).load({}));
    Val norm = cast(wide, k.f32()); // Finite means: once rounded to f32.
    Val isFinite = norm <= double(std::numeric_limits<float>::max());
    Val factor = k.f64(1.0);
    if (maxNorm > 0)
      factor = min(k.f64(maxNorm) / (wide + 1e-6), 1.0);
    k.output(0).store(norm, {});
    k.output(1).store(select(isFinite, cast(factor, k.f32()), 0.0), {});
    k.output(2).store(select(isFinite, k.f32(1.0), 0.0), {});
  }
};

/// torch.optim.AdamW with c = g * factor:
///   m' = beta1 m + (1 - beta1) c, v' = beta2 v + (1 - beta2) c^2
///   p' = p (1 - lr weight_decay) - lr (m' / bc1) / (sqrt(v' / bc2) + eps)
/// or the operands bit for bit when commit is 0.
class AdamW : public KernelFamily {
public:
  StringRef op() const override { return "adamw"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 9, 3, emitError)) ||
        failed(requireAttrs(spec, {"beta1", "beta2", "eps", "weight_decay"},
                            emitError)))
      return failure();
    MemRefType p = spec.inputs[0];
    Type f32 = Float32Type::get(p.getContext());
    if (failed(requireType(spec, p, "p", p.getShape(), f32, emitError)))
      return failure();
    StringRef names[] = {"p", "m", "v", "g"};
    for (unsigned i = 1; i < 4; ++i)
      if (failed(requireSameShape(spec, p, "p", spec.inputs[i], names[i],
                                  emitError)))
        return failure();
    StringRef scalars[] = {"lr", "factor", "bc1", "bc2", "commit"};
    for (unsigned i = 0; i < 5; ++i)
      if (failed(requireType(spec, spec.inputs[4 + i], scalars[i], {}, f32,
                             emitError)))
        return failure();
    for (unsigned i = 0; i < 3; ++i)
      if (failed(requireSameShape(spec, p, "p", spec.outputs[i], names[i],
                                  emitError)))
        return failure();
    KernelPlan plan;
    SmallVector<MemRefType> types(ArrayRef(spec.inputs).take_front(4));
    types.append(spec.outputs);
    plan.grids = {elementTasks(types, kCost)};
    plan.mayAlias = {{0, 0}, {1, 1}, {2, 2}};
    return plan;
  }

  void emit(const KernelSpec &spec, unsigned, KernelBuilder &k) const override {
    auto scalar = [&](unsigned number) { return k.input(number).load({}); };
    Val lr = scalar(4), factor = scalar(5), bc1 = scalar(6), bc2 = scalar(7);
    Val commits = scalar(8) != 0.0;
    double beta1 = spec.number("beta1"), beta2 = spec.number("beta2");
    double eps = spec.number("eps");
    Val decay = 1.0 - lr * spec.number("weight_decay"), rate = lr / bc1;
    Val scale2 = 1.0 / bc2; // Divisions are what this kernel waits for.
    SmallVector<View> views;
    for (unsigned i = 0; i < 4; ++i)
      views.push_back(k.input(i));
    for (unsigned i = 0; i < 3; ++i)
      views.push_back(k.output(i));
    forElements(k, views, kCost, [&](ArrayRef<View> part, Lanes l) {
      Val p = part[0].load({l.i}, l), m = part[1].load({l.i}, l);
      Val v = part[2].load({l.i}, l), g = part[3].load({l.i}, l) * factor;
      Val newM = m * beta1 + g * (1 - beta1);
      Val newV = v * beta2 + g * g * (1 - beta2);
      Val root = sqrt(newV * scale2) + eps;
      Val newP = p * decay - newM * rate / root;
      // Selected per element rather than branched around: the same bits
      // whatever the operands are, NaN included.
      part[4].store(select(commits, newP, p), {l.i}, l);
      part[5].store(select(commits, newM, m), {l.i}, l);
      part[6].store(select(commits, newV, v), {l.i}, l);
    });
  }

private:
  static constexpr int64_t kCost = 4;
};

} // namespace

void registerOptimizerKernels() {
  registerKernel(std::make_unique<NormSq>());
  registerKernel(std::make_unique<ClipFactor>());
  registerKernel(std::make_unique<AdamW>());
}

} // namespace qwen35::codegen::cpu
