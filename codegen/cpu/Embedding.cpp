// Row lookup and its gradient; rotary positions.

#include "codegen/cpu/Families.h"
#include "codegen/cpu/Loops.h"

#include "llvm/Support/MathExtras.h"

#include <cmath>

using namespace mlir;

namespace qwen35::codegen::cpu {
namespace {

/// y[t] = table[ids[t]]; with {shard} 0 where ids[t] is -1.
class Embed : public KernelFamily {
public:
  StringRef op() const override { return "embed"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 2, 1, emitError)))
      return failure();
    MLIRContext *context = spec.inputs[0].getContext();
    Type f32 = Float32Type::get(context);
    MemRefType ids = spec.inputs[0], table = spec.inputs[1];
    if (failed(requireType(spec, ids, "ids", {kAny},
                           IntegerType::get(context, 32), emitError)) ||
        failed(
            requireType(spec, table, "table", {kAny, kAny}, f32, emitError)) ||
        failed(requireType(spec, spec.outputs[0], "y",
                           {ids.getDimSize(0), table.getDimSize(1)}, f32,
                           emitError)))
      return failure();
    KernelPlan plan;
    plan.grids = {rowTasks(spec.outputs[0], 1)};
    return plan;
  }

  void emit(const KernelSpec &spec, unsigned, KernelBuilder &k) const override {
    View ids = k.input(0), table = k.input(1), y = k.output(0);
    auto [lo, hi] = k.taskRange(y.size(0), rowTasks(y.type(), 1));
    k.forLoop(lo, hi, 1, [&](Val t) {
      Val id = cast(ids.load({t}), k.index());
      View to = y.row(t);
      auto copy = [&] {
        View from = table.row(id);
        k.forLanes(y.size(1),
                   [&](Lanes l) { to.store(from.load({l.i}, l), {l.i}, l); });
      };
      if (!spec.flag("shard"))
        return copy();
      k.ifThenElse(id >= 0.0, copy, [&] {
        k.forLanes(y.size(1), [&](Lanes l) {
          to.store(k.zero(k.f32(), l.width), {l.i}, l);
        });
      });
    });
  }
};

/// y = x - first of a table's rows from `first` = coordinate * size on, -1 for
/// rows of other ranks, x where it is negative.
class LocalIds : public KernelFamily {
public:
  StringRef op() const override { return "local_ids"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 2, 1, emitError)) ||
        failed(requireAttrs(spec, {"size"}, emitError)))
      return failure();
    MemRefType x = spec.inputs[0];
    Type i32 = IntegerType::get(x.getContext(), 32);
    if (failed(requireType(spec, x, "x", x.getShape(), i32, emitError)) ||
        failed(requireType(spec, spec.inputs[1], "coordinate", {}, i32,
                           emitError)) ||
        failed(requireSameShape(spec, x, "x", spec.outputs[0], "y", emitError)))
      return failure();
    KernelPlan plan;
    plan.grids = {elementTasks({x, spec.outputs[0]}, 1)};
    plan.mayAlias = {{0, 0}};
    return plan;
  }

  void emit(const KernelSpec &spec, unsigned, KernelBuilder &k) const override {
    double size = static_cast<double>(spec.integer("size"));
    Val first = k.input(1).load({}) * size;
    forElements(k, {k.input(0), k.output(0)}, 1,
                [&](ArrayRef<View> parts, Lanes l) {
                  Val x = parts[0].load({l.i}, l);
                  Val local = x - first;
                  Val mine = (local >= 0) & (local < size);
                  Val y = select(x < 0, x, select(mine, local, -1));
                  parts[1].store(y, {l.i}, l);
                });
  }
};

