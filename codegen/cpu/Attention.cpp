// attention and attention_bwd: causal inside documents, grouped query heads;
// cp_attention and cp_attention_bwd: queries of one rank, keys of all.
// A task is one chunk of at most 64 queries (or keys) and one head; it walks the
// other chunks of the same document. Chunks restart at documents, so all but the
// last of a document are full and only the diagonal block needs a mask.

#include "codegen/cpu/Families.h"
#include "codegen/cpu/Gemm.h"
#include "codegen/cpu/KernelBuilder.h"
#include "runtime/schema/stripe_table.h"

#include "llvm/Support/MathExtras.h"

#include <limits>

using namespace mlir;

namespace qwen35::codegen::cpu {
namespace {

constexpr int64_t kRows = SeqTable::kChunk;

struct Dims {
  int64_t tokens, queryHeads, keyHeads, size, chunks;
  int64_t group() const { return queryHeads / keyHeads; }
};

/// Checks q, k, v at `first` and the table at `table`, behind which comes that of
/// the stripes if keys are those of several ranks.
FailureOr<Dims> checkOperands(const KernelSpec &spec, unsigned first,
                              unsigned table, bool striped,
                              EmitError emitError) {
  Type f32 = Float32Type::get(spec.inputs[0].getContext());
  MemRefType q = spec.inputs[first], k = spec.inputs[first + 1];
  if (failed(requireAttrs(spec, {"scale", "tokens", "max_docs"}, emitError)) ||
      failed(requireType(spec, q, "q", {kAny, kAny, kAny}, f32, emitError)))
    return failure();
  FailureOr<int64_t> ranks = 1;
  if (striped)
    ranks = requireStripes(spec, spec.inputs[table + 1], q.getDimSize(0),
                           emitError);
  if (failed(ranks) ||
      failed(requireType(spec, k, "k",
                         {q.getDimSize(0) * *ranks, kAny, q.getDimSize(2)}, f32,
                         emitError)) ||
      failed(requireSameShape(spec, k, "k", spec.inputs[first + 2], "v",
                              emitError)))
    return failure();
  SeqTable seq{spec.integer("tokens"), spec.integer("max_docs")};
  if (q.getDimSize(1) % k.getDimSize(1) != 0) {
    emitError() << spec.op << ": " << k.getDimSize(1)
                << " key heads do not divide " << q.getDimSize(1)
                << " query heads";
    return failure();
  }
  if (seq.tokens != q.getDimSize(0)) {
    emitError() << spec.op << ": q has " << q.getDimSize(0)
                << " tokens but the document table describes " << seq.tokens;
    return failure();
  }
  if (failed(requireType(spec, spec.inputs[table], "seq", {seq.words()},
                         IntegerType::get(q.getContext(), 32), emitError)))
    return failure();
  return Dims{q.getDimSize(0), q.getDimSize(1), k.getDimSize(1),
              q.getDimSize(2), seq.chunks()};
}

Dims dimsOf(const KernelSpec &spec, unsigned first) {
  MemRefType q = spec.inputs[first], k = spec.inputs[first + 1];
  SeqTable seq{spec.integer("tokens"), spec.integer("max_docs")};
  return Dims{q.getDimSize(0), q.getDimSize(1), k.getDimSize(1),
              q.getDimSize(2), seq.chunks()};
}

/// A chunk of tokens: `rows` of them from `first` on.
struct Chunk {
  Chunk(const SeqView &seq, Val index)
      : index(index), first(seq.chunkFirst(index)), rows(seq.chunkRows(index)) {
  }
  Chunk(Val first, Val rows) : first(first), rows(rows) {}
  Val index, first, rows; // index: null for rows that are no chunk
};

/// Rows of one head into scratch [64, d]; rows past the chunk become zeros.
void load(KernelBuilder &k, const Chunk &chunk, View from, Val head, View to) {
  k.forLoop(0, chunk.rows, 1, [&](Val row) {
    View source = from.at({chunk.first + row, head}), target = to.row(row);
    k.forLanes(to.size(1),
               [&](Lanes l) { target.store(source.load({l.i}, l), {l.i}, l); });
  });
  k.forLoop(chunk.rows, kRows, 1, [&](Val row) {
    View target = to.row(row);
    k.forLanes(to.size(1), [&](Lanes l) {
      target.store(k.zero(k.f32(), l.width), {l.i}, l);
    });
  });
}

void store(KernelBuilder &k, const Chunk &chunk, View from, View to, Val head,
           llvm::function_ref<Val(Val value, Val row)> finish) {
  k.forLoop(0, chunk.rows, 1, [&](Val row) {
    View source = from.row(row), target = to.at({chunk.first + row, head});
    k.forLanes(from.size(1), [&](Lanes l) {
      target.store(finish(source.load({l.i}, l), row), {l.i}, l);
    });
  });
}

void fillZero(KernelBuilder &k, View view) {
  View flat = view.flat();
  k.forLanes(flat.size(0), [&](Lanes l) {
    flat.store(k.zero(k.f32(), l.width), {l.i}, l);
  });
}

/// Which keys of a 64-wide row take part: columns up to `last`.
Val upTo(KernelBuilder &k, const Lanes &l, Val last) {
  Val columns = cast(l.i, k.i32()) + iota(k.b(), k.i32(), l.width);
  return columns <= cast(last, k.i32());
}

/// Last key that query `row` of chunk `query` sees in chunk `key`, whose index
/// is not larger: itself on the diagonal, all 64 before it.
Val lastKey(KernelBuilder &k, const Chunk &query, const Chunk &key, Val row) {
  return select(query.index == key.index, row, k.index(kRows - 1));
}

/// One step of the online softmax: scores become exponentials, and largest
/// scores, sums and outputs follow. Row r takes keys up to last(r), all rows at
/// least one in the first step.
void update(KernelBuilder &k, View scores, View oBlock, View largest, View sums,
            double scale, function_ref<Val(Val)> lastOf) {
  double lowest = -std::numeric_limits<float>::infinity();
  // Rows past the chunk hold zeros and stay finite; nobody reads them.
  k.forLoop(0, kRows, 1, [&](Val row) {
    View line = scores.row(row), out = oBlock.row(row);
    Val last = lastOf(row);
    Val before = largest.load({row});
    Val now = max(before, k.maximum(kRows, [&](Lanes l) {
      return select(upTo(k, l, last), line.load({l.i}, l) * scale, lowest);
    }));
    Val correction = exp(before - now);
    Val sum = k.sum(kRows, [&](Lanes l) {
      Val p = select(upTo(k, l, last), exp(line.load({l.i}, l) * scale - now),
                     0.0);
      line.store(p, {l.i}, l);
      return p;
    });
    largest.store(now, {row});
    sums.store(sums.load({row}) * correction + sum, {row});
    k.forLanes(oBlock.size(1), [&](Lanes l) {
      out.store(out.load({l.i}, l) * correction, {l.i}, l);
    });
  });
}

/// Where the queries of a chunk and their keys are in a row that is cut into
/// stripes.
struct StripedChunk : Chunk {
  StripedChunk(const SeqView &seq, const StripesView &stripes, Val index)
      : Chunk(seq, index), global(stripes.global(first)),
        firstKey(global - stripes.position(first, seq.docStart(first))),
        end(global + rows) {}
  Val global, firstKey, end; // tokens of the row

