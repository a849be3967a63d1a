// rms_norm:       y = x * rstd * (offset + w), rstd = 1 / sqrt(mean(x^2) + eps)
// gated_rms_norm: y = w * o * rstd * silu(z), rows are heads
// MODEL.md 2.2 and 2.3, gradients 13.1 and 13.2.

#include "codegen/cpu/Families.h"
#include "codegen/cpu/Loops.h"

using namespace mlir;

namespace qwen35::codegen::cpu {
namespace {

class RmsNorm : public KernelFamily {
public:
  StringRef op() const override { return "rms_norm"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 2, 2, emitError)) ||
        failed(requireAttrs(spec, {"eps", "offset"}, emitError)))
      return failure();
    MemRefType x = spec.inputs[0];
    if (failed(requireRows(spec, x, "x", emitError)))
      return failure();
    Type f32 = x.getElementType();
    int64_t columns = x.getShape().back();
    if (failed(requireType(spec, spec.inputs[1], "w", {columns}, f32,
                           emitError)) ||
        failed(
            requireSameShape(spec, x, "x", spec.outputs[0], "y", emitError)) ||
        failed(requireType(spec, spec.outputs[1], "rstd",
                           x.getShape().drop_back(), f32, emitError)))
      return failure();
    KernelPlan plan;
    plan.grids = {rowTasks(x, 1)};
    plan.mayAlias = {{0, 0}};
    return plan;
  }

  void emit(const KernelSpec &spec, unsigned, KernelBuilder &k) const override {
    View x = k.input(0), w = k.input(1);
    View y = k.output(0), rstd = k.output(1).flat();
    int64_t columns = x.size(-1);
    double eps = spec.number("eps"), offset = spec.number("offset");
    auto [lo, hi] = k.taskRange(rowCount(x.type()), rowTasks(x.type(), 1));
    k.forLoop(lo, hi, 1, [&](Val row) {
      View xRow = x.row(row), yRow = y.row(row);
      Val squares = k.sum(columns, [&](Lanes l) {
        Val v = xRow.load({l.i}, l);
        return v * v;
      });
      Val r = rsqrt(squares / double(columns) + eps);
      rstd.store(r, {row});
      k.forLanes(columns, [&](Lanes l) {
        Val scale = w.load({l.i}, l) + offset;
        yRow.store(xRow.load({l.i}, l) * r * scale, {l.i}, l);
      });
    });
  }
};

/// n = x * rstd, u = dy * (offset + w):
/// dx = rstd * (u - n * mean(u * n)), dw = sum over rows of dy * n.
class RmsNormBwd : public KernelFamily {
public:
  StringRef op() const override { return "rms_norm_bwd"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 4, 2, emitError)) ||
        failed(requireAttrs(spec, {"offset"}, emitError)))
      return failure();
    MemRefType x = spec.inputs[1];
    if (failed(requireRows(spec, x, "x", emitError)))
      return failure();
    Type f32 = x.getElementType();
    int64_t columns = x.getShape().back();
    if (failed(
            requireSameShape(spec, x, "x", spec.inputs[0], "dy", emitError)) ||
        failed(requireType(spec, spec.inputs[2], "w", {columns}, f32,
                           emitError)) ||
        failed(requireType(spec, spec.inputs[3], "rstd",
                           x.getShape().drop_back(), f32, emitError)) ||
        failed(
            requireSameShape(spec, x, "x", spec.outputs[0], "dx", emitError)) ||
        failed(requireType(spec, spec.outputs[1], "dw", {columns}, f32,
                           emitError)))
      return failure();
    ColumnSums sums = columnSums(x);
    KernelPlan plan;
    plan.grids = {sums.parts, sums.stage1Tasks()};
    plan.workspaceBytes = sums.workspaceBytes();
    plan.mayAlias = {{0, 0}, {0, 1}};
    return plan;
  }

  void emit(const KernelSpec &spec, unsigned stage,
            KernelBuilder &k) const override {
    View dy = k.input(0), x = k.input(1), w = k.input(2);
    View rstd = k.input(3).flat(), dx = k.output(0);
    ColumnSums sums = columnSums(x.type());
    if (stage == 1) {
      sums.finish(k, {k.output(1)});
      return;
    }
    int64_t columns = x.size(-1);
    double offset = spec.number("offset");
    View dw = sums.beginPart(k);
    auto [lo, hi] = sums.rowsOfTask(k);
    k.forLoop(lo, hi, 1, [&](Val row) {
      View dyRow = dy.row(row), xRow = x.row(row), dxRow = dx.row(row);
      Val r = rstd.load({row});
      Val dot = k.sum(columns, [&](Lanes l) {
        Val dy = dyRow.load({l.i}, l), n = xRow.load({l.i}, l) * r;
        dw.store(dw.load({l.i}, l) + dy * n, {l.i}, l);
        return dy * (w.load({l.i}, l) + offset) * n;
      });
      Val mean = dot / double(columns);
      k.forLanes(columns, [&](Lanes l) {
        Val u = dyRow.load({l.i}, l) * (w.load({l.i}, l) + offset);
        Val n = xRow.load({l.i}, l) * r;
        dxRow.store(r * (u - n * mean), {l.i}, l);
      });
    });
  }

private:
  static ColumnSums columnSums(MemRefType x) {
    return ColumnSums::choose(rowCount(x), x.getShape().back(), 3);
  }
};

