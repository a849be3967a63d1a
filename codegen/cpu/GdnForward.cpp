// gdn_prep, gdn_scan, gdn_out: the delta rule in chunks of 64 tokens; of stripes
// of a row, cp_gdn_scan and cp_gdn_affine.
// KERNELS.md 1; the equations (E..) are those of dialect/QKern/IR/GdnOps.td.
//
// Chunks with fewer rows are computed as whole ones: rows past the last are
// zero in K, Q and V and in the row factors, so they contribute exactly nothing
// and every product has a static size.

#include "codegen/cpu/Families.h"
#include "codegen/cpu/GdnChunk.h"
#include "runtime/schema/stripe_table.h"

using namespace mlir;

namespace qwen35::codegen::cpu {
namespace {

constexpr int64_t kRows = DeltaChunk::kRows;

/// Task (chunk, key head), so that the value heads of a key head share its Gram
/// matrix.
class GdnPrep : public KernelFamily {
public:
  StringRef op() const override { return "gdn_prep"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 5, 6, emitError)))
      return failure();
    auto sizes = check(spec, emitError);
    if (failed(sizes))
      return failure();
    KernelPlan plan;
    plan.grids = {sizes->chunks * sizes->keyHeads};
    return plan;
  }

  void emit(const KernelSpec &spec, unsigned,
            KernelBuilder &k) const override {
    DeltaSizes sizes = *check(spec, nullptr);
    View q = k.input(0), key = k.input(1), g = k.input(2), beta = k.input(3);
    SeqView seq = k.seq(k.input(4), spec);
    View qn = k.output(0), kn = k.output(1), qr = k.output(2),
         kr = k.output(3), gamma = k.output(4), tinv = k.output(5);
    double eps = spec.number("eps");
    Val index = k.task() / double(sizes.keyHeads);
    Val keyHead = k.task() % double(sizes.keyHeads);
    k.ifThen(index < seq.numChunks(), [&] {
      DeltaChunk chunk(k, seq, index);
      normalizeRows(k, chunk, q, keyHead, eps, qn, qr);
      normalizeRows(k, chunk, key, keyHead, eps, kn, kr);
      View keys = k.scratch({kRows, sizes.keyDim}, k.f32());
      chunk.loadRows(kn, keyHead, keys);
      View gram = k.scratch({kRows, kRows}, k.f32());
      matmulTile(k, {keys}, {keys, true}, gram);
      View inverse = k.scratch({kRows, kRows}, k.f32());
      View strength = vectorScratch(k);
      k.forLoop(0, sizes.group(), 1, [&](Val member) {
        Val head = keyHead * double(sizes.group()) + member;
        View sums = gamma.at({index, head});
        cumulate(k, chunk, g, head, sums);
        chunk.forRows([&](Val row) {
          strength.store(beta.load({chunk.first + row, head}), {row});
        });
        invert(k, chunk, gram, strength, inverse);
        // Rows of `inverse` past the last are undefined, those of tinv are 0.
        View to = tinv.at({index, head});
        applyDecay(k, inverse, sums, 1, /*strict=*/false, to);
        k.forLoop(chunk.rows, kRows, 1, [&](Val row) {
          k.forLanes(kRows, [&](Lanes l) {
            to.store(k.zero(k.f32(), l.width), {row, l.i}, l);
          });
        });
      });
    });
  }

