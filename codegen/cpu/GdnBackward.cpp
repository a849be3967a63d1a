// gdn_scan_bwd, gdn_local_bwd: gradients of the chunked delta rule; of stripes of
// a row, cp_gdn_scan_bwd and cp_gdn_state_grad.
// KERNELS.md 2; the equations (E..) are those of dialect/QKern/IR/GdnOps.td.
// Short chunks are computed as whole ones, as in GdnForward.cpp.

#include "codegen/cpu/Families.h"
#include "codegen/cpu/GdnChunk.h"
#include "runtime/schema/stripe_table.h"

using namespace mlir;

namespace qwen35::codegen::cpu {
namespace {

constexpr int64_t kRows = DeltaChunk::kRows;

/// What a scan back over the chunks of one value head works on.
struct ScanBwdTask {
  View qn, kn, dOut, beta, gamma, tinv;
  double scale;
  Val head, keyHead, column;
  View state; // scratch
  // K above Q and their factors of (E3) above each other: one product.
  View both, keys, queries, factors2, upper, lower, errors;

  ScanBwdTask(KernelBuilder &k, const DeltaSizes &sizes, double scale, Val head,
              Val column)
      : qn(k.input(0)), kn(k.input(1)), dOut(k.input(2)), beta(k.input(3)),
        gamma(k.input(4)), tinv(k.input(5)), scale(scale), head(head),
        keyHead(head / double(sizes.group())), column(column) {
    int64_t columns = sizes.slice();
    state = k.scratch({sizes.keyDim, columns}, k.f32());
    both = k.scratch({2 * kRows, sizes.keyDim}, k.f32());
    keys = both.tile({0, 0}, {kRows, sizes.keyDim});
    queries = both.tile({kRows, 0}, {kRows, sizes.keyDim});
    factors2 = k.scratch({2 * kRows, columns}, k.f32());
    upper = factors2.tile({0, 0}, {kRows, columns});
    lower = factors2.tile({kRows, 0}, {kRows, columns});
    errors = k.scratch({kRows, columns}, k.f32());
  }

  /// The state gradient back through chunk `index`, whose P is `scores` or, if
  /// that is scratch to be filled, formed here; Z to `solved`, and the gradient
  /// after the chunk to `after` if that is not null.
  void chunk(KernelBuilder &k, const SeqView &seq, Val index, View scores,
             bool formScores, View solved, View after) const {
    int64_t columns = state.size(1);
    DeltaChunk chunk(k, seq, index);
    RowFactors factors = loadRowFactors(k, chunk, head, beta, gamma);
    chunk.loadRows(kn, keyHead, keys);
    chunk.loadRows(qn, keyHead, queries);
    chunk.loadRows(dOut, head, lower, column);
    if (formScores) {
      matmulTile(k, {queries}, {keys, true}, scores);
      applyDecay(k, scores, factors.gamma, scale, /*strict=*/false, scores);
    }
    // (E1)
    matmulTile(k, {keys}, {state}, errors);
    forTile(k, errors, [&](Val row, Lanes l) {
      errors.store(errors.load({row, l.i}, l) * factors.rho.load({row}),
                   {row, l.i}, l);
    });
    matmulTile(k, {scores, true}, {lower}, errors, /*accumulate=*/true);
    // (E2)
    matmulTile(k, {tinv.at({index, head}), true}, {errors}, solved);
    // (E3)
    k.forLoop(0, kRows, 1, [&](Val row) {
      Val eta = factors.eta.load({row});
      Val ofKeys = -(eta * factors.beta.load({row}));
      Val ofQueries = eta * scale;
      k.forLanes(columns, [&](Lanes l) {
        upper.store(solved.load({row, l.i}, l) * ofKeys, {row, l.i}, l);
        lower.store(lower.load({row, l.i}, l) * ofQueries, {row, l.i}, l);
      });
    });
    forTile(k, state, [&](Val row, Lanes l) {
      Val value = state.load({row, l.i}, l);
      if (after.get())
        after.store(value, {row, l.i}, l);
      state.store(value * factors.whole, {row, l.i}, l);
    });
    matmulTile(k, {both, true}, {factors2}, state, /*accumulate=*/true);
  }
};

/// Stage 0, task (chunk, key head): P of gdn_out to the workspace, which no
/// state enters. Stage 1, task (document, value head, slice of the value
/// columns): D+ from the last chunk to the first. cp_gdn_scan_bwd: into the last
/// segments of stripes enters a gradient that is an operand.
class GdnScanBwd : public KernelFamily {
public:
  explicit GdnScanBwd(bool striped) : striped(striped) {}
  StringRef op() const override {
    return striped ? "cp_gdn_scan_bwd" : "gdn_scan_bwd";
  }