  /// body(keys, begin) for the keys that the queries see, in blocks of 64 that
  /// end with their stripes: rows of the gathered operands, and the token of
  /// the row that is the first of them.
  void forKeys(KernelBuilder &k, const StripesView &stripes,
               function_ref<void(const Chunk &, Val)> body) const {
    double rows = double(stripes.rows());
    k.forLoop(firstKey / rows, (end - 1.0) / rows + 1.0, 1, [&](Val stripe) {
      Val base = stripe * rows;
      Val lo = max(firstKey, base), hi = min(end, base + rows);
      Val address = stripes.slot(stripe) * rows;
      k.forLoop(lo, hi, kRows, [&](Val begin) {
        Val count = min(hi - begin, k.index(kRows));
        body(Chunk(address + (begin - base), count), begin);
      });
    });
  }
};

/// The last of 64 keys from token `begin` of the row on that the query at token
/// `query` sees; may be negative.
Val lastKeyFrom(KernelBuilder &k, Val begin, Val count, Val query) {
  return min(count - 1.0, query - begin);
}

class Attention : public KernelFamily {
public:
  explicit Attention(bool striped) : striped(striped) {}
  StringRef op() const override {
    return striped ? "cp_attention" : "attention";
  }

  FailureOr<KernelPlan> plan(const KernelSpec &spec,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, striped ? 5 : 4, 2, emitError)))
      return failure();
    FailureOr<Dims> dims = checkOperands(spec, 0, 3, striped, emitError);
    if (failed(dims) ||
        failed(requireSameShape(spec, spec.inputs[0], "q", spec.outputs[0],
                                "o", emitError)) ||
        failed(requireType(spec, spec.outputs[1], "lse",
                           {dims->tokens, dims->queryHeads},
                           Float32Type::get(spec.inputs[0].getContext()),
                           emitError)))
      return failure();
    KernelPlan plan;
    plan.grids = {dims->chunks * dims->queryHeads};
    return plan;
  }

  void emit(const KernelSpec &spec, unsigned,
            KernelBuilder &k) const override {
    Dims dims = dimsOf(spec, 0);
    View q = k.input(0), keys = k.input(1), values = k.input(2);
    View o = k.output(0), lse = k.output(1);
    SeqView seq = k.seq(k.input(3), spec);
    // Neighbouring tasks are the heads of one chunk: they share keys.
    Val chunk = k.task() / double(dims.queryHeads);
    Val head = k.task() % double(dims.queryHeads);
    Val keyHead = head / double(dims.group());
    double scale = spec.number("scale");

    View qBlock = k.scratch({kRows, dims.size}, k.f32());
    View kBlock = k.scratch({kRows, dims.size}, k.f32());
    View vBlock = k.scratch({kRows, dims.size}, k.f32());
    View oBlock = k.scratch({kRows, dims.size}, k.f32());
    View scores = k.scratch({kRows, kRows}, k.f32());
    View largest = k.scratch({kRows}, k.f32());
    View sums = k.scratch({kRows}, k.f32());
    double lowest = -std::numeric_limits<float>::infinity();

    k.ifThen(chunk < seq.numChunks(), [&] {
      Chunk query(seq, chunk);
      load(k, query, q, head, qBlock);
      fillZero(k, oBlock);
      k.forLoop(0, kRows, 1, [&](Val row) {
        largest.store(k.f32(lowest), {row});
        sums.store(k.f32(0), {row});
      });
      auto attend = [&](const Chunk &key, function_ref<Val(Val)> lastOf) {
        load(k, key, keys, keyHead, kBlock);
        load(k, key, values, keyHead, vBlock);
        matmulTile(k, MatrixOperand{qBlock}, MatrixOperand{kBlock, true},
                   scores);
        update(k, scores, oBlock, largest, sums, scale, lastOf);
        matmulTile(k, MatrixOperand{scores}, MatrixOperand{vBlock}, oBlock,
                   /*accumulate=*/true);
      };
      if (striped) {
        StripesView stripes(k.input(4), dims.tokens);
        StripedChunk mine(seq, stripes, chunk);
        mine.forKeys(k, stripes, [&](const Chunk &key, Val begin) {
          attend(key, [&](Val row) {
            return lastKeyFrom(k, begin, key.rows, mine.global + row);
          });
        });
      } else {
        Val first = seq.docFirstChunk(seq.chunkDoc(chunk));
        k.forLoop(first, chunk + 1.0, 1, [&](Val other) {
          Chunk key(seq, other);
          attend(key, [&](Val row) { return lastKey(k, query, key, row); });
        });
      }
      store(k, query, oBlock, o, head, [&](Val value, Val row) {
        return value * (1.0 / sums.load({row}));
      });
      k.forLoop(0, query.rows, 1, [&](Val row) {
        lse.store(largest.load({row}) + log(sums.load({row})),
                  {query.first + row, head});
      });
    });
  }