private:
  static FailureOr<DeltaSizes> check(const KernelSpec &spec,
                                     EmitError emitError) {
    const auto &in = spec.inputs, &out = spec.outputs;
    return checkDelta(
        spec, in[1], in[2], in[4], {"eps"},
        [&](const DeltaSizes &s) {
          SmallVector<int64_t> heads = {s.tokens, s.keyHeads, s.keyDim};
          return SmallVector<Expected>{
              {in[0], "q", heads},
              {in[2], "g", {s.tokens, s.valueHeads}},
              {in[3], "beta", {s.tokens, s.valueHeads}},
              {out[0], "qn", heads},
              {out[1], "kn", heads},
              {out[2], "qr", {s.tokens, s.keyHeads}},
              {out[3], "kr", {s.tokens, s.keyHeads}},
              {out[4], "gamma", {s.chunks, s.valueHeads, kRows}},
              {out[5], "tinv", {s.chunks, s.valueHeads, kRows, kRows}}};
        },
        emitError);
  }

  /// (E1)
  static void normalizeRows(KernelBuilder &k, const DeltaChunk &chunk, View x,
                            Val head, double eps, View y, View factors) {
    chunk.forRows([&](Val row) {
      Val token = chunk.first + row;
      View from = x.at({token, head}), to = y.at({token, head});
      Val squares = k.sum(from.size(0), [&](Lanes l) {
        Val value = from.load({l.i}, l);
        return value * value;
      });
      Val factor = rsqrt(squares + eps);
      factors.store(factor, {token, head});
      k.forLanes(from.size(0), [&](Lanes l) {
        to.store(from.load({l.i}, l) * factor, {l.i}, l);
      });
    });
  }

  /// (E2)
  static void cumulate(KernelBuilder &k, const DeltaChunk &chunk, View g,
                       Val head, View sums) {
    // Summed in f64 and rounded once, decays to 0 as -104 (GdnOps.td).
    Val last = cast(
        k.forLoop(0, chunk.rows, 1, {k.f64(0)},
                  [&](Val row, ArrayRef<Val> sum) -> SmallVector<Val> {
                    Val own = g.load({chunk.first + row, head});
                    own = select(own < -104.0, -104.0, own); // NaN stays
                    Val next = sum[0] + cast(own, k.f64());
                    sums.store(cast(next, k.f32()), {row});
                    return {next};
                  })[0],
        k.f32());
    k.forLoop(chunk.rows, kRows, 1,
              [&](Val row) { sums.store(last, {row}); });
  }

  /// x = (I + A)^-1 with A_ij = strength_i gram_ij below the diagonal: row i is
  /// e_i minus the rows above it, weighted by A_i. KERNELS.md 1.2: no entry
  /// exceeds 1. Rows past the last are not written.
  static void invert(KernelBuilder &k, const DeltaChunk &chunk, View gram,
                     View strength, View x) {
    int64_t width = k.width(), vectors = kRows / width;
    chunk.forRows([&](Val row) {
      Val own = strength.load({row});
      SmallVector<Val> sums;
      for (int64_t v = 0; v < vectors; ++v) {
        Val columns = iota(k.b(), k.i32(), width) + double(v * width);
        Val here = columns == broadcast(cast(row, k.i32()), width);
        sums.push_back(select(here, k.f32(1), k.f32(0)));
      }
      sums = k.forLoop(0, row, 1, sums,
                       [&](Val above, ArrayRef<Val> carried) {
                         Val a = -(own * gram.load({row, above}));
                         SmallVector<Val> next;
                         for (int64_t v = 0; v < vectors; ++v)
                           next.push_back(
                               fma(broadcast(a, width),
                                   x.loadVector({above, v * width}, width),
                                   carried[v]));
                         return next;
                       });
      for (int64_t v = 0; v < vectors; ++v)
        x.storeVector(sums[v], {row, v * width});
    });
  }
};

/// What a scan over the chunks of one value head works on.
struct ScanTask {
  View kn, v, beta, gamma, tinv; // v: null for values of 0
  Val head, keyHead, column;     // column of the first of `state`
  View state, keys, rows;        // scratch

  ScanTask(KernelBuilder &k, const DeltaSizes &sizes, Val head, Val column,
           int64_t columns)
      : kn(k.input(0)), v(k.input(1)), beta(k.input(2)), gamma(k.input(3)),
        tinv(k.input(4)), head(head), keyHead(head / double(sizes.group())),
        column(column), state(k.scratch({sizes.keyDim, columns}, k.f32())),
        keys(k.scratch({kRows, sizes.keyDim}, k.f32())),
        rows(k.scratch({kRows, columns}, k.f32())) {}