  FailureOr<KernelPlan> plan(const KernelSpec &spec,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, striped ? 9 : 7, 2, emitError)))
      return failure();
    auto sizes = check(spec, emitError);
    if (failed(sizes) ||
        (striped && failed(requireStripes(spec, spec.inputs[8], sizes->tokens,
                                          emitError))))
      return failure();
    KernelPlan plan;
    plan.grids = {sizes->chunks * sizes->keyHeads,
                  sizes->maxDocs * sizes->valueHeads * sizes->slices()};
    plan.workspaceBytes = sizes->chunks * sizes->valueHeads * kRows * kRows *
                          static_cast<int64_t>(sizeof(float));
    return plan;
  }

  void emit(const KernelSpec &spec, unsigned stage,
            KernelBuilder &k) const override {
    DeltaSizes sizes = *check(spec, nullptr);
    View scores = k.workspace(
        0, {sizes.chunks, sizes.valueHeads, kRows, kRows}, k.f32());
    if (stage == 0)
      emitScores(spec, k, sizes, scores);
    else
      emitScan(spec, k, sizes, scores);
  }

private:
  FailureOr<DeltaSizes> check(const KernelSpec &spec,
                              EmitError emitError) const {
    const auto &in = spec.inputs, &out = spec.outputs;
    return checkDelta(
        spec, in[1], in[2], in[striped ? 7 : 6], {"scale"},
        [&](const DeltaSizes &s) {
          SmallVector<Expected> expected = {
              {in[0], "qn", {s.tokens, s.keyHeads, s.keyDim}},
              {in[2], "do", {s.tokens, s.valueHeads, s.valueDim}},
              {in[3], "beta", {s.tokens, s.valueHeads}},
              {in[4], "gamma", {s.chunks, s.valueHeads, kRows}},
              {in[5], "tinv", {s.chunks, s.valueHeads, kRows, kRows}},
              {out[0],
               "dstates",
               {s.chunks, s.valueHeads, s.keyDim, s.valueDim}},
              {out[1], "z", {s.chunks, s.valueHeads, kRows, s.valueDim}}};
          if (striped)
            expected.push_back({in[6],
                                "after",
                                {StripeTable::kLocal, s.valueHeads, s.keyDim,
                                 s.valueDim}});
          return expected;
        },
        emitError);
  }

  SeqView table(const KernelSpec &spec, KernelBuilder &k) const {
    return k.seq(k.input(striped ? 7 : 6), spec);
  }

  void emitScores(const KernelSpec &spec, KernelBuilder &k,
                  const DeltaSizes &sizes, View scores) const {
    SeqView seq = table(spec, k);
    View gamma = k.input(4);
    Val index = k.task() / double(sizes.keyHeads);
    Val keyHead = k.task() % double(sizes.keyHeads);
    k.ifThen(index < seq.numChunks(), [&] {
      DeltaChunk chunk(k, seq, index);
      View queries = k.scratch({kRows, sizes.keyDim}, k.f32());
      View keys = k.scratch({kRows, sizes.keyDim}, k.f32());
      View gram = k.scratch({kRows, kRows}, k.f32());
      chunk.loadRows(k.input(0), keyHead, queries);
      chunk.loadRows(k.input(1), keyHead, keys);
      matmulTile(k, {queries}, {keys, true}, gram);
      k.forLoop(0, sizes.group(), 1, [&](Val member) {
        Val head = keyHead * double(sizes.group()) + member;
        applyDecay(k, gram, gamma.at({index, head}), spec.number("scale"),
                   /*strict=*/false, scores.at({index, head}));
      });
    });
  }

  void emitScan(const KernelSpec &spec, KernelBuilder &k,
                const DeltaSizes &sizes, View scores) const {
    SeqView seq = table(spec, k);
    View dstates = k.output(0), z = k.output(1);
    int64_t columns = sizes.slice();
    Val document = k.task() / double(sizes.valueHeads * sizes.slices());
    Val head = k.task() / double(sizes.slices()) % double(sizes.valueHeads);
    Val column = k.task() % double(sizes.slices()) * double(columns);

    ScanBwdTask task(k, sizes, spec.number("scale"), head, column);
    clearTile(k, task.state);
    if (striped) {
      StripesView stripes(k.input(8), sizes.tokens);
      for (int64_t j = 0; j < StripeTable::kLocal; ++j)
        k.ifThen(document == stripes.lastSegment(j), [&] {
          View from = k.input(6).at({j, head}).tile({0, column},
                                                    {sizes.keyDim, columns});
          forTile(k, task.state, [&](Val row, Lanes l) {
            task.state.store(from.load({row, l.i}, l), {row, l.i}, l);
          });
        });
    }
    k.forLoopDown(
        seq.docFirstChunk(document), seq.docFirstChunk(document + 1.0), 1,
        [&](Val index) {
          View solved =
              z.at({index, head}).tile({0, column}, {kRows, columns});
          View after = dstates.at({index, head})
                           .tile({0, column}, {sizes.keyDim, columns});
          task.chunk(k, seq, index, scores.at({index, head}),
                     /*formScores=*/false, solved, after);
        });
  }

  bool striped;
};

