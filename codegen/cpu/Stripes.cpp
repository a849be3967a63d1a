// stripe_tails, add_to_tails, affine_scan, affine_scan_bwd: what passes between
// the stripes of a row that is cut over ranks. dialect/Qwen35/IR/StripeOps.td.

#include "codegen/cpu/Families.h"
#include "codegen/cpu/GdnChunk.h"
#include "codegen/cpu/Loops.h"
#include "runtime/schema/stripe_table.h"

using namespace mlir;

namespace qwen35::codegen::cpu {
namespace {

constexpr int64_t kLocal = StripeTable::kLocal;

/// Task: some of the rows of the tails.
class StripeTails : public KernelFamily {
public:
  StringRef op() const override { return "stripe_tails"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 1, 1, emitError)) ||
        failed(requireAttrs(spec, {"taps"}, emitError)))
      return failure();
    MemRefType x = spec.inputs[0];
    Type f32 = Float32Type::get(x.getContext());
    int64_t halo = spec.integer("taps") - 1;
    if (failed(requireType(spec, x, "x", {kAny, kAny}, f32, emitError)))
      return failure();
    if (x.getDimSize(0) % kLocal != 0 || halo < 1 ||
        halo > x.getDimSize(0) / kLocal) {
      emitError() << "stripe_tails: " << halo + 1 << " taps on "
                  << x.getDimSize(0) << " tokens, expected two stripes of "
                  << "taps - 1 tokens or more";
      return failure();
    }
    if (failed(requireType(spec, spec.outputs[0], "tails",
                           {kLocal, halo, x.getDimSize(1)}, f32, emitError)))
      return failure();
    KernelPlan plan;
    plan.grids = {rowTasks(spec.outputs[0], 1)};
    return plan;
  }

  void emit(const KernelSpec &spec, unsigned, KernelBuilder &k) const override {
    View x = k.input(0), tails = k.output(0);
    int64_t halo = tails.size(1), rows = x.size(0) / kLocal;
    auto [lo, hi] = k.taskRange(kLocal * halo, rowTasks(spec.outputs[0], 1));
    k.forLoop(lo, hi, 1, [&](Val row) {
      Val j = row / double(halo);
      Val from = (j + 1.0) * double(rows) + row % double(halo) - double(halo);
      k.forLanes(x.size(1), [&](Lanes l) {
        tails.row(row).store(x.load({from, l.i}, l), {l.i}, l);
      });
    });
  }
};

/// Task: some of the tokens. May work in place.
class AddToTails : public KernelFamily {
public:
  StringRef op() const override { return "add_to_tails"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 3, 1, emitError)))
      return failure();
    MemRefType x = spec.inputs[0], halo = spec.inputs[1];
    Type f32 = Float32Type::get(x.getContext());
    if (failed(requireType(spec, x, "x", {kAny, kAny}, f32, emitError)) ||
        failed(requireSameShape(spec, x, "x", spec.outputs[0], "y", emitError)))
      return failure();
    FailureOr<int64_t> ranks =
        requireStripes(spec, spec.inputs[2], x.getDimSize(0), emitError);
    if (failed(ranks) ||
        failed(requireType(spec, halo, "halo",
                           {kLocal * *ranks, kAny, x.getDimSize(1)}, f32,
                           emitError)))
      return failure();
    KernelPlan plan;
    plan.grids = {rowTasks(x, 1)};
    plan.mayAlias = {{0, 0}};
    return plan;
  }

  void emit(const KernelSpec &spec, unsigned, KernelBuilder &k) const override {
    View x = k.input(0), halo = k.input(1), y = k.output(0);
    StripesView stripes(k.input(2), x.size(0));
    double rows = double(stripes.rows()), taken = double(halo.size(1));
    auto [lo, hi] = k.taskRange(x.size(0), rowTasks(spec.inputs[0], 1));
    k.forLoop(lo, hi, 1, [&](Val t) {
      // The row is among the last of its stripe, and the document that it is of
      // goes on in the next one.
      Val next = stripes.index(t / rows) + 1.0;
      Val exists = next < double(stripes.count());
      next = select(exists, next, 0.0);
      Val fromEnd = rows - t % rows;
      Val read =
          exists & (fromEnd <= taken) & (fromEnd <= stripes.offset(next));
      k.ifThenElse(
          read,
          [&] {
            View back = halo.at({stripes.slot(next), taken - fromEnd});
            k.forLanes(x.size(1), [&](Lanes l) {
              y.store(x.load({t, l.i}, l) + back.load({l.i}, l), {t, l.i}, l);
            });
          },
          [&] {
            k.forLanes(x.size(1), [&](Lanes l) {
              y.store(x.load({t, l.i}, l), {t, l.i}, l);
            });
          });
    });
  }
};

