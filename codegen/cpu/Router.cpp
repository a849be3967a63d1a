// The router of a mixture of experts and its load-balance loss.

#include "codegen/cpu/Families.h"
#include "codegen/cpu/KernelBuilder.h"
#include "runtime/schema/seq_table.h"

using namespace mlir;

namespace qwen35::codegen::cpu {
namespace {

Type f32Of(const KernelSpec &spec) {
  return Float32Type::get(spec.inputs[0].getContext());
}
Type i32Of(const KernelSpec &spec) {
  return IntegerType::get(spec.inputs[0].getContext(), 32);
}

class Router : public KernelFamily {
public:
  StringRef op() const override { return "router"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 1, 3, emitError)) ||
        failed(requireAttrs(spec, {"top_k"}, emitError)) ||
        failed(requireType(spec, spec.inputs[0], "logits", {kAny, kAny},
                           f32Of(spec), emitError)))
      return failure();
    int64_t tokens = spec.inputs[0].getDimSize(0);
    int64_t experts = spec.inputs[0].getDimSize(1);
    int64_t topK = spec.integer("top_k");
    if (topK < 1 || topK > experts) {
      emitError() << "router: top_k is " << topK << ", expected 1 to "
                  << experts;
      return failure();
    }
    if (failed(requireType(spec, spec.outputs[0], "weights", {tokens, topK},
                           f32Of(spec), emitError)) ||
        failed(requireType(spec, spec.outputs[1], "idx", {tokens, topK},
                           i32Of(spec), emitError)) ||
        failed(requireType(spec, spec.outputs[2], "probs", {tokens, experts},
                           f32Of(spec), emitError)))
      return failure();
    KernelPlan plan;
    plan.grids = {tasks(spec)};
    return plan;
  }

  void emit(const KernelSpec &spec, unsigned,
            KernelBuilder &k) const override {
    View logits = k.input(0), weights = k.output(0), idx = k.output(1);
    View probs = k.output(2);
    int64_t experts = logits.size(1), topK = weights.size(1);
    // Chosen experts drop to -1, below every probability.
    View left = k.scratch({experts}, k.f32());
    auto [lo, hi] = k.taskRange(logits.size(0), tasks(spec));
    k.forLoop(lo, hi, 1, [&](Val token) {
      View row = logits.row(token), out = probs.row(token);
      Val largest =
          k.maximum(experts, [&](Lanes l) { return row.load({l.i}, l); });
      Val sum = k.sum(experts, [&](Lanes l) {
        Val e = exp(row.load({l.i}, l) - largest);
        out.store(e, {l.i}, l);
        return e;
      });
      k.forLanes(experts, [&](Lanes l) {
        Val p = out.load({l.i}, l) / sum;
        out.store(p, {l.i}, l);
        left.store(p, {l.i}, l);
      });
      Val total = k.forLoop(
          0, topK, 1, {k.f32(0)}, [&](Val slot, ArrayRef<Val> carried) {
            // The first of the largest: equal ones go by lower id.
            auto best = k.forLoop(
                0, experts, 1, {k.f32(-2), k.i32(0)},
                [&](Val e, ArrayRef<Val> best) {
                  Val p = left.load({e});
                  Val better = p > best[0];
                  return SmallVector<Val>{
                      select(better, p, best[0]),
                      select(better, cast(e, k.i32()), best[1])};
                });
            idx.store(best[1], {token, slot});
            weights.store(best[0], {token, slot});
            left.store(k.f32(-1), {cast(best[1], k.index())});
            return SmallVector<Val>{carried[0] + best[0]};
          })[0];
      k.forLoop(0, topK, 1, [&](Val slot) {
        weights.store(weights.load({token, slot}) / total, {token, slot});
      });
    });
  }

private:
  static int64_t tasks(const KernelSpec &spec) {
    return chooseTasks(spec.inputs[0].getDimSize(0),
                       spec.inputs[0].getDimSize(1) *
                           (8 + 4 * spec.integer("top_k")));
  }
};