/// Task (local stripe, value head, slice of the value columns).
class CpGdnStateGrad : public KernelFamily {
public:
  StringRef op() const override { return "cp_gdn_state_grad"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 8, 1, emitError)))
      return failure();
    auto sizes = check(spec, emitError);
    if (failed(sizes) ||
        failed(requireStripes(spec, spec.inputs[7], sizes->tokens, emitError)))
      return failure();
    KernelPlan plan;
    plan.grids = {StripeTable::kLocal * sizes->valueHeads * sizes->slices()};
    return plan;
  }

  void emit(const KernelSpec &spec, unsigned,
            KernelBuilder &k) const override {
    DeltaSizes sizes = *check(spec, nullptr);
    SeqView seq = k.seq(k.input(6), spec);
    StripesView stripes(k.input(7), sizes.tokens);
    int64_t columns = sizes.slice();
    Val j = k.task() / double(sizes.valueHeads * sizes.slices());
    Val head = k.task() / double(sizes.slices()) % double(sizes.valueHeads);
    Val column = k.task() % double(sizes.slices()) * double(columns);
    Val first = stripes.firstSegment(j);

    ScanBwdTask task(k, sizes, spec.number("scale"), head, column);
    View scores = k.scratch({kRows, kRows}, k.f32());
    View solved = k.scratch({kRows, columns}, k.f32());
    clearTile(k, task.state);
    k.ifThen(stripes.continues(stripes.index(j)), [&] {
      k.forLoopDown(seq.docFirstChunk(first), seq.docFirstChunk(first + 1.0), 1,
                    [&](Val index) {
                      task.chunk(k, seq, index, scores, /*formScores=*/true,
                                 solved, View());
                    });
    });
    View to = k.output(0).at({j, head}).tile({0, column},
                                             {sizes.keyDim, columns});
    forTile(k, to, [&](Val row, Lanes l) {
      to.store(task.state.load({row, l.i}, l), {row, l.i}, l);
    });
  }