/// Task (head, slice of the columns): through all stripes, forwards or, with
/// the transposed maps, backwards.
class AffineScan : public KernelFamily {
public:
  explicit AffineScan(bool backward) : backward(backward) {}
  StringRef op() const override {
    return backward ? "affine_scan_bwd" : "affine_scan";
  }

  FailureOr<KernelPlan> plan(const KernelSpec &spec,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 3, 1, emitError)))
      return failure();
    MemRefType m = spec.inputs[0], b = spec.inputs[1];
    Type f32 = Float32Type::get(m.getContext());
    FailureOr<int64_t> ranks =
        requireStripes(spec, spec.inputs[2], kLocal, emitError);
    if (failed(ranks) ||
        failed(requireType(spec, m, "m", {kLocal * *ranks, kAny, kAny, kAny},
                           f32, emitError)) ||
        failed(requireType(spec, m, "m",
                           {m.getDimSize(0), m.getDimSize(1), m.getDimSize(2),
                            m.getDimSize(2)},
                           f32, emitError)) ||
        failed(requireType(
            spec, b, backward ? "c" : "b",
            {m.getDimSize(0), m.getDimSize(1), m.getDimSize(2), kAny}, f32,
            emitError)) ||
        failed(requireType(
            spec, spec.outputs[0], backward ? "gradients" : "states",
            {kLocal, m.getDimSize(1), m.getDimSize(2), b.getDimSize(3)}, f32,
            emitError)))
      return failure();
    KernelPlan plan;
    plan.grids = {m.getDimSize(1) * (b.getDimSize(3) / slice(b))};
    return plan;
  }

  void emit(const KernelSpec &spec, unsigned, KernelBuilder &k) const override {
    View m = k.input(0), terms = k.input(1), out = k.output(0);
    StripesView stripes(k.input(2), kLocal); // no token is asked for
    int64_t columns = slice(spec.inputs[1]), keyDim = m.size(2);
    double slices = double(terms.size(3) / columns);
    Val head = k.task() / slices;
    Val column = k.task() % slices * double(columns);
    auto part = [&](View x, Ix at) {
      return x.at({at, head}).tile({0, column}, {keyDim, columns});
    };

    View state = k.scratch({keyDim, columns}, k.f32());
    View next = k.scratch({keyDim, columns}, k.f32());
    clearTile(k, state);
    auto step = [&](Val stripe) {
      Val continues = stripes.continues(stripe);
      for (int64_t j = 0; j < kLocal; ++j)
        k.ifThen(stripes.index(j) == stripe, [&] {
          View to = part(out, j);
          // A state does not enter a document that begins.
          Val keep = backward ? Val() : continues;
          forTile(k, to, [&](Val row, Lanes l) {
            Val value = state.load({row, l.i}, l);
            to.store(keep ? select(keep, value, value.like(0)) : value,
                     {row, l.i}, l);
          });
        });
      View term = part(terms, stripes.slot(stripe));
      forTile(k, next, [&](Val row, Lanes l) {
        Val value = term.load({row, l.i}, l);
        // Nor does a gradient leave one.
        next.store(backward ? select(continues, value, value.like(0)) : value,
                   {row, l.i}, l);
      });
      k.ifThen(stripes.passes(stripe), [&] {
        View map = m.at({stripes.slot(stripe), head});
        matmulTile(k, {map, backward}, {state}, next, /*accumulate=*/true);
      });
      forTile(k, state, [&](Val row, Lanes l) {
        state.store(next.load({row, l.i}, l), {row, l.i}, l);
      });
    };
    if (backward)
      k.forLoopDown(0, stripes.count(), 1, step);
    else
      k.forLoop(0, stripes.count(), 1, step);
  }

private:
  /// Columns do not interact: few heads still give many tasks.
  static int64_t slice(MemRefType terms) {
    int64_t columns = terms.getDimSize(3);
    return columns % 64 == 0 ? 64 : columns;
  }

  bool backward;
};

} // namespace

void registerStripeKernels() {
  registerKernel(std::make_unique<StripeTails>());
  registerKernel(std::make_unique<AddToTails>());
  registerKernel(std::make_unique<AffineScan>(/*backward=*/false));
  registerKernel(std::make_unique<AffineScan>(/*backward=*/true));
}

} // namespace qwen35::codegen::cpu
