#include "codegen/cpu/GdnChunk.h"

#include "runtime/schema/seq_table.h"

using namespace mlir;

namespace qwen35::codegen::cpu {

FailureOr<DeltaSizes> checkDelta(
    const KernelSpec &spec, MemRefType keys, MemRefType values, MemRefType seq,
    ArrayRef<StringRef> attrs,
    function_ref<SmallVector<Expected>(const DeltaSizes &)> expected,
    EmitError emitError) {
  if (failed(requireAttrs(spec, {"tokens", "max_docs"}, emitError)) ||
      failed(requireAttrs(spec, attrs, emitError)))
    return failure();
  Type f32 = Float32Type::get(seq.getContext());
  Type i32 = IntegerType::get(seq.getContext(), 32);
  SeqTable table{spec.integer("tokens"), spec.integer("max_docs")};
  if (failed(requireType(spec, keys, "k", {table.tokens, kAny, kAny}, f32,
                         emitError)))
    return failure();
  if (values.getRank() < 2)
    return emitError() << spec.op << ": expected values of rank 2 or more, got "
                       << values;
  DeltaSizes sizes;
  sizes.tokens = table.tokens;
  sizes.maxDocs = table.maxDocs;
  sizes.chunks = table.chunks();
  sizes.keyHeads = keys.getDimSize(1);
  sizes.keyDim = keys.getDimSize(2);
  sizes.valueHeads = values.getDimSize(1);
  sizes.valueDim = values.getShape().back();
  if (sizes.valueHeads % sizes.keyHeads != 0)
    return emitError() << spec.op << ": " << sizes.keyHeads
                       << " key heads do not divide " << sizes.valueHeads
                       << " value heads";
  if (failed(requireType(spec, seq, "seq", {table.words()}, i32, emitError)))
    return failure();
  for (const Expected &operand : expected(sizes))
    if (failed(requireType(spec, operand.type, operand.name, operand.shape,
                           f32, emitError)))
      return failure();
  return sizes;
}

DeltaChunk::DeltaChunk(KernelBuilder &k, const SeqView &seq, Val chunk)
    : chunk(chunk), first(seq.chunkFirst(chunk)), rows(seq.chunkRows(chunk)),
      k(k) {}

void DeltaChunk::forRows(function_ref<void(Val)> body) const {
  k.forLoop(0, rows, 1, body);
}

void DeltaChunk::loadRows(View from, Val head, View to, Ix column) const {
  int64_t columns = to.size(1);
  Val start = k.toIndex(column);
  forRows([&](Val row) {
    k.forLanes(columns, [&](Lanes l) {
      to.store(from.load({first + row, head, start + l.i}, l), {row, l.i}, l);
    });
  });
  k.forLoop(rows, kRows, 1, [&](Val row) {
    k.forLanes(columns, [&](Lanes l) {
      to.store(k.zero(k.f32(), l.width), {row, l.i}, l);
    });
  });
}

void DeltaChunk::storeRows(View from, View to, Val head) const {
  forRows([&](Val row) {
    k.forLanes(from.size(1), [&](Lanes l) {
      to.store(from.load({row, l.i}, l), {first + row, head, l.i}, l);
    });
  });
}

View vectorScratch(KernelBuilder &k) {
  return k.scratch({DeltaChunk::kRows}, k.f32());
}

RowFactors loadRowFactors(KernelBuilder &k, const DeltaChunk &chunk, Val head,
                          View beta, View gamma) {
  RowFactors factors{vectorScratch(k), vectorScratch(k), vectorScratch(k),
                     gamma.at({chunk.chunk, head}), Val()};
  // Rows past the last hold its gamma.
  Val last = factors.gamma.load({DeltaChunk::kRows - 1});
  factors.whole = exp(last);
  Val rows = cast(chunk.rows, k.i32());
  k.forLanes(DeltaChunk::kRows, [&](Lanes l) {
    Val value = factors.gamma.load({l.i}, l);
    Val real = iota(k.b(), k.i32(), l.width) + cast(l.i, k.i32()) < rows;
    factors.eta.store(select(real, exp(value), 0.0), {l.i}, l);
    factors.rho.store(select(real, exp(last - value), 0.0), {l.i}, l);
  });
  if (!beta.get())
    return factors;
  chunk.forRows([&](Val row) {
    factors.beta.store(beta.load({chunk.first + row, head}), {row});
  });
  k.forLoop(chunk.rows, DeltaChunk::kRows, 1,
            [&](Val row) { factors.beta.store(k.f32(0), {row}); });
  return factors;
}

void applyDecay(KernelBuilder &k, View x, View gamma, double factor,
                bool strict, View to) {
  int64_t width = k.width();
  k.forLoop(0, DeltaChunk::kRows, 1, [&](Val row) {
    Val own = gamma.load({row});
    // Vectors that reach the diagonal, then those above it.
    Val below = (row / double(width) + 1.0) * double(width);
    k.forLoop(0, below, width, [&](Val column) {
      Lanes l = k.lanesAt(column);
      Val columns = iota(k.b(), k.i32(), width) + cast(column, k.i32());
      Val at = broadcast(cast(row, k.i32()), width);
      Val keep = strict ? columns < at : columns <= at;
      // Selected before the exponential: above the diagonal it would grow.
      Val exponent = select(keep, own - gamma.load({column}, l), 0.0);
      Val value = x.load({row, column}, l) * (factor * exp(exponent));
      to.store(select(keep, value, 0.0), {row, column}, l);
    });
    k.forLoop(below, DeltaChunk::kRows, width, [&](Val column) {
      to.store(k.zero(k.f32(), width), {row, column}, k.lanesAt(column));
    });
  });
}

void forTile(KernelBuilder &k, View tile,
             function_ref<void(Val, Lanes)> body) {
  k.forLoop(0, tile.size(0), 1, [&](Val row) {
    k.forLanes(tile.size(1), [&](Lanes l) { body(row, l); });
  });
}

void clearTile(KernelBuilder &k, View tile) {
  forTile(k, tile, [&](Val row, Lanes l) {
    tile.store(k.zero(k.f32(), l.width), {row, l.i}, l);
  });
}

} // namespace qwen35::codegen::cpu