private:
  static FailureOr<DeltaSizes> check(const KernelSpec &spec,
                                     EmitError emitError) {
    const auto &in = spec.inputs, &out = spec.outputs;
    return checkDelta(
        spec, in[1], in[2], in[6], {"scale"},
        [&](const DeltaSizes &s) {
          return SmallVector<Expected>{
              {in[0], "qn", {s.tokens, s.keyHeads, s.keyDim}},
              {in[2], "do", {s.tokens, s.valueHeads, s.valueDim}},
              {in[3], "beta", {s.tokens, s.valueHeads}},
              {in[4], "gamma", {s.chunks, s.valueHeads, kRows}},
              {in[5], "tinv", {s.chunks, s.valueHeads, kRows, kRows}},
              {out[0],
               "c",
               {StripeTable::kLocal, s.valueHeads, s.keyDim, s.valueDim}}};
        },
        emitError);
  }
};

/// Task (chunk, key head): sums over its value heads stay in the task.
class GdnLocalBwd : public KernelFamily {
public:
  StringRef op() const override { return "gdn_local_bwd"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 13, 5, emitError)))
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
    SeqView seq = k.seq(k.input(12), spec);
    Val index = k.task() / double(sizes.keyHeads);
    Val keyHead = k.task() % double(sizes.keyHeads);
    k.ifThen(index < seq.numChunks(), [&] {
      DeltaChunk chunk(k, seq, index);
      Local local(k, sizes);
      chunk.loadRows(k.input(0), keyHead, local.queries);
      chunk.loadRows(k.input(1), keyHead, local.keys);
      matmulTile(k, {local.queries}, {local.keys, true}, local.queryGram);
      matmulTile(k, {local.keys}, {local.keys, true}, local.keyGram);
      clearTile(k, local.dQueries);
      clearTile(k, local.dKeys);
      k.forLoop(0, sizes.group(), 1, [&](Val member) {
        emitHead(spec, k, sizes, chunk, local,
                 keyHead * double(sizes.group()) + member);
      });
      // (E8)
      throughNorm(k, chunk, keyHead, local.queries, local.dQueries, k.input(2),
                  k.output(0));
      throughNorm(k, chunk, keyHead, local.keys, local.dKeys, k.input(3),
                  k.output(1));
    });
  }