  /// (E1) to (E3): the state through chunk `index`, V' to `written`, and the
  /// state before it to `before` if that is not null.
  void chunk(KernelBuilder &k, const SeqView &seq, Val index, View written,
             View before) const {
    int64_t columns = state.size(1);
    DeltaChunk chunk(k, seq, index);
    RowFactors factors = loadRowFactors(k, chunk, head, beta, gamma);
    chunk.loadRows(kn, keyHead, keys);
    // b (V - eta (K S)); rows of K past the last are 0, b is as well.
    matmulTile(k, {keys}, {state}, rows);
    chunk.forRows([&](Val row) {
      Val strength = factors.beta.load({row});
      Val eta = factors.eta.load({row});
      k.forLanes(columns, [&](Lanes l) {
        Val read = eta * rows.load({row, l.i}, l);
        Val residual =
            v.get() ? v.load({chunk.first + row, head, column + l.i}, l) - read
                    : -read;
        rows.store(strength * residual, {row, l.i}, l);
      });
    });
    matmulTile(k, {tinv.at({index, head})}, {rows}, written);

    forTile(k, rows, [&](Val row, Lanes l) {
      rows.store(written.load({row, l.i}, l) * factors.rho.load({row}),
                 {row, l.i}, l);
    });
    forTile(k, state, [&](Val row, Lanes l) {
      Val value = state.load({row, l.i}, l);
      if (before.get())
        before.store(value, {row, l.i}, l);
      state.store(value * factors.whole, {row, l.i}, l);
    });
    matmulTile(k, {keys, true}, {rows}, state, /*accumulate=*/true);
  }
};

/// Task (document, value head, slice of the value columns). cp_gdn_scan: the
/// first segments of stripes may begin in a state that is an operand.
class GdnScan : public KernelFamily {
public:
  explicit GdnScan(bool striped) : striped(striped) {}
  StringRef op() const override { return striped ? "cp_gdn_scan" : "gdn_scan"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, striped ? 8 : 6, 2, emitError)))
      return failure();
    auto sizes = check(spec, emitError);
    if (failed(sizes) ||
        (striped && failed(requireStripes(spec, spec.inputs[7], sizes->tokens,
                                          emitError))))
      return failure();
    KernelPlan plan;
    plan.grids = {sizes->maxDocs * sizes->valueHeads * sizes->slices()};
    return plan;
  }

  void emit(const KernelSpec &spec, unsigned,
            KernelBuilder &k) const override {
    DeltaSizes sizes = *check(spec, nullptr);
    SeqView seq = k.seq(k.input(striped ? 6 : 5), spec);
    View states = k.output(0), vnew = k.output(1);
    int64_t columns = sizes.slice();
    Val document = k.task() / double(sizes.valueHeads * sizes.slices());
    Val head = k.task() / double(sizes.slices()) % double(sizes.valueHeads);
    Val column = k.task() % double(sizes.slices()) * double(columns);

    ScanTask task(k, sizes, head, column, columns);
    clearTile(k, task.state);
    if (striped) {
      StripesView stripes(k.input(7), sizes.tokens);
      for (int64_t j = 0; j < StripeTable::kLocal; ++j)
        k.ifThen((document == stripes.firstSegment(j)) &
                     stripes.continues(stripes.index(j)),
                 [&] {
                   View from = k.input(5).at({j, head}).tile(
                       {0, column}, {sizes.keyDim, columns});
                   forTile(k, task.state, [&](Val row, Lanes l) {
                     task.state.store(from.load({row, l.i}, l), {row, l.i}, l);
                   });
                 });
    }
    // A document that the table does not use has no chunks.
    k.forLoop(
        seq.docFirstChunk(document), seq.docFirstChunk(document + 1.0), 1,
        [&](Val index) {
          View written =
              vnew.at({index, head}).tile({0, column}, {kRows, columns});
          View before = states.at({index, head})
                            .tile({0, column}, {sizes.keyDim, columns});
          task.chunk(k, seq, index, written, before);
        });
  }