class GatedRmsNorm : public KernelFamily {
public:
  StringRef op() const override { return "gated_rms_norm"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 3, 2, emitError)) ||
        failed(requireAttrs(spec, {"eps"}, emitError)))
      return failure();
    MemRefType o = spec.inputs[0];
    if (failed(requireRows(spec, o, "o", emitError)))
      return failure();
    Type f32 = o.getElementType();
    if (failed(
            requireSameShape(spec, o, "o", spec.inputs[1], "z", emitError)) ||
        failed(requireType(spec, spec.inputs[2], "w", {o.getShape().back()},
                           f32, emitError)) ||
        failed(
            requireSameShape(spec, o, "o", spec.outputs[0], "y", emitError)) ||
        failed(requireType(spec, spec.outputs[1], "rstd",
                           o.getShape().drop_back(), f32, emitError)))
      return failure();
    KernelPlan plan;
    plan.grids = {rowTasks(o, kCost)};
    plan.mayAlias = {{0, 0}, {0, 1}};
    return plan;
  }

  void emit(const KernelSpec &spec, unsigned, KernelBuilder &k) const override {
    View o = k.input(0), z = k.input(1), w = k.input(2);
    View y = k.output(0), rstd = k.output(1).flat();
    int64_t columns = o.size(-1);
    double eps = spec.number("eps");
    auto [lo, hi] = k.taskRange(rowCount(o.type()), rowTasks(o.type(), kCost));
    k.forLoop(lo, hi, 1, [&](Val row) {
      View oRow = o.row(row), zRow = z.row(row), yRow = y.row(row);
      Val squares = k.sum(columns, [&](Lanes l) {
        Val v = oRow.load({l.i}, l);
        return v * v;
      });
      Val r = rsqrt(squares / double(columns) + eps);
      rstd.store(r, {row});
      k.forLanes(columns, [&](Lanes l) {
        Val n = oRow.load({l.i}, l) * r * w.load({l.i}, l);
        yRow.store(n * silu(zRow.load({l.i}, l)), {l.i}, l);
      });
    });
  }

private:
  static constexpr int64_t kCost = 8;
};

/// n = o * rstd, s = silu(z), u = dy * w * s:
/// do = rstd * (u - n * mean(u * n)), dw = sum over rows of dy * n * s,
/// dz = dy * n * w * silu'(z).
class GatedRmsNormBwd : public KernelFamily {
public:
  StringRef op() const override { return "gated_rms_norm_bwd"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 5, 3, emitError)))
      return failure();
    MemRefType o = spec.inputs[1];
    if (failed(requireRows(spec, o, "o", emitError)))
      return failure();
    Type f32 = o.getElementType();
    int64_t columns = o.getShape().back();
    if (failed(
            requireSameShape(spec, o, "o", spec.inputs[0], "dy", emitError)) ||
        failed(
            requireSameShape(spec, o, "o", spec.inputs[2], "z", emitError)) ||
        failed(requireType(spec, spec.inputs[3], "w", {columns}, f32,
                           emitError)) ||
        failed(requireType(spec, spec.inputs[4], "rstd",
                           o.getShape().drop_back(), f32, emitError)) ||
        failed(
            requireSameShape(spec, o, "o", spec.outputs[0], "do", emitError)) ||
        failed(
            requireSameShape(spec, o, "o", spec.outputs[1], "dz", emitError)) ||
        failed(requireType(spec, spec.outputs[2], "dw", {columns}, f32,
                           emitError)))
      return failure();
    ColumnSums sums = columnSums(o);
    KernelPlan plan;
    plan.grids = {sums.parts, sums.stage1Tasks()};
    plan.workspaceBytes = sums.workspaceBytes();
    // dz is written while o is still to be read again.
    plan.mayAlias = {{0, 0}, {0, 1}, {0, 2}, {1, 0}, {1, 2}};
    return plan;
  }

  void emit(const KernelSpec &spec, unsigned stage,
            KernelBuilder &k) const override {
    View dy = k.input(0), o = k.input(1), z = k.input(2), w = k.input(3);
    View rstd = k.input(4).flat(), dO = k.output(0), dz = k.output(1);
    ColumnSums sums = columnSums(o.type());
    if (stage == 1) {
      sums.finish(k, {k.output(2)});
      return;
    }
    int64_t columns = o.size(-1);
    View dw = sums.beginPart(k), us = k.scratch({columns}, k.f32());
    auto [lo, hi] = sums.rowsOfTask(k);
    k.forLoop(lo, hi, 1, [&](Val row) {
      View dyRow = dy.row(row), oRow = o.row(row), zRow = z.row(row);
      View dORow = dO.row(row), dzRow = dz.row(row);
      Val r = rstd.load({row});
      Val dot = k.sum(columns, [&](Lanes l) {
        Val dy = dyRow.load({l.i}, l), n = oRow.load({l.i}, l) * r;
        Val z = zRow.load({l.i}, l), weight = w.load({l.i}, l);
        Val gate = sigmoid(z), s = z * gate;
        dw.store(dw.load({l.i}, l) + dy * n * s, {l.i}, l);
        Val slope = gate * (1.0 + z * (1.0 - gate));
        dzRow.store(dy * n * weight * slope, {l.i}, l);
        Val u = dy * weight * s;
        us.store(u, {l.i}, l);
        return u * n;
      });
      Val mean = dot / double(columns);
      k.forLanes(columns, [&](Lanes l) {
        Val n = oRow.load({l.i}, l) * r;
        dORow.store(r * (us.load({l.i}, l) - n * mean), {l.i}, l);
      });
    });
  }

private:
  static ColumnSums columnSums(MemRefType o) {
    return ColumnSums::choose(rowCount(o), o.getShape().back(), 16);
  }
};

} // namespace

void registerNormKernels() {
  registerKernel(std::make_unique<RmsNorm>());
  registerKernel(std::make_unique<RmsNormBwd>());
  registerKernel(std::make_unique<GatedRmsNorm>());
  registerKernel(std::make_unique<GatedRmsNormBwd>());
}

} // namespace qwen35::codegen::cpu
