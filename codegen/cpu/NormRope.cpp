// rms_norm_rope: the group of a head norm and the rotation that alone reads it.
// Operands are x [T,H,d], w [d], table [T,R/2,2]; results y [T,H,d], rstd [T,H].
// The normalized heads stay in registers.

#include "codegen/cpu/Families.h"
#include "codegen/cpu/KernelBuilder.h"

using namespace mlir;

namespace qwen35::codegen::cpu {
namespace {

class RmsNormRope : public KernelFamily {
public:
  StringRef op() const override { return "rms_norm_rope"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 3, 2, emitError)) ||
        failed(requireAttrs(spec, {"eps", "offset"}, emitError)))
      return failure();
    MemRefType x = spec.inputs[0];
    Type f32 = Float32Type::get(x.getContext());
    if (failed(requireType(spec, x, "x", {kAny, kAny, kAny}, f32, emitError)) ||
        failed(requireType(spec, spec.inputs[1], "w", {x.getDimSize(2)}, f32,
                           emitError)) ||
        failed(requireType(spec, spec.inputs[2], "the table",
                           {x.getDimSize(0), kAny, 2}, f32, emitError)) ||
        failed(requireSameShape(spec, x, "x", spec.outputs[0], "y",
                                emitError)) ||
        failed(requireType(spec, spec.outputs[1], "rstd",
                           {x.getDimSize(0), x.getDimSize(1)}, f32,
                           emitError)))
      return failure();
    if (2 * spec.inputs[2].getDimSize(1) > x.getDimSize(2)) {
      emitError() << "rms_norm_rope: the table turns "
                  << 2 * spec.inputs[2].getDimSize(1)
                  << " dims but heads have " << x.getDimSize(2);
      return failure();
    }
    KernelPlan plan;
    plan.grids = {tasks(x)};
    return plan;
  }

  void emit(const KernelSpec &spec, unsigned,
            KernelBuilder &k) const override {
    View x = k.input(0), w = k.input(1), table = k.input(2);
    View y = k.output(0), rstd = k.output(1);
    int64_t half = table.size(1), dim = x.size(2);
    double eps = spec.number("eps"), offset = spec.number("offset");
    double sign = spec.flag("inverse") ? -1 : 1;
    View cosines = k.scratch({half}, k.f32()),
         sines = k.scratch({half}, k.f32());
    auto [lo, hi] = k.taskRange(x.size(0), tasks(x.type()));
    k.forLoop(lo, hi, 1, [&](Val t) {
      k.forLoop(0, half, 1, [&](Val j) {
        cosines.store(table.load({t, j, 0}), {j});
        sines.store(table.load({t, j, 1}) * sign, {j});
      });
      k.forLoop(0, x.size(1), 1, [&](Val head) {
        View from = x.at({t, head}), to = y.at({t, head});
        Val squares = k.sum(dim, [&](Lanes l) {
          Val v = from.load({l.i}, l);
          return v * v;
        });
        Val r = rsqrt(squares / double(dim) + eps);
        rstd.store(r, {t, head});
        auto normed = [&](Val i, Lanes l) {
          return from.load({i}, l) * r * (w.load({i}, l) + offset);
        };
        k.forLanes(half, [&](Lanes l) {
          Val other = l.i + double(half);
          Val a = normed(l.i, l), b = normed(other, l);
          Val c = cosines.load({l.i}, l), s = sines.load({l.i}, l);
          to.store(a * c - b * s, {l.i}, l);
          to.store(b * c + a * s, {other}, l);
        });
        if (dim > 2 * half)
          k.forLanes(dim - 2 * half, [&](Lanes l) {
            Val i = l.i + double(2 * half);
            to.store(normed(i, l), {i}, l);
          });
      });
    });
  }

private:
  static int64_t tasks(MemRefType x) {
    return chooseTasks(x.getDimSize(0), 2 * x.getDimSize(1) * x.getDimSize(2));
  }
};

} // namespace

void registerNormRopeKernels() {
  registerKernel(std::make_unique<RmsNormRope>());
}

} // namespace qwen35::codegen::cpu