/// dtable[i] = sum of dy[t] over ids[t] = i, t ascending; with {accumulate =
/// true} added to a third operand. A task owns a range of rows and looks through
/// all ids, so no two tasks add to one row; ids of none (-1 with {shard}) are
/// nobody's.
class EmbedBwd : public KernelFamily {
public:
  StringRef op() const override { return "embed_bwd"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec,
                             EmitError emitError) const override {
    bool accumulates = spec.flag("accumulate");
    if (failed(requireCounts(spec, accumulates ? 3 : 2, 1, emitError)) ||
        failed(requireAttrs(spec, {"vocab"}, emitError)))
      return failure();
    MLIRContext *context = spec.inputs[0].getContext();
    Type f32 = Float32Type::get(context);
    MemRefType dy = spec.inputs[0];
    if (failed(requireType(spec, dy, "dy", {kAny, kAny}, f32, emitError)) ||
        failed(requireType(spec, spec.inputs[1], "ids", {dy.getDimSize(0)},
                           IntegerType::get(context, 32), emitError)) ||
        failed(requireType(spec, spec.outputs[0], "dtable",
                           {spec.integer("vocab"), dy.getDimSize(1)}, f32,
                           emitError)) ||
        (accumulates && failed(requireSameShape(spec, spec.outputs[0], "dtable",
                                                spec.inputs[2], "acc",
                                                emitError))))
      return failure();
    KernelPlan plan;
    plan.grids = {tasks(spec.outputs[0])};
    if (accumulates)
      plan.mayAlias = {{0, 2}};
    return plan;
  }

  void emit(const KernelSpec &spec, unsigned, KernelBuilder &k) const override {
    View dy = k.input(0), ids = k.input(1), dtable = k.output(0);
    View acc = spec.flag("accumulate") ? k.input(2) : View();
    int64_t columns = dy.size(1);
    auto [lo, hi] = k.taskRange(dtable.size(0), tasks(dtable.type()));
    k.forLoop(lo, hi, 1, [&](Val row) {
      View to = dtable.row(row), from = acc.get() ? acc.row(row) : View();
      k.forLanes(columns, [&](Lanes l) {
        to.store(from.get() ? from.load({l.i}, l) : k.f32(0.0), {l.i}, l);
      });
    });
    Val first = lo, last = hi;
    k.forLoop(0, dy.size(0), 1, [&](Val t) {
      Val id = cast(ids.load({t}), k.index());
      k.ifThen((id >= first) & (id < last), [&] {
        View from = dy.row(t), to = dtable.row(id);
        k.forLanes(columns, [&](Lanes l) {
          to.store(to.load({l.i}, l) + from.load({l.i}, l), {l.i}, l);
        });
      });
    });
  }

private:
  static int64_t tasks(MemRefType dtable) {
    // Each looks through all ids: not too many of them.
    return std::min<int64_t>(64, rowTasks(dtable, 1));
  }
};

/// (cos, sin) of (t - first token of the document) * theta^(-2j/R), in f64.
/// cp_rope_table: documents begin on any rank.
class RopeTable : public KernelFamily {
public:
  explicit RopeTable(bool striped) : striped(striped) {}
  StringRef op() const override {
    return striped ? "cp_rope_table" : "rope_table";
  }

  FailureOr<KernelPlan> plan(const KernelSpec &spec,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, striped ? 2 : 1, 1, emitError)) ||
        failed(requireAttrs(spec, {"theta", "rotary_dim", "tokens", "max_docs"},
                            emitError)) ||
        (striped &&
         failed(requireStripes(spec, spec.inputs[1], spec.integer("tokens"),
                               emitError))))
      return failure();
    MLIRContext *context = spec.inputs[0].getContext();
    int64_t rotary = spec.integer("rotary_dim");
    if (rotary <= 0 || rotary % 2) {
      emitError() << spec.op << ": rotary_dim must be positive and even, got "
                  << rotary;
      return failure();
    }
    if (failed(requireType(spec, spec.inputs[0], "seq", {kAny},
                           IntegerType::get(context, 32), emitError)) ||
        failed(requireType(spec, spec.outputs[0], "the table",
                           {spec.integer("tokens"), rotary / 2, 2},
                           Float32Type::get(context), emitError)))
      return failure();
    KernelPlan plan;
    plan.grids = {tasks(spec.outputs[0])};
    return plan;
  }

  void emit(const KernelSpec &spec, unsigned, KernelBuilder &k) const override {
    View table = k.output(0);
    SeqView seq = k.seq(k.input(0), spec);
    int64_t pairs = table.size(1);
    double theta = spec.number("theta");
    // Half a vector of pairs at a time fills one vector of the table.
    int64_t lanes = std::min<int64_t>(k.width() / 2, llvm::PowerOf2Ceil(pairs));
    SmallVector<int64_t> interleave;
    for (int64_t i = 0; i < lanes; ++i)
      interleave.append({i, lanes + i});
    auto [lo, hi] = k.taskRange(table.size(0), tasks(table.type()));
    k.forLoop(lo, hi, 1, [&](Val t) {
      Val begin = seq.docStart(t);
      Val before =
          striped ? StripesView(k.input(1), table.size(0)).position(t, begin)
                  : t - begin;
      Val position = cast(cast(before, k.i64()), k.f64());
      View row = table.at({t}).flat();
      for (int64_t j = 0; j < pairs; j += lanes) {
        SmallVector<double> frequencies;
        for (int64_t i = j; i < j + lanes; ++i)
          frequencies.push_back(
              std::pow(theta, -static_cast<double>(i) / pairs));
        Val cosine, sine;
        sinCos(position * k.vector(frequencies, k.f64()), sine, cosine);
        Val both = shuffleLanes(cast(cosine, k.f32()), cast(sine, k.f32()),
                                interleave);
        int64_t real = 2 * std::min(lanes, pairs - j);
        row.storeVector(both, {2 * j},
                        real == 2 * lanes ? Val()
                                          : k.firstLanes(real, 2 * lanes));
      }
    });
  }