private:
  bool striped;
};

/// Stage 0: delta = <do, o> per query row. Stage 1: first the tasks of dq (chunk
/// of queries, query head), then those of dk and dv (chunk of keys, key head).
/// (cp_attention_bwd: block of gathered keys).
class AttentionBwd : public KernelFamily {
public:
  explicit AttentionBwd(bool striped) : striped(striped) {}
  StringRef op() const override {
    return striped ? "cp_attention_bwd" : "attention_bwd";
  }

  FailureOr<KernelPlan> plan(const KernelSpec &spec,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, striped ? 8 : 7, 3, emitError)))
      return failure();
    FailureOr<Dims> dims = checkOperands(spec, 1, 6, striped, emitError);
    if (failed(dims) ||
        failed(requireSameShape(spec, spec.inputs[1], "q", spec.inputs[0],
                                "do", emitError)) ||
        failed(requireSameShape(spec, spec.inputs[1], "q", spec.inputs[4],
                                "o", emitError)) ||
        failed(requireType(spec, spec.inputs[5], "lse",
                           {dims->tokens, dims->queryHeads},
                           Float32Type::get(spec.inputs[0].getContext()),
                           emitError)) ||
        failed(requireSameShape(spec, spec.inputs[1], "q", spec.outputs[0],
                                "dq", emitError)) ||
        failed(requireSameShape(spec, spec.inputs[2], "k", spec.outputs[1],
                                "dk", emitError)) ||
        failed(requireSameShape(spec, spec.inputs[3], "v", spec.outputs[2],
                                "dv", emitError)))
      return failure();
    KernelPlan plan;
    int64_t keyBlocks = striped ? stripedBlocks(spec, *dims) : dims->chunks;
    plan.grids = {deltaTasks(*dims), dims->chunks * dims->queryHeads +
                                         keyBlocks * dims->keyHeads};
    plan.workspaceBytes = dims->tokens * dims->queryHeads * 4;
    return plan;
  }

  void emit(const KernelSpec &spec, unsigned stage,
            KernelBuilder &k) const override {
    Dims dims = dimsOf(spec, 1);
    View delta = k.workspace(0, {dims.tokens, dims.queryHeads}, k.f32());
    if (stage == 0)
      return emitDelta(k, dims, delta);
    SeqView seq = k.seq(k.input(6), spec);
    Blocks blocks(k, dims, delta, spec.number("scale"));
    double queryTasks = double(dims.chunks * dims.queryHeads);
    k.ifThenElse(
        k.task() < queryTasks, [&] { emitQueries(k, dims, seq, blocks); },
        [&] {
          Val task = k.task() - queryTasks;
          if (striped)
            emitGatheredKeys(spec, k, dims, seq, blocks, task);
          else
            emitKeys(k, dims, seq, blocks, task);
        });
  }