private:
  /// Scratch that lives through the value heads of a key head.
  struct Local {
    View queries, keys, queryGram, keyGram, dQueries, dKeys;
    /// Of one value head: dO, Hq, J (then J + J^T), H, and one of X, Z S^T, Y.
    View dOut, hq, j, h, product;
    /// Row vectors: <X,Q>, <Y,K>, kappa, <Z,V>, row sums of H (.) K K^T, row and
    /// column sums of N.
    View withQueries, withKeys, kappa, withValues, rowsOfH, rowsOfN, columnsOfN;

    Local(KernelBuilder &k, const DeltaSizes &s) {
      for (View *view : {&queries, &keys, &dQueries, &dKeys, &product})
        *view = k.scratch({kRows, s.keyDim}, k.f32());
      for (View *view : {&queryGram, &keyGram, &hq, &j, &h})
        *view = k.scratch({kRows, kRows}, k.f32());
      dOut = k.scratch({kRows, s.valueDim}, k.f32());
      for (View *view : {&withQueries, &withKeys, &kappa, &withValues,
                         &rowsOfH, &rowsOfN, &columnsOfN})
        *view = vectorScratch(k);
    }
  };

  static FailureOr<DeltaSizes> check(const KernelSpec &spec,
                                     EmitError emitError) {
    const auto &in = spec.inputs, &out = spec.outputs;
    return checkDelta(
        spec, in[1], in[4], in[12], {"scale"},
        [&](const DeltaSizes &s) {
          SmallVector<int64_t> keys = {s.tokens, s.keyHeads, s.keyDim};
          SmallVector<int64_t> norms = {s.tokens, s.keyHeads};
          SmallVector<int64_t> values = {s.tokens, s.valueHeads, s.valueDim};
          SmallVector<int64_t> gates = {s.tokens, s.valueHeads};
          SmallVector<int64_t> states = {s.chunks, s.valueHeads, s.keyDim,
                                         s.valueDim};
          SmallVector<int64_t> tiles = {s.chunks, s.valueHeads, kRows,
                                        s.valueDim};
          return SmallVector<Expected>{
              {in[0], "qn", keys},        {in[2], "qr", norms},
              {in[3], "kr", norms},       {in[4], "v", values},
              {in[5], "do", values},      {in[6], "beta", gates},
              {in[7], "gamma", {s.chunks, s.valueHeads, kRows}},
              {in[8], "states", states},  {in[9], "dstates", states},
              {in[10], "vnew", tiles},    {in[11], "z", tiles},
              {out[0], "dq", keys},       {out[1], "dk", keys},
              {out[2], "dv", values},     {out[3], "dg", gates},
              {out[4], "dbeta", gates}};
        },
        emitError);
  }

  /// product = factor(row) * product, and sums_row = <product, x>_row;
  /// into += product where that is given.
  static void scaleAndDot(KernelBuilder &k, View product, View factor,
                          double scale, View x, View sums, View into) {
    int64_t columns = product.size(1);
    k.forLoop(0, kRows, 1, [&](Val row) {
      Val by = factor.load({row}) * scale;
      sums.store(k.sum(columns,
                       [&](Lanes l) {
                         Val value = product.load({row, l.i}, l) * by;
                         into.store(into.load({row, l.i}, l) + value,
                                    {row, l.i}, l);
                         return value * x.load({row, l.i}, l);
                       }),
                 {row});
    });
  }

  static void emitHead(const KernelSpec &spec, KernelBuilder &k,
                       const DeltaSizes &sizes, const DeltaChunk &chunk,
                       Local &local, Val head) {
    View values = k.input(4);
    View state = k.input(8).at({chunk.chunk, head});
    View dState = k.input(9).at({chunk.chunk, head});
    View written = k.input(10).at({chunk.chunk, head});
    View z = k.input(11).at({chunk.chunk, head});
    View dv = k.output(2), dg = k.output(3), dbeta = k.output(4);
    double scale = spec.number("scale");
    RowFactors f =
        loadRowFactors(k, chunk, head, k.input(6), k.input(7));
    chunk.loadRows(k.input(5), head, local.dOut);

    // (E1): H goes to `h`, J = b H to `j`.
    matmulTile(k, {local.dOut}, {written, true}, local.hq);
    applyDecay(k, local.hq, f.gamma, scale, /*strict=*/false, local.hq);
    matmulTile(k, {z}, {written, true}, local.h);
    applyDecay(k, local.h, f.gamma, -1, /*strict=*/true, local.h);
    forTile(k, local.h, [&](Val row, Lanes l) {
      local.j.store(local.h.load({row, l.i}, l) * f.beta.load({row}),
                    {row, l.i}, l);
    });

    // (E2), (E3) without the Gram products
    matmulTile(k, {local.dOut}, {state, true}, local.product);
    scaleAndDot(k, local.product, f.eta, scale, local.queries,
                local.withQueries, local.dQueries);
    matmulTile(k, {written}, {dState, true}, local.product);
    scaleAndDot(k, local.product, f.rho, 1, local.keys, local.withKeys,
                local.dKeys);
    matmulTile(k, {z}, {state, true}, local.product);
    int64_t keyDim = sizes.keyDim;
    k.forLoop(0, kRows, 1, [&](Val row) {
      Val by = f.eta.load({row}) * f.beta.load({row});
      Val sum = k.sum(keyDim, [&](Lanes l) {
        Val value = local.product.load({row, l.i}, l);
        local.dKeys.store(local.dKeys.load({row, l.i}, l) - value * by,
                          {row, l.i}, l);
        return value * local.keys.load({row, l.i}, l);
      });
      local.kappa.store(sum, {row});
    });

    // (E6): both sums of N, row by row, from the same values.
    k.forLanes(kRows, [&](Lanes l) {
      local.columnsOfN.store(k.zero(k.f32(), l.width), {l.i}, l);
    });
    k.forLoop(0, kRows, 1, [&](Val row) {
      SmallVector<Val> sums = k.sums(kRows, 2, [&](Lanes l) -> SmallVector<Val> {
        Val gram = local.keyGram.load({row, l.i}, l);
        Val n = local.hq.load({row, l.i}, l) *
                    local.queryGram.load({row, l.i}, l) +
                local.j.load({row, l.i}, l) * gram;
        local.columnsOfN.store(local.columnsOfN.load({l.i}, l) + n, {l.i}, l);
        return {n, local.h.load({row, l.i}, l) * gram};
      });
      local.rowsOfN.store(sums[0], {row});
      local.rowsOfH.store(sums[1], {row});
    });

    // Gram products of (E2) and (E3); J becomes J + J^T first.
    k.forLoop(1, kRows, 1, [&](Val row) {
      k.forLoop(0, row, 1, [&](Val column) {
        local.j.store(local.j.load({row, column}), {column, row});
      });
    });
    matmulTile(k, {local.hq}, {local.keys}, local.dQueries, true);
    matmulTile(k, {local.hq, true}, {local.queries}, local.dKeys, true);
    matmulTile(k, {local.j}, {local.keys}, local.dKeys, true);

    // (E4), (E5)
    chunk.forRows([&](Val row) {
      Val token = chunk.first + row, strength = f.beta.load({row});
      Val sum = k.sum(sizes.valueDim, [&](Lanes l) {
        Val value = z.load({row, l.i}, l);
        dv.store(value * strength, {token, head, l.i}, l);
        return value * values.load({token, head, l.i}, l);
      });
      dbeta.store(sum - f.eta.load({row}) * local.kappa.load({row}) +
                      local.rowsOfH.load({row}),
                  {token, head});
    });

    // (E6), (E7): what only the last row gets is where the sum starts.
    Val states = k.sum(sizes.keyDim * sizes.valueDim, [&](Lanes l) {
      return state.flat().load({l.i}, l) * dState.flat().load({l.i}, l);
    });
    Val ofKeys = k.sum(kRows, [&](Lanes l) {
      return local.withKeys.load({l.i}, l);
    });
    k.forLoop(0, chunk.rows, 1, {ofKeys + f.whole * states},
              [&](Val step, ArrayRef<Val> sum) -> SmallVector<Val> {
                Val row = chunk.rows - 1.0 - step;
                Val gradient =
                    local.withQueries.load({row}) - local.withKeys.load({row}) -
                    f.eta.load({row}) * f.beta.load({row}) *
                        local.kappa.load({row}) +
                    (local.rowsOfN.load({row}) - local.columnsOfN.load({row}));
                Val next = sum[0] + gradient;
                dg.store(next, {chunk.first + row, head});
                return {next};
              });
  }

  /// dx = r (dy - y <dy, y>) for the rows of the chunk.
  static void throughNorm(KernelBuilder &k, const DeltaChunk &chunk, Val head,
                          View y, View dy, View factors, View dx) {
    int64_t columns = y.size(1);
    chunk.forRows([&](Val row) {
      Val token = chunk.first + row;
      Val along = k.sum(columns, [&](Lanes l) {
        return y.load({row, l.i}, l) * dy.load({row, l.i}, l);
      });
      Val factor = factors.load({token, head});
      k.forLanes(columns, [&](Lanes l) {
        Val value = dy.load({row, l.i}, l) - y.load({row, l.i}, l) * along;
        dx.store(value * factor, {token, head, l.i}, l);
      });
    });
  }
};

} // namespace

void registerGdnBackwardKernels() {
  registerKernel(std::make_unique<GdnScanBwd>(/*striped=*/false));
  registerKernel(std::make_unique<GdnScanBwd>(/*striped=*/true));
  registerKernel(std::make_unique<CpGdnStateGrad>());
  registerKernel(std::make_unique<GdnLocalBwd>());
}

} // namespace qwen35::codegen::cpu