private:
  FailureOr<DeltaSizes> check(const KernelSpec &spec,
                              EmitError emitError) const {
    const auto &in = spec.inputs, &out = spec.outputs;
    return checkDelta(
        spec, in[0], in[1], in[striped ? 6 : 5], {},
        [&](const DeltaSizes &s) {
          SmallVector<Expected> expected = {
              {in[1], "v", {s.tokens, s.valueHeads, s.valueDim}},
              {in[2], "beta", {s.tokens, s.valueHeads}},
              {in[3], "gamma", {s.chunks, s.valueHeads, kRows}},
              {in[4], "tinv", {s.chunks, s.valueHeads, kRows, kRows}},
              {out[0],
               "states",
               {s.chunks, s.valueHeads, s.keyDim, s.valueDim}},
              {out[1], "vnew", {s.chunks, s.valueHeads, kRows, s.valueDim}}};
          if (striped)
            expected.push_back({in[5],
                                "before",
                                {StripeTable::kLocal, s.valueHeads, s.keyDim,
                                 s.valueDim}});
          return expected;
        },
        emitError);
  }

  bool striped;
};

/// Task (local stripe, value head, slice): slices of the columns of M, then of
/// those of b.
class CpGdnAffine : public KernelFamily {
public:
  StringRef op() const override { return "cp_gdn_affine"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 7, 2, emitError)))
      return failure();
    auto sizes = check(spec, emitError);
    if (failed(sizes) ||
        failed(requireStripes(spec, spec.inputs[6], sizes->tokens, emitError)))
      return failure();
    KernelPlan plan;
    plan.grids = {StripeTable::kLocal * sizes->valueHeads * slices(*sizes)};
    return plan;
  }

  void emit(const KernelSpec &spec, unsigned,
            KernelBuilder &k) const override {
    DeltaSizes sizes = *check(spec, nullptr);
    SeqView seq = k.seq(k.input(5), spec);
    StripesView stripes(k.input(6), sizes.tokens);
    Val j = k.task() / double(sizes.valueHeads * slices(sizes));
    Val head = k.task() / double(slices(sizes)) % double(sizes.valueHeads);
    Val slice = k.task() % double(slices(sizes));
    Val last = stripes.lastSegment(j);
    double ofMap = double(mapSizes(sizes).slices());

    auto run = [&](bool map, Val slice) {
      DeltaSizes s = map ? mapSizes(sizes) : sizes;
      int64_t columns = s.slice();
      Val column = slice * double(columns);
      ScanTask task(k, sizes, head, column, columns);
      View written = k.scratch({kRows, columns}, k.f32());
      clearTile(k, task.state);
      if (map) {
        task.v = View();
        k.forLoop(0, columns, 1, [&](Val c) {
          task.state.store(k.f32(1), {column + c, c});
        });
      }
      k.forLoop(seq.docFirstChunk(last), seq.docFirstChunk(last + 1.0), 1, [&](Val index) {
        task.chunk(k, seq, index, written, View());
      });
      View to = k.output(map ? 0 : 1).at({j, head}).tile(
          {0, column}, {sizes.keyDim, columns});
      forTile(k, to, [&](Val row, Lanes l) {
        to.store(task.state.load({row, l.i}, l), {row, l.i}, l);
      });
    };
    k.ifThenElse(
        slice < ofMap,
        [&] {
          k.ifThenElse(
              stripes.passes(stripes.index(j)),
              [&] { run(true, slice); },
              [&] {
                int64_t columns = mapSizes(sizes).slice();
                View to = k.output(0).at({j, head}).tile(
                    {0, slice * double(columns)}, {sizes.keyDim, columns});
                clearTile(k, to);
              });
        },
        [&] { run(false, slice - ofMap); });
  }

private:
  /// Sizes as if the values had the columns of M.
  static DeltaSizes mapSizes(DeltaSizes sizes) {
    sizes.valueDim = sizes.keyDim;
    return sizes;
  }
  static int64_t slices(const DeltaSizes &sizes) {
    return mapSizes(sizes).slices() + sizes.slices();
  }

  static FailureOr<DeltaSizes> check(const KernelSpec &spec,
                                     EmitError emitError) {
    const auto &in = spec.inputs, &out = spec.outputs;
    return checkDelta(
        spec, in[0], in[1], in[5], {},
        [&](const DeltaSizes &s) {
          constexpr int64_t local = StripeTable::kLocal;
          return SmallVector<Expected>{
              {in[1], "v", {s.tokens, s.valueHeads, s.valueDim}},
              {in[2], "beta", {s.tokens, s.valueHeads}},
              {in[3], "gamma", {s.chunks, s.valueHeads, kRows}},
              {in[4], "tinv", {s.chunks, s.valueHeads, kRows, kRows}},
              {out[0], "m", {local, s.valueHeads, s.keyDim, s.keyDim}},
              {out[1], "b", {local, s.valueHeads, s.keyDim, s.valueDim}}};
        },
        emitError);
  }
};