class RouterBwd : public KernelFamily {
public:
  StringRef op() const override { return "router_bwd"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 3, 1, emitError)) ||
        failed(requireAttrs(spec, {"experts"}, emitError)) ||
        failed(requireType(spec, spec.inputs[1], "weights", {kAny, kAny},
                           f32Of(spec), emitError)) ||
        failed(requireSameShape(spec, spec.inputs[1], "weights",
                                spec.inputs[0], "dweights", emitError)))
      return failure();
    int64_t tokens = spec.inputs[1].getDimSize(0);
    if (failed(requireType(spec, spec.inputs[2], "idx",
                           {tokens, spec.inputs[1].getDimSize(1)},
                           i32Of(spec), emitError)) ||
        failed(requireType(spec, spec.outputs[0], "dlogits",
                           {tokens, spec.integer("experts")}, f32Of(spec),
                           emitError)))
      return failure();
    KernelPlan plan;
    plan.grids = {tasks(spec)};
    return plan;
  }

  void emit(const KernelSpec &spec, unsigned,
            KernelBuilder &k) const override {
    View dweights = k.input(0), weights = k.input(1), idx = k.input(2);
    View dlogits = k.output(0);
    int64_t topK = weights.size(1), experts = dlogits.size(1);
    auto [lo, hi] = k.taskRange(weights.size(0), tasks(spec));
    k.forLoop(lo, hi, 1, [&](Val token) {
      View row = dlogits.row(token);
      k.forLanes(experts, [&](Lanes l) {
        row.store(k.zero(k.f32(), l.width), {l.i}, l);
      });
      Val dot = k.forLoop(
          0, topK, 1, {k.f32(0)}, [&](Val slot, ArrayRef<Val> carried) {
            return SmallVector<Val>{carried[0] +
                                    weights.load({token, slot}) *
                                        dweights.load({token, slot})};
          })[0];
      k.forLoop(0, topK, 1, [&](Val slot) {
        Val value = weights.load({token, slot}) *
                    (dweights.load({token, slot}) - dot);
        row.store(value, {cast(idx.load({token, slot}), k.index())});
      });
    });
  }

private:
  static int64_t tasks(const KernelSpec &spec) {
    return chooseTasks(spec.inputs[1].getDimSize(0),
                       spec.integer("experts") +
                           8 * spec.inputs[1].getDimSize(1));
  }
};

/// What router_aux and its gradient share: probs and idx of every layer from
/// operand `first` on, then the document table.
struct AuxShape {
  AuxShape(const KernelSpec &spec, unsigned first) : first(first) {
    layers = (spec.inputs.size() - first - 1) / 2;
    tokens = spec.inputs[first].getDimSize(0);
    experts = spec.inputs[first].getDimSize(1);
    topK = spec.inputs[first + layers].getDimSize(1);
    pooled = spec.text("scope") == "pooled";
  }

  static LogicalResult check(const KernelSpec &spec, unsigned first,
                             EmitError emitError) {
    if (spec.inputs.size() < first + 3 ||
        (spec.inputs.size() - first) % 2 != 1)
      return emitError() << spec.op << ": has " << spec.inputs.size()
                         << " operands, expected probs and idx of every "
                            "layer and the document table";
    if (failed(requireAttrs(spec, {"scope", "tokens", "max_docs"}, emitError)))
      return failure();
    if (failed(requireType(spec, spec.inputs[first], "probs", {kAny, kAny},
                           f32Of(spec), emitError)))
      return failure();
    AuxShape shape(spec, first);
    for (int64_t l = 0; l < shape.layers; ++l)
      if (failed(requireType(spec, spec.inputs[first + l], "probs",
                             {shape.tokens, shape.experts}, f32Of(spec),
                             emitError)) ||
          failed(requireType(spec, spec.inputs[first + shape.layers + l],
                             "idx", {shape.tokens, kAny}, i32Of(spec),
                             emitError)))
        return failure();
    SeqTable seq{spec.integer("tokens"), spec.integer("max_docs")};
    return requireType(spec, spec.inputs.back(), "seq", {seq.words()},
                       i32Of(spec), emitError);
  }

  View probs(KernelBuilder &k, int64_t layer) const {
    return k.input(first + layer);
  }
  View idx(KernelBuilder &k, int64_t layer) const {
    return k.input(first + layers + layer);
  }
  Val realTokens(KernelBuilder &k, const KernelSpec &spec) const {
    return k.seq(k.input(first + 2 * layers), spec).realTokens();
  }
  /// Calls body with the layer whose number the task has.
  void forLayerOfTask(KernelBuilder &k,
                      llvm::function_ref<void(int64_t)> body) const {
    for (int64_t l = 0; l < layers; ++l)
      k.ifThen(k.task() == double(l), [&] { body(l); });
  }
  /// counts[e] = assignments of real tokens to e in one layer.
  void count(KernelBuilder &k, int64_t layer, Val real, View counts) const {
    k.forLanes(experts, [&](Lanes l) {
      counts.store(k.zero(k.f32(), l.width), {l.i}, l);
    });
    View ids = idx(k, layer);
    k.forLoop(0, real, 1, [&](Val token) {
      for (int64_t slot = 0; slot < topK; ++slot) {
        Val e = cast(ids.load({token, slot}), k.index());
        counts.store(counts.load({e}) + 1.0, {e});
      }
    });
  }

