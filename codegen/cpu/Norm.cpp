// rms_norm:       y = x * rstd * (offset + w), rstd = 1 / sqrt(mean(x^2) + eps)
// gated_rms_norm: y = w * o * rstd * silu(z), rows are heads
// MODEL.md 2.2 and 2.3, gradients 13.1 and 13.2.

#include "codegen/cpu/Families.h"
#include "codegen/cpu/Loops.h"

using namespace mlir;

namespace qwen35::codegen::cpu {
namespace {

/// With `adds`, the group add_rms_norm: x = a + b is an output, so operands are
/// a, b, w and results x, y, rstd. The sum is rounded before it is squared.
class RmsNorm : public KernelFamily {
public:
  explicit RmsNorm(bool adds) : adds(adds) {}

  StringRef op() const override { return adds ? "add_rms_norm" : "rms_norm"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, adds ? 3 : 2, adds ? 3 : 2, emitError)) ||
        failed(requireAttrs(spec, {"eps", "offset"}, emitError)))
      return failure();
    MemRefType x = spec.inputs[0];
    if (failed(requireRows(spec, x, "x", emitError)))
      return failure();
    Type f32 = x.getElementType();
    int64_t columns = x.getShape().back();
    if (adds && (failed(requireSameShape(spec, x, "a", spec.inputs[1], "b",
                                         emitError)) ||
                 failed(requireSameShape(spec, x, "a", spec.outputs[0],
                                         "the sum", emitError))))
      return failure();
    if (failed(requireType(spec, spec.inputs[adds ? 2 : 1], "w", {columns},
                           f32, emitError)) ||
        failed(requireSameShape(spec, x, "x", spec.outputs[adds ? 1 : 0], "y",
                                emitError)) ||
        failed(requireType(spec, spec.outputs[adds ? 2 : 1], "rstd",
                           x.getShape().drop_back(), f32, emitError)))
      return failure();
    KernelPlan plan;
    plan.grids = {rowTasks(x, 1)};
    plan.mayAlias = {{0, 0}};
    if (adds)
      plan.mayAlias = {{0, 0}, {0, 1}};
    return plan;
  }

  void emit(const KernelSpec &spec, unsigned, KernelBuilder &k) const override {
    View x = adds ? k.output(0) : k.input(0), w = k.input(adds ? 2 : 1);
    View y = k.output(adds ? 1 : 0), rstd = k.output(adds ? 2 : 1).flat();
    int64_t columns = x.size(-1);
    double eps = spec.number("eps"), offset = spec.number("offset");
    MemRefType rows = k.input(0).type();
    auto [lo, hi] = k.taskRange(rowCount(rows), rowTasks(rows, 1));
    k.forLoop(lo, hi, 1, [&](Val row) {
      View xRow = x.row(row), yRow = y.row(row);
      Val squares = k.sum(columns, [&](Lanes l) {
        Val v;
        if (adds) {
          v = k.input(0).row(row).load({l.i}, l) +
              k.input(1).row(row).load({l.i}, l);
          xRow.store(v, {l.i}, l);
        } else {
          v = xRow.load({l.i}, l);
        }
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

private:
  bool adds;
};

/// n = x * rstd, u = dy * (offset + w):
/// dx = rstd * (u - n * mean(u * n)), dw = sum over rows of dy * n.
/// With `adds`, the group rms_norm_bwd_add: a fifth operand is added to dx.
class RmsNormBwd : public KernelFamily {
public:
  explicit RmsNormBwd(bool adds) : adds(adds) {}

  StringRef op() const override {
    return adds ? "rms_norm_bwd_add" : "rms_norm_bwd";
  }

  FailureOr<KernelPlan> plan(const KernelSpec &spec,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, adds ? 5 : 4, 2, emitError)) ||
        failed(requireAttrs(spec, {"offset"}, emitError)))
      return failure();
    MemRefType x = spec.inputs[1];
    if (adds && failed(requireSameShape(spec, x, "x", spec.inputs[4],
                                        "the addend", emitError)))
      return failure();
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
    if (adds)
      plan.mayAlias.push_back({0, 4});
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
        Val slope = r * (u - n * mean);
        if (adds)
          slope = k.input(4).row(row).load({l.i}, l) + slope;
        dxRow.store(slope, {l.i}, l);
      });
    });
  }

private:
  static ColumnSums columnSums(MemRefType x) {
    return ColumnSums::choose(rowCount(x), x.getShape().back(), 3);
  }

  bool adds;
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
  for (bool adds : {false, true}) {
    registerKernel(std::make_unique<RmsNorm>(adds));
    registerKernel(std::make_unique<RmsNormBwd>(adds));
  }
  registerKernel(std::make_unique<GatedRmsNorm>());
  registerKernel(std::make_unique<GatedRmsNormBwd>());
}

} // namespace qwen35::codegen::cpu
