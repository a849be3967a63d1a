// rms_norm: y = x * rstd * (offset + w), rstd = 1 / sqrt(mean(x^2) + eps).
// MODEL.md 2.2, gradients 13.1.

#include "codegen/cpu/Families.h"
#include "codegen/cpu/KernelBuilder.h"

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
        failed(requireSameShape(spec, x, "x", spec.outputs[0], "y",
                                emitError)) ||
        failed(requireType(spec, spec.outputs[1], "rstd",
                           x.getShape().drop_back(), f32, emitError)))
      return failure();
    KernelPlan plan;
    plan.grids = {chooseTasks(rowCount(x), columns)};
    plan.mayAlias = {{0, 0}};
    return plan;
  }

  void emit(const KernelSpec &spec, unsigned,
            KernelBuilder &k) const override {
    View x = k.input(0), w = k.input(1);
    View y = k.output(0), rstd = k.output(1).flat();
    int64_t rows = rowCount(x.type()), columns = x.size(-1);
    double eps = spec.number("eps"), offset = spec.number("offset");
    auto [lo, hi] = k.taskRange(rows, chooseTasks(rows, columns));
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

} // namespace

void registerNormKernels() { registerKernel(std::make_unique<RmsNorm>()); }

} // namespace qwen35::codegen::cpu