  /// sums[e] = probabilities of e over real tokens of one layer.
  void sum(KernelBuilder &k, int64_t layer, Val real, View sums) const {
    View probabilities = probs(k, layer);
    k.forLanes(experts, [&](Lanes l) {
      sums.store(k.forLoop(0, real, 1, {k.zero(k.f32(), l.width)},
                           [&](Val token, ArrayRef<Val> carried) {
                             return SmallVector<Val>{
                                 carried[0] +
                                 probabilities.load({token, l.i}, l)};
                           })[0],
                 {l.i}, l);
    });
  }
  int64_t statsRows() const { return pooled ? 1 : layers; }

  unsigned first;
  int64_t layers, tokens, experts, topK;
  bool pooled;
};

class RouterAux : public KernelFamily {
public:
  StringRef op() const override { return "router_aux"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec,
                             EmitError emitError) const override {
    if (failed(AuxShape::check(spec, 0, emitError)))
      return failure();
    if (spec.outputs.size() != 1 ||
        failed(requireType(spec, spec.outputs[0], "aux", {}, f32Of(spec),
                           emitError)))
      return failure();
    AuxShape shape(spec, 0);
    KernelPlan plan;
    plan.grids = {shape.layers, 1};
    plan.workspaceBytes = 2 * shape.layers * shape.experts * 4;
    return plan;
  }

  void emit(const KernelSpec &spec, unsigned stage,
            KernelBuilder &k) const override {
    AuxShape shape(spec, 0);
    View counts = k.workspace(0, {shape.layers, shape.experts}, k.f32());
    View sums = k.workspace(shape.layers * shape.experts * 4,
                            {shape.layers, shape.experts}, k.f32());
    Val real = shape.realTokens(k, spec);
    if (stage == 0) {
      shape.forLayerOfTask(k, [&](int64_t layer) {
        shape.count(k, layer, real, counts.row(layer));
        shape.sum(k, layer, real, sums.row(layer));
      });
      return;
    }
    // Counts and sums are of one layer, or pooled over all of them.
    double E = double(shape.experts);
    Val tokens = max(cast(cast(real, k.i32()), k.f32()), k.f32(1));
    Val total;
    if (shape.pooled) {
      Val rows = tokens * double(shape.layers);
      total = k.sum(shape.experts, [&](Lanes l) {
        Val count = k.zero(k.f32(), l.width), sum = count;
        for (int64_t layer = 0; layer < shape.layers; ++layer) {
          count = count + counts.load({layer, l.i}, l);
          sum = sum + sums.load({layer, l.i}, l);
        }
        return (count / rows) * (sum / rows);
      }) * E;
    } else {
      total = k.f32(0);
      for (int64_t layer = 0; layer < shape.layers; ++layer)
        total = total + k.sum(shape.experts, [&](Lanes l) {
          return counts.load({layer, l.i}, l) *
                 (sums.load({layer, l.i}, l) / tokens);
        });
      total = total * (E / double(shape.topK)) / tokens;
    }
    k.output(0).store(total, {});
  }
};

class RouterAuxBwd : public KernelFamily {
public:
  StringRef op() const override { return "router_aux_bwd"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec,
                             EmitError emitError) const override {
    if (failed(AuxShape::check(spec, 1, emitError)) ||
        failed(requireType(spec, spec.inputs[0], "daux", {}, f32Of(spec),
                           emitError)))
      return failure();
    AuxShape shape(spec, 1);
    if (static_cast<int64_t>(spec.outputs.size()) != shape.layers) {
      emitError() << "router_aux_bwd: has " << spec.outputs.size()
                  << " results for " << shape.layers << " layers";
      return failure();
    }
    for (MemRefType output : spec.outputs)
      if (failed(requireType(spec, output, "dprobs",
                             {shape.tokens, shape.experts}, f32Of(spec),
                             emitError)))
        return failure();
    KernelPlan plan;
    plan.grids = {shape.layers, shape.layers};
    plan.workspaceBytes = shape.layers * shape.experts * 4;
    return plan;
  }

