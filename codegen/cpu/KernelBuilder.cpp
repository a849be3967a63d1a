#include "codegen/cpu/KernelBuilder.h"

#include "runtime/schema/stripe_table.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/MathExtras.h"

#include <limits>

using namespace mlir;

namespace qwen35::codegen::cpu {
namespace {

Val constantIndex(ImplicitLocOpBuilder &b, int64_t number) {
  return Val(b, arith::ConstantIndexOp::create(b, number));
}

Val toValue(ImplicitLocOpBuilder &b, const Ix &ix) {
  return ix.value ? ix.value : constantIndex(b, ix.constant);
}

SmallVector<Value> raw(ArrayRef<Val> values) {
  return llvm::map_to_vector(values, [](Val value) { return value.get(); });
}

SmallVector<int64_t> stridesOf(MemRefType type) {
  auto [strides, offset] = type.getStridesAndOffset();
  (void)offset;
  return strides;
}

} // namespace

//===----------------------------------------------------------------------===//
// View
//===----------------------------------------------------------------------===//

View::View(ImplicitLocOpBuilder &builder, Value memref)
    : builder(&builder), memref(memref) {}

MemRefType View::type() const { return cast<MemRefType>(memref.getType()); }

int64_t View::size(int64_t dimension) const {
  return type().getDimSize(dimension < 0 ? rank() + dimension : dimension);
}

int64_t View::stride(int64_t dimension) const {
  return stridesOf(type())[dimension < 0 ? rank() + dimension : dimension];
}

SmallVector<Value> View::indices(ArrayRef<Ix> at) const {
  assert(static_cast<int64_t>(at.size()) <= rank() && "too many indices");
  SmallVector<Value> values;
  for (const Ix &ix : at)
    values.push_back(toValue(*builder, ix).get());
  while (static_cast<int64_t>(values.size()) < rank())
    values.push_back(constantIndex(*builder, 0).get());
  return values;
}

Val View::load(ArrayRef<Ix> at) const {
  return Val(*builder, memref::LoadOp::create(*builder, memref, indices(at)));
}

void View::store(Val value, ArrayRef<Ix> at) const {
  memref::StoreOp::create(*builder, value.get(), memref, indices(at));
}

Val View::loadVector(ArrayRef<Ix> at, int64_t width) const {
  auto type = VectorType::get({width}, element());
  return Val(*builder,
             vector::LoadOp::create(*builder, type, memref, indices(at)));
}

Val View::loadVector(ArrayRef<Ix> at, int64_t width, Val mask) const {
  if (!mask)
    return loadVector(at, width);
  auto type = VectorType::get({width}, element());
  Value zero = arith::ConstantOp::create(*builder, builder->getZeroAttr(type));
  return Val(*builder,
             vector::MaskedLoadOp::create(*builder, type, memref, indices(at),
                                          mask.get(), zero));
}

void View::storeVector(Val vector, ArrayRef<Ix> at, Val mask) const {
  assert(vector.element() == element() && "store of another element type");
  if (mask)
    vector::MaskedStoreOp::create(*builder, memref, indices(at), mask.get(),
                                  vector.get());
  else
    vector::StoreOp::create(*builder, vector.get(), memref, indices(at));
}

Val View::load(ArrayRef<Ix> at, const Lanes &lanes) const {
  return loadVector(at, lanes.width, lanes.mask);
}

void View::store(Val vector, ArrayRef<Ix> at, const Lanes &lanes) const {
  storeVector(broadcast(vector, lanes.width), at, lanes.mask);
}

Val View::linear(ArrayRef<Ix> at) const {
  SmallVector<int64_t> strides = stridesOf(type());
  Val sum = offset;
  int64_t constant = 0;
  for (auto [ix, stride] : llvm::zip(at, strides)) {
    if (!ix.value) {
      constant += ix.constant * stride;
      continue;
    }
    Val term = stride == 1 ? ix.value : ix.value * double(stride);
    sum = sum ? sum + term : term;
  }
  if (!sum)
    return constantIndex(*builder, constant);
  return constant ? sum + double(constant) : sum;
}

View View::reinterpret(Val newOffset, ArrayRef<int64_t> sizes,
                       ArrayRef<int64_t> strides) const {
  MLIRContext *context = builder->getContext();
  auto layout = StridedLayoutAttr::get(context, ShapedType::kDynamic, strides);
  auto result =
      MemRefType::get(sizes, element(), layout, type().getMemorySpace());
  auto attrs = [&](ArrayRef<int64_t> numbers) {
    return llvm::map_to_vector(numbers, [&](int64_t number) {
      return OpFoldResult(builder->getIndexAttr(number));
    });
  };
  Value cast = memref::ReinterpretCastOp::create(*builder, result, memref,
                                                 OpFoldResult(newOffset.get()),
                                                 attrs(sizes), attrs(strides));
  return View(*builder, cast, newOffset);
}

View View::at(ArrayRef<Ix> leading) const {
  return reinterpret(linear(leading),
                     type().getShape().drop_front(leading.size()),
                     ArrayRef(stridesOf(type())).drop_front(leading.size()));
}

View View::tile(ArrayRef<Ix> offsets, ArrayRef<int64_t> sizes) const {
  assert(static_cast<int64_t>(sizes.size()) == rank());
  return reinterpret(linear(offsets), sizes, stridesOf(type()));
}

View View::row(Ix number) const {
  assert(rank() >= 1 && "a scalar has no rows");
  // Dimensions from the innermost leading one outwards, merged where one stride
  // serves both: usually a single multiplication is left.
  SmallVector<int64_t> strides = stridesOf(type());
  SmallVector<std::pair<int64_t, int64_t>> merged; // size, stride
  for (int64_t d = rank() - 2; d >= 0; --d) {
    int64_t size = type().getDimSize(d);
    if (size == 1)
      continue;
    if (!merged.empty() &&
        strides[d] == merged.back().first * merged.back().second)
      merged.back().first *= size;
    else
      merged.push_back({size, strides[d]});
  }
  Val rest = toValue(*builder, number);
  Val sum = offset;
  for (auto [i, part] : llvm::enumerate(merged)) {
    bool last = i + 1 == merged.size();
    Val digit = last ? rest : rest % double(part.first);
    Val term = digit * double(part.second);
    sum = sum ? sum + term : term;
    if (!last)
      rest = rest / double(part.first);
  }
  if (!sum)
    sum = constantIndex(*builder, 0);
  return reinterpret(sum, {size(-1)}, {strides.back()});
}

View View::flat() const {
  SmallVector<int64_t> strides = stridesOf(type());
  int64_t expected = 1;
  for (int64_t d = rank() - 1; d >= 0; --d) {
    assert((size(d) == 1 || strides[d] == expected) && "not dense");
    expected *= size(d);
  }
  return reinterpret(linear({}), {expected}, {1});
}

View View::reshape(ArrayRef<int64_t> sizes) const {
  SmallVector<int64_t> strides(sizes.size(), 1);
  for (int64_t d = static_cast<int64_t>(sizes.size()) - 2; d >= 0; --d)
    strides[d] = strides[d + 1] * sizes[d + 1];
  View dense = flat();
  return dense.reinterpret(dense.offset, sizes, strides);
}

View View::restride(ArrayRef<int64_t> sizes, ArrayRef<int64_t> strides) const {
  return reinterpret(linear({}), sizes, strides);
}

void View::prefetch(ArrayRef<Ix> at, bool forWrite) const {
  memref::PrefetchOp::create(*builder, memref, indices(at), forWrite,
                             /*localityHint=*/3, /*isDataCache=*/true);
}

//===----------------------------------------------------------------------===//
// SeqView
//===----------------------------------------------------------------------===//

static SeqTable shapeOf(int64_t tokens, int64_t maxDocs) {
  return SeqTable{tokens, maxDocs};
}

Val SeqView::word(int64_t base, Ix index) const {
  Ix at =
      index.value ? Ix(index.value + double(base)) : Ix(index.constant + base);
  Val word = table.load({at});
  return cast(word, word.b().getIndexType());
}

int64_t SeqView::maxChunks() const { return shapeOf(tokens, maxDocs).chunks(); }
Val SeqView::numDocs() const { return word(SeqTable::kNumDocs, 0); }
Val SeqView::numChunks() const { return word(SeqTable::kNumChunks, 0); }
Val SeqView::realTokens() const { return word(SeqTable::kRealTokens, 0); }
Val SeqView::docFirst(Ix doc) const {
  return word(shapeOf(tokens, maxDocs).cuSeqlens(), doc);
}
Val SeqView::docFirstChunk(Ix doc) const {
  return word(shapeOf(tokens, maxDocs).docFirstChunk(), doc);
}
Val SeqView::chunkFirst(Ix chunk) const {
  return word(shapeOf(tokens, maxDocs).chunkFirst(), chunk);
}
Val SeqView::chunkRows(Ix chunk) const {
  return word(shapeOf(tokens, maxDocs).chunkRows(), chunk);
}
Val SeqView::chunkDoc(Ix chunk) const {
  return word(shapeOf(tokens, maxDocs).chunkDoc(), chunk);
}
Val SeqView::docStart(Ix token) const {
  return word(shapeOf(tokens, maxDocs).docStart(), token);
}
Val SeqView::docEnd(Ix token) const {
  return word(shapeOf(tokens, maxDocs).docEnd(), token);
}

//===----------------------------------------------------------------------===//
// StripesView
//===----------------------------------------------------------------------===//

StripesView::StripesView(View table, int64_t rankTokens)
    : table(table), rankTokens(rankTokens),
      ranks(StripeTable::ranksOf(table.size(0))) {}

Val StripesView::word(int64_t base, Ix index) const {
  Ix at =
      index.value ? Ix(index.value + double(base)) : Ix(index.constant + base);
  Val word = table.load({at});
  return cast(word, word.b().getIndexType());
}

int64_t StripesView::count() const { return StripeTable::kLocal * ranks; }
int64_t StripesView::rows() const { return rankTokens / StripeTable::kLocal; }
Val StripesView::index(Ix j) const { return word(StripeTable::kIndex, j); }
Val StripesView::firstSegment(Ix j) const {
  return word(StripeTable::kFirstSegment, j);
}
Val StripesView::lastSegment(Ix j) const {
  return word(StripeTable::kEndSegment, j) - 1.0;
}
Val StripesView::slot(Ix stripe) const {
  return word(StripeTable{rankTokens, ranks}.slot(), stripe);
}
Val StripesView::offset(Ix stripe) const {
  return word(StripeTable{rankTokens, ranks}.offset(), stripe);
}
Val StripesView::continues(Ix stripe) const { return offset(stripe) > 0.0; }
Val StripesView::passes(Ix stripe) const {
  return word(StripeTable{rankTokens, ranks}.starts(), stripe) == 0.0;
}
Val StripesView::position(Val t, Val segmentBegin) const {
  Val j = t / double(rows());
  Val first = segmentBegin == j * double(rows());
  return t - segmentBegin + select(first, offset(index(j)), 0.0);
}
Val StripesView::global(Val t) const {
  return index(t / double(rows())) * double(rows()) + t % double(rows());
}

//===----------------------------------------------------------------------===//
// KernelBuilder
//===----------------------------------------------------------------------===//

KernelBuilder::KernelBuilder(Operation *function, const KernelSpec &spec,
                             const KernelPlan &plan, int64_t vectorBytes,
                             int64_t vectorRegisters)
    : builder(function->getLoc(), function->getContext()),
      entry(&cast<func::FuncOp>(function).getBody().front()),
      inputs(spec.inputs.size()), outputs(spec.outputs.size()),
      hasWorkspace(plan.workspaceBytes > 0), vectorBytes(vectorBytes),
      vectorRegisters(vectorRegisters) {
  builder.setInsertionPointToEnd(entry);
  taskIndex = cast(Val(builder, entry->getArguments().back()), index());
}

Val KernelBuilder::task() { return taskIndex; }

View KernelBuilder::input(unsigned number) {
  assert(number < inputs);
  return View(builder, entry->getArgument(number));
}

View KernelBuilder::output(unsigned number) {
  assert(number < outputs);
  return View(builder, entry->getArgument(inputs + number));
}

View KernelBuilder::workspace(Ix byteOffset, ArrayRef<int64_t> sizes,
                              Type element) {
  assert(hasWorkspace && "the plan asked for no workspace");
  auto type = MemRefType::get(sizes, element);
  return View(builder, memref::ViewOp::create(
                           builder, type, entry->getArgument(inputs + outputs),
                           toValue(builder, byteOffset).get(), ValueRange()));
}

View KernelBuilder::scratch(ArrayRef<int64_t> sizes, Type element) {
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(entry); // Once, even if used in a loop.
  return View(builder,
              memref::AllocaOp::create(builder, MemRefType::get(sizes, element),
                                       builder.getI64IntegerAttr(64)));
}

View KernelBuilder::packedLeft() {
  if (!left.get())
    left = scratch({4096}, f32());
  return left;
}

View KernelBuilder::packedRight() {
  if (!right.get())
    right = scratch({65536}, f32());
  return right;
}

SeqView KernelBuilder::seq(View table, const KernelSpec &spec) {
  return SeqView(table, spec.integer("tokens"), spec.integer("max_docs"));
}

Val KernelBuilder::f32(double number) {
  return Val(builder, arith::ConstantOp::create(
                          builder, builder.getFloatAttr(f32(), number)));
}
Val KernelBuilder::f64(double number) {
  return Val(builder, arith::ConstantOp::create(
                          builder, builder.getFloatAttr(f64(), number)));
}
Val KernelBuilder::i32(int64_t number) {
  return Val(builder, arith::ConstantOp::create(
                          builder, builder.getIntegerAttr(i32(), number)));
}
Val KernelBuilder::i64(int64_t number) {
  return Val(builder, arith::ConstantOp::create(
                          builder, builder.getIntegerAttr(i64(), number)));
}
Val KernelBuilder::index(int64_t number) {
  return constantIndex(builder, number);
}
Val KernelBuilder::toIndex(Ix ix) { return toValue(builder, ix); }

Val KernelBuilder::zero(Type element, int64_t lanes) {
  Type type = VectorType::get({lanes}, element);
  return Val(builder,
             arith::ConstantOp::create(builder, builder.getZeroAttr(type)));
}

Lanes KernelBuilder::lanesAt(Ix i) {
  return Lanes{toValue(builder, i), width(), Val()};
}

Val KernelBuilder::vector(ArrayRef<double> numbers, Type element) {
  auto type = VectorType::get({static_cast<int64_t>(numbers.size())}, element);
  auto attrs = llvm::map_to_vector(numbers, [&](double number) -> Attribute {
    if (isa<FloatType>(element))
      return builder.getFloatAttr(element, number);
    return builder.getIntegerAttr(element, static_cast<int64_t>(number));
  });
  return Val(builder, arith::ConstantOp::create(
                          builder, DenseElementsAttr::get(type, attrs)));
}

void KernelBuilder::forLoop(Ix lo, Ix hi, int64_t step,
                            function_ref<void(Val)> body) {
  forLoop(lo, hi, step, {}, [&](Val i, ArrayRef<Val>) -> SmallVector<Val> {
    body(i);
    return {};
  });
}

SmallVector<Val> KernelBuilder::forLoop(
    Ix lo, Ix hi, int64_t step, ArrayRef<Val> inits,
    function_ref<SmallVector<Val>(Val, ArrayRef<Val>)> body) {
  Value low = toValue(builder, lo).get(), high = toValue(builder, hi).get();
  auto loop = scf::ForOp::create(
      builder, low, high, constantIndex(builder, step).get(), raw(inits));
  {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(loop.getBody());
    SmallVector<Val> carried;
    for (Value value : loop.getRegionIterArgs())
      carried.push_back(Val(builder, value));
    SmallVector<Val> next = body(Val(builder, loop.getInductionVar()), carried);
    assert(next.size() == inits.size() && "carried values got lost");
    if (!inits.empty())
      scf::YieldOp::create(builder, raw(next));
  }
  SmallVector<Val> results;
  for (Value value : loop.getResults())
    results.push_back(Val(builder, value));
  return results;
}

void KernelBuilder::forLoopDown(Ix lo, Ix hi, int64_t step,
                                function_ref<void(Val)> body) {
  Val low = toValue(builder, lo), high = toValue(builder, hi);
  forLoop(low, high, step,
          [&](Val i) { body(high - double(step) - (i - low)); });
}

void KernelBuilder::ifThen(Val condition, function_ref<void()> body) {
  auto op = scf::IfOp::create(builder, condition.get(), false);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(op.thenBlock());
  body();
}

void KernelBuilder::ifThenElse(Val condition, function_ref<void()> thenBody,
                               function_ref<void()> elseBody) {
  auto op = scf::IfOp::create(builder, condition.get(), true);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(op.thenBlock());
  thenBody();
  builder.setInsertionPointToStart(op.elseBlock());
  elseBody();
}

SmallVector<Val>
KernelBuilder::ifValues(Val condition,
                        function_ref<SmallVector<Val>()> thenBody,
                        function_ref<SmallVector<Val>()> elseBody) {
  // The result types are only known once a branch is built, so build the first
  // in a detached block and move it.
  OpBuilder::InsertionGuard guard(builder);
  auto here = builder.saveInsertionPoint();
  Block thenBlock, elseBlock;
  builder.setInsertionPointToEnd(&thenBlock);
  SmallVector<Val> thenValues = thenBody();
  scf::YieldOp::create(builder, raw(thenValues));
  builder.setInsertionPointToEnd(&elseBlock);
  SmallVector<Val> elseValues = elseBody();
  scf::YieldOp::create(builder, raw(elseValues));
  builder.restoreInsertionPoint(here);
  auto types =
      llvm::map_to_vector(thenValues, [](Val value) { return value.type(); });
  auto op = scf::IfOp::create(builder, TypeRange(types), condition.get(),
                              /*addThenBlock=*/true, /*addElseBlock=*/true);
  op.thenBlock()->getOperations().splice(op.thenBlock()->end(),
                                         thenBlock.getOperations());
  op.elseBlock()->getOperations().splice(op.elseBlock()->end(),
                                         elseBlock.getOperations());
  SmallVector<Val> results;
  for (Value value : op.getResults())
    results.push_back(Val(builder, value));
  return results;
}

void KernelBuilder::forLanes(Ix n, function_ref<void(Lanes)> body) {
  forLanes(n, {}, [&](Lanes lanes, ArrayRef<Val>) -> SmallVector<Val> {
    body(lanes);
    return {};
  });
}

Val KernelBuilder::firstLanes(int64_t count, int64_t lanes) {
  SmallVector<bool> real(lanes, false);
  std::fill_n(real.begin(), count, true);
  auto type = VectorType::get({lanes}, builder.getI1Type());
  return Val(builder,
             arith::ConstantOp::create(
                 builder, DenseElementsAttr::get(type, ArrayRef<bool>(real))));
}

Val KernelBuilder::tailMask(Val i, Ix n, int64_t lanes) {
  // Lane j is real when i + j < n; 32 bits so that a lane is a vector element.
  Val left = cast(toValue(builder, n) - i, i32());
  return iota(builder, i32(), lanes) < broadcast(left, lanes);
}

int64_t KernelBuilder::lanesFor(Ix n) const {
  if (n.value || n.constant >= width() || n.constant == 0)
    return width();
  return static_cast<int64_t>(llvm::PowerOf2Ceil(n.constant));
}

SmallVector<Val> KernelBuilder::forLanes(
    Ix n, ArrayRef<Val> inits,
    function_ref<SmallVector<Val>(Lanes, ArrayRef<Val>)> body) {
  int64_t lanes = lanesFor(n);
  SmallVector<Val> carried(inits);
  Val full, zeroIndex = index(0);
  if (n.value)
    full = n.value - n.value % double(lanes);
  else
    full = index(n.constant / lanes * lanes);
  if (n.value || n.constant >= 2 * lanes)
    carried = forLoop(zeroIndex, full, lanes, carried,
                      [&](Val i, ArrayRef<Val> values) {
                        return body(Lanes{i, lanes, Val()}, values);
                      });
  else if (n.constant >= lanes)
    carried = body(Lanes{zeroIndex, lanes, Val()}, carried);
  if (n.value) {
    // A loop of at most one round, so that nothing carried needs an `if`.
    carried =
        forLoop(full, n, lanes, carried, [&](Val i, ArrayRef<Val> values) {
          return body(Lanes{i, lanes, tailMask(i, n, lanes)}, values);
        });
  } else if (n.constant % lanes) {
    Val mask = firstLanes(n.constant % lanes, lanes);
    carried = body(Lanes{full, lanes, mask}, carried);
  }
  return carried;
}

Val KernelBuilder::sum(Ix n, function_ref<Val(Lanes)> body, Type element) {
  return sums(
      n, 1, [&](Lanes lanes) { return SmallVector<Val>{body(lanes)}; },
      element)[0];
}

SmallVector<Val> KernelBuilder::sums(Ix n, unsigned count,
                                     function_ref<SmallVector<Val>(Lanes)> body,
                                     Type element) {
  if (!element)
    element = f32();
  int64_t lanes = lanesFor(n);
  // Several partial vectors hide the latency of the addition.
  int64_t ways = n.value ? 4 : std::clamp<int64_t>(n.constant / lanes, 1, 4);
  Val zeros = zero(element, lanes);
  SmallVector<Val> partials(count * ways, zeros);
  auto add = [&](Lanes at, MutableArrayRef<Val> into) {
    SmallVector<Val> terms = body(at);
    assert(terms.size() == count);
    for (auto [target, term] : llvm::zip(into, terms))
      target = target + (at.mask ? select(at.mask, term, zeros) : term);
  };
  int64_t block = ways * lanes;
  Val blocked;
  if (n.value)
    blocked = n.value - n.value % double(block);
  else
    blocked = index(n.constant / block * block);
  partials =
      forLoop(0, blocked, block, partials, [&](Val i, ArrayRef<Val> values) {
        SmallVector<Val> next(values);
        for (int64_t way = 0; way < ways; ++way)
          add(Lanes{i + double(way * lanes), lanes, Val()},
              MutableArrayRef(next).slice(way * count, count));
        return next;
      });
  // The rest goes to the first partial.
  SmallVector<Val> first(ArrayRef(partials).take_front(count));
  if (n.value) {
    first = forLoop(blocked, n, lanes, first, [&](Val i, ArrayRef<Val> values) {
      SmallVector<Val> next(values);
      add(Lanes{i, lanes, tailMask(i, n, lanes)}, next);
      return next;
    });
  } else {
    int64_t done = n.constant / block * block;
    int64_t whole = n.constant / lanes * lanes;
    for (; done < whole; done += lanes)
      add(Lanes{index(done), lanes, Val()}, first);
    if (done < n.constant)
      add(Lanes{index(done), lanes, firstLanes(n.constant - done, lanes)},
          first);
  }
  SmallVector<Val> results;
  for (unsigned i = 0; i < count; ++i) {
    Val total = first[i];
    for (int64_t way = 1; way < ways; ++way)
      total = total + partials[way * count + i];
    results.push_back(reduceAdd(total));
  }
  return results;
}

Val KernelBuilder::maximum(Ix n, function_ref<Val(Lanes)> body) {
  int64_t lanes = lanesFor(n);
  Val lowest =
      zero(f32(), lanes).like(-std::numeric_limits<double>::infinity());
  Val best = forLanes(n, {lowest}, [&](Lanes at, ArrayRef<Val> values) {
    Val term = body(at);
    if (at.mask)
      term = select(at.mask, term, lowest);
    return SmallVector<Val>{max(values[0], term)};
  })[0];
  return reduceMax(best);
}

std::pair<Val, Val> KernelBuilder::taskRange(int64_t items, int64_t tasks) {
  int64_t each = llvm::divideCeil(items, tasks);
  Val lo = task() * double(each);
  Val hi = each * tasks == items ? lo + double(each)
                                 : min(lo + double(each), index(items));
  return {lo, hi};
}

} // namespace qwen35::codegen::cpu