/// Task (chunk, key head).
class GdnOut : public KernelFamily {
public:
  StringRef op() const override { return "gdn_out"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 6, 1, emitError)))
      return failure();
    auto sizes = check(spec, emitError);
    if (failed(sizes))
      return failure();
    KernelPlan plan;
    plan.grids = {sizes->chunks * sizes->keyHeads};
    return plan;
  }

  void emit(const KernelSpec &spec, unsigned,
            KernelBuilder &k) const override {
    DeltaSizes sizes = *check(spec, nullptr);
    View qn = k.input(0), kn = k.input(1), gamma = k.input(2),
         states = k.input(3), vnew = k.input(4);
    SeqView seq = k.seq(k.input(5), spec);
    View o = k.output(0);
    double scale = spec.number("scale");
    Val index = k.task() / double(sizes.keyHeads);
    Val keyHead = k.task() % double(sizes.keyHeads);
    k.ifThen(index < seq.numChunks(), [&] {
      DeltaChunk chunk(k, seq, index);
      View keys = k.scratch({kRows, sizes.keyDim}, k.f32());
      View queries = k.scratch({kRows, sizes.keyDim}, k.f32());
      chunk.loadRows(kn, keyHead, keys);
      chunk.loadRows(qn, keyHead, queries);
      View gram = k.scratch({kRows, kRows}, k.f32());
      View scores = k.scratch({kRows, kRows}, k.f32());
      View rows = k.scratch({kRows, sizes.valueDim}, k.f32());
      matmulTile(k, {queries}, {keys, true}, gram);
      k.forLoop(0, sizes.group(), 1, [&](Val member) {
        Val head = keyHead * double(sizes.group()) + member;
        RowFactors factors = loadRowFactors(k, chunk, head, View(), gamma);
        applyDecay(k, gram, factors.gamma, scale, /*strict=*/false, scores);
        matmulTile(k, {queries}, {states.at({index, head})}, rows);
        forTile(k, rows, [&](Val row, Lanes l) {
          Val factor = factors.eta.load({row}) * scale;
          rows.store(rows.load({row, l.i}, l) * factor, {row, l.i}, l);
        });
        matmulTile(k, {scores}, {vnew.at({index, head})}, rows,
                   /*accumulate=*/true);
        chunk.storeRows(rows, o, head);
      });
    });
  }

private:
  static FailureOr<DeltaSizes> check(const KernelSpec &spec,
                                     EmitError emitError) {
    const auto &in = spec.inputs, &out = spec.outputs;
    return checkDelta(
        spec, in[1], in[3], in[5], {"scale"},
        [&](const DeltaSizes &s) {
          return SmallVector<Expected>{
              {in[0], "qn", {s.tokens, s.keyHeads, s.keyDim}},
              {in[2], "gamma", {s.chunks, s.valueHeads, kRows}},
              {in[3],
               "states",
               {s.chunks, s.valueHeads, s.keyDim, s.valueDim}},
              {in[4], "vnew", {s.chunks, s.valueHeads, kRows, s.valueDim}},
              {out[0], "o", {s.tokens, s.valueHeads, s.valueDim}}};
        },
        emitError);
  }
};

} // namespace

void registerGdnForwardKernels() {
  registerKernel(std::make_unique<GdnPrep>());
  registerKernel(std::make_unique<GdnScan>(/*striped=*/false));
  registerKernel(std::make_unique<GdnScan>(/*striped=*/true));
  registerKernel(std::make_unique<CpGdnAffine>());
  registerKernel(std::make_unique<GdnOut>());
}

} // namespace qwen35::codegen::cpu