private:
  static int64_t tasks(MemRefType table) {
    return chooseTasks(table.getDimSize(0), table.getDimSize(1) * 30);
  }

  bool striped;
};

/// Pairs (j, j + R/2) of the first R dims of each head turned by the angles of
/// the table, or back with {inverse}; the other dims are copied.
class Rope : public KernelFamily {
public:
  StringRef op() const override { return "rope"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 2, 1, emitError)))
      return failure();
    MemRefType x = spec.inputs[0], table = spec.inputs[1];
    Type f32 = Float32Type::get(x.getContext());
    if (failed(requireType(spec, x, "x", {kAny, kAny, kAny}, f32, emitError)) ||
        failed(requireType(spec, table, "the table", {x.getDimSize(0), kAny, 2},
                           f32, emitError)) ||
        failed(requireSameShape(spec, x, "x", spec.outputs[0], "y", emitError)))
      return failure();
    if (2 * table.getDimSize(1) > x.getDimSize(2)) {
      emitError() << "rope: the table turns " << 2 * table.getDimSize(1)
                  << " dims but heads have " << x.getDimSize(2);
      return failure();
    }
    KernelPlan plan;
    plan.grids = {tasks(x)};
    plan.mayAlias = {{0, 0}};
    return plan;
  }

  void emit(const KernelSpec &spec, unsigned, KernelBuilder &k) const override {
    View x = k.input(0), table = k.input(1), y = k.output(0);
    int64_t half = table.size(1), dim = x.size(2);
    bool inverse = spec.flag("inverse");
    View cosines = k.scratch({half}, k.f32()),
         sines = k.scratch({half}, k.f32());
    auto [lo, hi] = k.taskRange(x.size(0), tasks(x.type()));
    k.forLoop(lo, hi, 1, [&](Val t) {
      k.forLoop(0, half, 1, [&](Val j) {
        cosines.store(table.load({t, j, 0}), {j});
        sines.store(table.load({t, j, 1}), {j});
      });
      k.forLoop(0, x.size(1), 1, [&](Val head) {
        View from = x.at({t, head}), to = y.at({t, head});
        k.forLanes(half, [&](Lanes l) {
          Val a = from.load({l.i}, l), b = from.load({l.i + double(half)}, l);
          Val c = cosines.load({l.i}, l), s = sines.load({l.i}, l);
          if (inverse)
            s = -s;
          to.store(a * c - b * s, {l.i}, l);
          to.store(b * c + a * s, {l.i + double(half)}, l);
        });
        if (dim > 2 * half)
          k.forLanes(dim - 2 * half, [&](Lanes l) {
            Val i = l.i + double(2 * half);
            to.store(from.load({i}, l), {i}, l);
          });
      });
    });
  }

private:
  static int64_t tasks(MemRefType x) {
    return chooseTasks(x.getDimSize(0), x.getDimSize(1) * x.getDimSize(2));
  }
};

} // namespace

void registerEmbeddingKernels() {
  registerKernel(std::make_unique<Embed>());
  registerKernel(std::make_unique<LocalIds>());
  registerKernel(std::make_unique<EmbedBwd>());
  registerKernel(std::make_unique<RopeTable>(/*striped=*/false));
  registerKernel(std::make_unique<RopeTable>(/*striped=*/true));
  registerKernel(std::make_unique<Rope>());
}

} // namespace qwen35::codegen::cpu