  void emit(const KernelSpec &spec, unsigned stage,
            KernelBuilder &k) const override {
    AuxShape shape(spec, 1);
    View counts = k.workspace(0, {shape.layers, shape.experts}, k.f32());
    Val real = shape.realTokens(k, spec);
    if (stage == 0) {
      shape.forLayerOfTask(k, [&](int64_t layer) {
        shape.count(k, layer, real, counts.row(layer));
      });
      return;
    }
    Val daux = k.input(0).load({});
    double E = double(shape.experts);
    Val tokens = max(cast(cast(real, k.i32()), k.f32()), k.f32(1));
    shape.forLayerOfTask(k, [&](int64_t layer) {
      View out = k.output(layer);
      k.forLanes(shape.experts, [&](Lanes l) {
        Val count = k.zero(k.f32(), l.width), value;
        if (shape.pooled) {
          for (int64_t other = 0; other < shape.layers; ++other)
            count = count + counts.load({other, l.i}, l);
          Val rows = tokens * double(shape.layers);
          value = (count / rows) * (daux * E / rows);
        } else {
          count = counts.load({layer, l.i}, l);
          value = count * (daux * (E / double(shape.topK)) / tokens / tokens);
        }
        k.forLoop(0, real, 1,
                  [&](Val token) { out.store(value, {token, l.i}, l); });
        k.forLoop(real, shape.tokens, 1, [&](Val token) {
          out.store(k.zero(k.f32(), l.width), {token, l.i}, l);
        });
      });
    });
  }
};

/// What router_aux adds up over the tokens of one rank.
class RouterStats : public KernelFamily {
public:
  StringRef op() const override { return "router_stats"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec,
                             EmitError emitError) const override {
    if (failed(AuxShape::check(spec, 0, emitError)))
      return failure();
    AuxShape shape(spec, 0);
    if (spec.outputs.size() != 3) {
      emitError() << "router_stats: has " << spec.outputs.size()
                  << " results, expected counts, sums and tokens";
      return failure();
    }
    for (unsigned i : {0, 1})
      if (failed(requireType(spec, spec.outputs[i], i ? "sums" : "counts",
                             {shape.statsRows(), shape.experts}, f32Of(spec),
                             emitError)))
        return failure();
    if (failed(requireType(spec, spec.outputs[2], "tokens", {}, f32Of(spec),
                           emitError)))
      return failure();
    KernelPlan plan;
    plan.grids = {shape.layers, 1};
    plan.workspaceBytes = 2 * shape.layers * shape.experts * 4;
    return plan;
  }

  void emit(const KernelSpec &spec, unsigned stage,
            KernelBuilder &k) const override {
    AuxShape shape(spec, 0);
    View counts = k.workspace(0, {shape.layers, shape.experts}, k.f32());
    View sums = k.workspace(shape.layers * shape.experts * 4,
                            {shape.layers, shape.experts}, k.f32());
    Val real = shape.realTokens(k, spec);
    if (stage == 0) {
      shape.forLayerOfTask(k, [&](int64_t layer) {
        shape.count(k, layer, real, counts.row(layer));
        shape.sum(k, layer, real, sums.row(layer));
      });
      return;
    }
    for (auto [from, output] : {std::pair(counts, 0u), {sums, 1u}})
      k.forLanes(shape.experts, [&, from = from, output = output](Lanes l) {
        if (!shape.pooled) {
          for (int64_t layer = 0; layer < shape.layers; ++layer)
            k.output(output).store(from.load({layer, l.i}, l), {layer, l.i}, l);
          return;
        }
        Val total = k.zero(k.f32(), l.width);
        for (int64_t layer = 0; layer < shape.layers; ++layer)
          total = total + from.load({layer, l.i}, l);
        k.output(output).store(total, {0, l.i}, l);
      });
    k.output(2).store(cast(cast(real, k.i32()), k.f32()), {});
  }
};

/// Sizes of router_stats_aux and router_stats_grad, whose counts are operand
/// `first`.
struct StatsShape {
  StatsShape(const KernelSpec &spec, unsigned first) {
    rows = spec.inputs[first].getDimSize(0);
    experts = spec.inputs[first].getDimSize(1);
    layers = spec.integer("layers");
    topK = spec.integer("slots");
    pooled = spec.text("scope") == "pooled";
  }

  static LogicalResult check(const KernelSpec &spec, unsigned first,
                             size_t inputs, EmitError emitError) {
    if (failed(requireAttrs(spec, {"scope", "layers", "slots"}, emitError)))
      return failure();
    if (spec.inputs.size() != inputs)
      return emitError() << spec.op << ": has " << spec.inputs.size()
                         << " operands, expected " << inputs;
    bool pooled = spec.text("scope") == "pooled";
    return requireType(spec, spec.inputs[first], "counts",
                       {pooled ? 1 : spec.integer("layers"), kAny}, f32Of(spec),
                       emitError);
  }