private:
  /// Blocks of at most 64 keys of one stripe, of all stripes.
  static int64_t stripedBlocks(const KernelSpec &spec, const Dims &dims) {
    int64_t rows = dims.tokens / StripeTable::kLocal;
    return spec.inputs[2].getDimSize(0) / rows *
           llvm::divideCeil(rows, kRows);
  }

  static int64_t deltaTasks(const Dims &dims) {
    return chooseTasks(dims.tokens, dims.queryHeads * dims.size);
  }

  static void emitDelta(KernelBuilder &k, const Dims &dims, View delta) {
    View dO = k.input(0), o = k.input(4);
    auto [lo, hi] = k.taskRange(dims.tokens, deltaTasks(dims));
    k.forLoop(lo, hi, 1, [&](Val token) {
      k.forLoop(0, dims.queryHeads, 1, [&](Val head) {
        View a = dO.at({token, head}), b = o.at({token, head});
        delta.store(k.sum(dims.size,
                          [&](Lanes l) {
                            return a.load({l.i}, l) * b.load({l.i}, l);
                          }),
                    {token, head});
      });
    });
  }

  /// What both kinds of tasks need: blocks of operands, and P and dS of a pair
  /// of chunks.
  struct Blocks {
    Blocks(KernelBuilder &k, const Dims &dims, View delta, double scale)
        : k(k), delta(delta), scale(scale) {
      for (View *view : {&q, &dO, &key, &value, &first, &second})
        *view = k.scratch({kRows, dims.size}, k.f32());
      p = k.scratch({kRows, kRows}, k.f32());
      dS = k.scratch({kRows, kRows}, k.f32());
    }

    /// P = exp(scale q k^T - lse) and dS = scale P (do v^T - delta), 0 where
    /// masked and in rows past the queries.
    void probabilities(const Chunk &query, const Chunk &keys, Val head) {
      probabilities(query, head,
                    [&](Val row) { return lastKey(k, query, keys, row); });
    }
    /// The same for keys from `firstKey` (null: 0) to lastOf(row) of a block.
    void probabilities(const Chunk &query, Val head,
                       function_ref<Val(Val)> lastOf, Val firstKey = {}) {
      View lse = k.input(5);
      matmulTile(k, MatrixOperand{q}, MatrixOperand{key, true}, p);
      matmulTile(k, MatrixOperand{dO}, MatrixOperand{value, true}, dS);
      k.forLoop(0, query.rows, 1, [&](Val row) {
        View pLine = p.row(row), dLine = dS.row(row);
        Val last = lastOf(row);
        Val rowLse = lse.load({query.first + row, head});
        Val rowDelta = delta.load({query.first + row, head});
        k.forLanes(kRows, [&](Lanes l) {
          Val seen = upTo(k, l, last);
          if (firstKey)
            seen = seen & (cast(l.i, k.i32()) + iota(k.b(), k.i32(), l.width) >=
                           cast(firstKey, k.i32()));
          Val probability = select(
              seen, exp(pLine.load({l.i}, l) * scale - rowLse), 0.0);
          Val slope = (dLine.load({l.i}, l) - rowDelta) * scale;
          pLine.store(probability, {l.i}, l);
          dLine.store(select(seen, probability * slope, 0.0), {l.i}, l);
        });
      });
      k.forLoop(query.rows, kRows, 1, [&](Val row) {
        for (View line : {p.row(row), dS.row(row)})
          k.forLanes(kRows, [&](Lanes l) {
            line.store(k.zero(k.f32(), l.width), {l.i}, l);
          });
      });
    }

    KernelBuilder &k;
    View delta;
    double scale;
    View q, dO, key, value, first, second, p, dS;
  };

  void emitQueries(KernelBuilder &k, const Dims &dims, const SeqView &seq,
                   Blocks &b) const {
    Val chunk = k.task() / double(dims.queryHeads);
    Val head = k.task() % double(dims.queryHeads);
    Val keyHead = head / double(dims.group());
    k.ifThen(chunk < seq.numChunks(), [&] {
      Chunk query(seq, chunk);
      load(k, query, k.input(1), head, b.q);
      load(k, query, k.input(0), head, b.dO);
      fillZero(k, b.first);
      auto attend = [&](const Chunk &keys, function_ref<Val(Val)> lastOf) {
        load(k, keys, k.input(2), keyHead, b.key);
        load(k, keys, k.input(3), keyHead, b.value);
        b.probabilities(query, head, lastOf);
        matmulTile(k, MatrixOperand{b.dS}, MatrixOperand{b.key}, b.first,
                   /*accumulate=*/true);
      };
      if (striped) {
        StripesView stripes(k.input(7), dims.tokens);
        StripedChunk mine(seq, stripes, chunk);
        mine.forKeys(k, stripes, [&](const Chunk &keys, Val begin) {
          attend(keys, [&](Val row) {
            return lastKeyFrom(k, begin, keys.rows, mine.global + row);
          });
        });
      } else {
        Val begin = seq.docFirstChunk(seq.chunkDoc(chunk));
        k.forLoop(begin, chunk + 1.0, 1, [&](Val other) {
          Chunk keys(seq, other);
          attend(keys, [&](Val row) { return lastKey(k, query, keys, row); });
        });
      }
      store(k, query, b.first, k.output(0), head,
            [](Val value, Val) { return value; });
    });
  }

  static void emitKeys(KernelBuilder &k, const Dims &dims, const SeqView &seq,
                       Blocks &b, Val task) {
    Val chunk = task / double(dims.keyHeads);
    Val keyHead = task % double(dims.keyHeads);
    k.ifThen(chunk < seq.numChunks(), [&] {
      Chunk keys(seq, chunk);
      load(k, keys, k.input(2), keyHead, b.key);
      load(k, keys, k.input(3), keyHead, b.value);
      fillZero(k, b.first);  // dk
      fillZero(k, b.second); // dv
      Val end = seq.docFirstChunk(seq.chunkDoc(chunk) + 1.0);
      k.forLoop(0, dims.group(), 1, [&](Val member) {
        Val head = keyHead * double(dims.group()) + member;
        k.forLoop(chunk, end, 1, [&](Val other) {
          Chunk query(seq, other);
          load(k, query, k.input(1), head, b.q);
          load(k, query, k.input(0), head, b.dO);
          b.probabilities(query, keys, head);
          matmulTile(k, MatrixOperand{b.dS, true}, MatrixOperand{b.q}, b.first,
                     /*accumulate=*/true);
          matmulTile(k, MatrixOperand{b.p, true}, MatrixOperand{b.dO},
                     b.second, /*accumulate=*/true);
        });
      });
      store(k, keys, b.first, k.output(1), keyHead,
            [](Val value, Val) { return value; });
      store(k, keys, b.second, k.output(2), keyHead,
            [](Val value, Val) { return value; });
    });
  }

  /// dk and dv of one block of keys of one stripe, from the segments of this
  /// rank that see them. A block may hold keys of several documents; the sums of
  /// a segment reach those of its own only.
  static void emitGatheredKeys(const KernelSpec &spec, KernelBuilder &k,
                               const Dims &dims, const SeqView &seq, Blocks &b,
                               Val task) {
    StripesView stripes(k.input(7), dims.tokens);
    int64_t rows = stripes.rows(), perStripe = llvm::divideCeil(rows, kRows);
    Val block = task / double(dims.keyHeads);
    Val keyHead = task % double(dims.keyHeads);
    Val stripe = block / double(perStripe);
    Val inStripe = block % double(perStripe) * double(kRows);
    Val begin = stripe * double(rows) + inStripe;
    Val count = min(k.index(rows) - inStripe, k.index(kRows));
    Chunk keys(stripes.slot(stripe) * double(rows) + inStripe, count);
    View dKey = k.scratch({kRows, dims.size}, k.f32());
    View dValue = k.scratch({kRows, dims.size}, k.f32());
    load(k, keys, k.input(2), keyHead, b.key);
    load(k, keys, k.input(3), keyHead, b.value);
    fillZero(k, dKey);
    fillZero(k, dValue);
    k.forLoop(0, seq.numDocs(), 1, [&](Val segment) {
      Val firstChunk = seq.docFirstChunk(segment);
      Val endChunk = seq.docFirstChunk(segment + 1.0);
      StripedChunk first(seq, stripes, firstChunk);
      Val end = first.global + seq.docFirst(segment + 1.0) - first.first;
      Val seesSome = (first.firstKey < begin + count) & (begin < end);
      k.ifThen(seesSome, [&] {
        Val lo = max(first.firstKey, begin) - begin;
        Val hi = min(end, begin + count) - begin;
        fillZero(k, b.first);
        fillZero(k, b.second);
        k.forLoop(0, dims.group(), 1, [&](Val member) {
          Val head = keyHead * double(dims.group()) + member;
          k.forLoop(firstChunk, endChunk, 1, [&](Val other) {
            StripedChunk query(seq, stripes, other);
            k.ifThen(begin < query.end, [&] {
              load(k, query, k.input(1), head, b.q);
              load(k, query, k.input(0), head, b.dO);
              b.probabilities(
                  query, head,
                  [&](Val row) {
                    return lastKeyFrom(k, begin, count, query.global + row);
                  },
                  lo);
              matmulTile(k, MatrixOperand{b.dS, true}, MatrixOperand{b.q},
                         b.first, /*accumulate=*/true);
              matmulTile(k, MatrixOperand{b.p, true}, MatrixOperand{b.dO},
                         b.second, /*accumulate=*/true);
            });
          });
        });
        k.forLoop(lo, hi, 1, [&](Val row) {
          k.forLanes(dims.size, [&](Lanes l) {
            dKey.store(dKey.load({row, l.i}, l) + b.first.load({row, l.i}, l),
                       {row, l.i}, l);
            dValue.store(dValue.load({row, l.i}, l) +
                             b.second.load({row, l.i}, l),
                         {row, l.i}, l);
          });
        });
      });
    });
    store(k, keys, dKey, k.output(1), keyHead,
          [](Val value, Val) { return value; });
    store(k, keys, dValue, k.output(2), keyHead,
          [](Val value, Val) { return value; });
  }

  bool striped;
};

} // namespace

void registerAttentionKernels() {
  for (bool striped : {false, true}) {
    registerKernel(std::make_unique<Attention>(striped));
    registerKernel(std::make_unique<AttentionBwd>(striped));
  }
}

} // namespace qwen35::codegen::cpu