  /// What a probability adds to the loss per count of its expert.
  Val perCount(KernelBuilder &k, Val tokens) const {
    Val n = max(tokens, k.f32(1));
    if (!pooled)
      return k.f32(double(experts) / double(topK)) / n / n;
    Val all = n * double(layers);
    return k.f32(double(experts)) / all / all;
  }

  int64_t rows, experts, layers, topK;
  bool pooled;
};

class RouterStatsAux : public KernelFamily {
public:
  StringRef op() const override { return "router_stats_aux"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec,
                             EmitError emitError) const override {
    if (failed(StatsShape::check(spec, 0, 3, emitError)))
      return failure();
    StatsShape shape(spec, 0);
    if (failed(requireType(spec, spec.inputs[1], "sums",
                           {shape.rows, shape.experts}, f32Of(spec),
                           emitError)) ||
        failed(requireType(spec, spec.inputs[2], "tokens", {}, f32Of(spec),
                           emitError)) ||
        spec.outputs.size() != 1 ||
        failed(requireType(spec, spec.outputs[0], "aux", {}, f32Of(spec),
                           emitError)))
      return failure();
    KernelPlan plan;
    plan.grids = {1};
    return plan;
  }

  void emit(const KernelSpec &spec, unsigned stage,
            KernelBuilder &k) const override {
    StatsShape shape(spec, 0);
    Val total = k.f32(0);
    for (int64_t row = 0; row < shape.rows; ++row)
      total = total + k.sum(shape.experts, [&](Lanes l) {
        return k.input(0).load({row, l.i}, l) * k.input(1).load({row, l.i}, l);
      });
    k.output(0).store(total * shape.perCount(k, k.input(2).load({})), {});
  }
};

class RouterStatsGrad : public KernelFamily {
public:
  StringRef op() const override { return "router_stats_grad"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec,
                             EmitError emitError) const override {
    if (failed(requireAttrs(spec, {"tokens", "max_docs"}, emitError)) ||
        failed(StatsShape::check(spec, 1, 4, emitError)) ||
        failed(requireType(spec, spec.inputs[0], "daux", {}, f32Of(spec),
                           emitError)) ||
        failed(requireType(spec, spec.inputs[2], "tokens", {}, f32Of(spec),
                           emitError)))
      return failure();
    SeqTable seq{spec.integer("tokens"), spec.integer("max_docs")};
    if (failed(requireType(spec, spec.inputs[3], "seq", {seq.words()},
                           i32Of(spec), emitError)))
      return failure();
    StatsShape shape(spec, 1);
    if (static_cast<int64_t>(spec.outputs.size()) != shape.layers) {
      emitError() << "router_stats_grad: has " << spec.outputs.size()
                  << " results for " << shape.layers << " layers";
      return failure();
    }
    for (MemRefType output : spec.outputs)
      if (failed(requireType(spec, output, "dprobs",
                             {seq.tokens, shape.experts}, f32Of(spec),
                             emitError)))
        return failure();
    KernelPlan plan;
    plan.grids = {shape.layers};
    return plan;
  }

  void emit(const KernelSpec &spec, unsigned stage,
            KernelBuilder &k) const override {
    StatsShape shape(spec, 1);
    Val real = k.seq(k.input(3), spec).realTokens();
    Val factor = k.input(0).load({}) * shape.perCount(k, k.input(2).load({}));
    for (int64_t layer = 0; layer < shape.layers; ++layer)
      k.ifThen(k.task() == double(layer), [&] {
        View out = k.output(layer);
        k.forLanes(shape.experts, [&](Lanes l) {
          Val value =
              k.input(1).load({shape.pooled ? 0 : layer, l.i}, l) * factor;
          k.forLoop(0, real, 1,
                    [&](Val token) { out.store(value, {token, l.i}, l); });
          k.forLoop(real, spec.integer("tokens"), 1, [&](Val token) {
            out.store(k.zero(k.f32(), l.width), {token, l.i}, l);
          });
        });
      });
  }
};

} // namespace

void registerRouterKernels() {
  registerKernel(std::make_unique<Router>());
  registerKernel(std::make_unique<RouterBwd>());
  registerKernel(std::make_unique<RouterAux>());
  registerKernel(std::make_unique<RouterAuxBwd>());
  registerKernel(std::make_unique<RouterStats>());
  registerKernel(std::make_unique<RouterStatsAux>());
  registerKernel(std::make_unique<RouterStatsGrad>());
}

} // namespace qwen35::codegen::cpu
