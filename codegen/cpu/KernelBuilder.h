#ifndef QWEN35_CODEGEN_CPU_KERNELBUILDER_H
#define QWEN35_CODEGEN_CPU_KERNELBUILDER_H

// How to write a kernel
//
// A KernelFamily has two halves. `plan` checks the spec and says how many tasks
// each stage has; `emit` writes the body of one task with the values below. The
// worked example is rms_norm (Norm.cpp), in short:
//
//   void emit(const KernelSpec &spec, unsigned, KernelBuilder &k) const {
//     View x = k.input(0), w = k.input(1), y = k.output(0);
//     View rstd = k.output(1).flat();
//     int64_t D = x.size(-1);
//     double eps = spec.number("eps"), offset = spec.number("offset");
//     auto [lo, hi] = k.taskRange(rowCount(x.type()), rowTasks(x.type(), 1));
//     k.forLoop(lo, hi, 1, [&](Val row) {
//       View xRow = x.row(row), yRow = y.row(row);   // rank 1, last dimension
//       Val squares = k.sum(D, [&](Lanes l) {
//         Val v = xRow.load({l.i}, l);               // a vector, tail masked
//         return v * v;
//       });
//       Val r = rsqrt(squares / double(D) + eps);
//       rstd.store(r, {row});
//       k.forLanes(D, [&](Lanes l) {
//         Val scale = w.load({l.i}, l) + offset;
//         yRow.store(xRow.load({l.i}, l) * r * scale, {l.i}, l);
//       });
//     });
//   }
//
// - Everything C++ decides (a `for` over constants, an `if` on the spec) is
//   unrolled into the kernel; everything on `Val` happens at run time.
// - `forLanes(n, ..)` walks 0..n in vectors of the target's width; `Lanes` says
//   where one starts and which lanes are real. Pass it to loads and stores.
//   Masked-off lanes load 0 and are not stored. `sum` ignores them as well.
// - Sums in registers over a loop: carried values of `forLoop`, or `sum`.
// - A result that needs all tasks needs a second stage: let stage 0 write
//   partials to `k.workspace(..)`, stage 1 add them in order. Sums over rows are
//   ready-made in Loops.h (ColumnSums, as rms_norm_bwd uses it), and so are
//   loops over elements (forElements).
// - Scratch of a task: `k.scratch({64, 64}, k.f32())` is stack memory (up to
//   about 1 MiB in all), allocated once per task; its contents start undefined.
//   Larger: a piece of the workspace at task() * bytes.
// - `k.seq(k.input(i), spec)` reads the document table, a StripesView the stripe
//   table.
// - Matrix products inside a kernel: `matmulTile` in Gemm.h.
// - Never let a result depend on the order of tasks or on the target's threads.
// - Look at it with `qwen35-cpu-kernel`; test it with test/unit/cpu/KernelTest.h,
//   which compiles, runs in two orders and in place, and compares.

#include "codegen/cpu/Kernel.h"
#include "codegen/kernel/Stripes.h"
#include "codegen/cpu/Val.h"

namespace qwen35::codegen::cpu {

/// An index: a run-time value or a constant.
struct Ix {
  Ix(Val value) : value(value) {}
  Ix(int64_t constant) : constant(constant) {}
  Ix(int constant) : constant(constant) {}
  Ix(unsigned constant) : constant(constant) {}
  Val value;
  int64_t constant = 0;
};

/// Consecutive elements i .. i + width - 1 of a loop, one vector.
struct Lanes {
  Val i;         ///< First element, index type.
  int64_t width; ///< Lanes of the vectors.
  Val mask;      ///< i1 per lane, or null when all are real.
};

/// Memory of static sizes and strides: an argument, scratch, or part of one.
class View {
public:
  View() = default;
  View(mlir::ImplicitLocOpBuilder &builder, mlir::Value memref);

  mlir::MemRefType type() const;
  mlir::Type element() const { return type().getElementType(); }
  int64_t rank() const { return type().getRank(); }
  /// Elements of a dimension; negative counts from the end.
  int64_t size(int64_t dimension) const;
  int64_t stride(int64_t dimension) const;
  mlir::Value get() const { return memref; }

  /// Indices address leading dimensions; missing trailing ones are 0.
  Val load(llvm::ArrayRef<Ix> at) const;
  void store(Val value, llvm::ArrayRef<Ix> at) const;
  /// Consecutive elements along the last dimension.
  Val load(llvm::ArrayRef<Ix> at, const Lanes &lanes) const;
  void store(Val vector, llvm::ArrayRef<Ix> at, const Lanes &lanes) const;
  Val loadVector(llvm::ArrayRef<Ix> at, int64_t width) const;
  /// The lanes whose mask bit is set; others load 0.
  Val loadVector(llvm::ArrayRef<Ix> at, int64_t width, Val mask) const;
  void storeVector(Val vector, llvm::ArrayRef<Ix> at, Val mask = {}) const;

  /// The part with the leading indices fixed: rank drops by their number.
  View at(llvm::ArrayRef<Ix> leading) const;
  /// The part of `sizes` elements that starts at `offsets`; same rank, strides.
  View tile(llvm::ArrayRef<Ix> offsets, llvm::ArrayRef<int64_t> sizes) const;
  /// One row of the last dimension; rows are numbered over all leading
  /// dimensions in order (also where these cannot be merged to one stride).
  View row(Ix number) const;
  /// Rank 1. Dense views only.
  View flat() const;
  /// Other sizes for the same dense elements.
  View reshape(llvm::ArrayRef<int64_t> sizes) const;
  /// Arbitrary sizes and strides from the first element on.
  View restride(llvm::ArrayRef<int64_t> sizes,
                llvm::ArrayRef<int64_t> strides) const;
  /// Brings the cache line of an element closer.
  void prefetch(llvm::ArrayRef<Ix> at, bool forWrite = false) const;

private:
  View(mlir::ImplicitLocOpBuilder &builder, mlir::Value memref, Val offset)
      : builder(&builder), memref(memref), offset(offset) {}
  View reinterpret(Val newOffset, llvm::ArrayRef<int64_t> sizes,
                   llvm::ArrayRef<int64_t> strides) const;
  Val linear(llvm::ArrayRef<Ix> at) const;
  llvm::SmallVector<mlir::Value> indices(llvm::ArrayRef<Ix> at) const;

  mlir::ImplicitLocOpBuilder *builder = nullptr;
  mlir::Value memref;
  Val offset; ///< Elements from the underlying pointer; null: 0.
};

/// The document table (runtime/schema/seq_table.h) as run-time values.
class SeqView {
public:
  SeqView(View table, int64_t tokens, int64_t maxDocs)
      : table(table), tokens(tokens), maxDocs(maxDocs) {}
  int64_t maxChunks() const;
  Val numDocs() const; ///< Padding included; all results have index type.
  Val numChunks() const;
  Val realTokens() const;
  Val docFirst(Ix doc) const; ///< First token; doc up to maxDocs.
  Val docFirstChunk(Ix doc) const;
  Val chunkFirst(Ix chunk) const;
  Val chunkRows(Ix chunk) const;
  Val chunkDoc(Ix chunk) const;
  Val docStart(Ix token) const;
  Val docEnd(Ix token) const;

private:
  Val word(int64_t base, Ix index) const;
  View table;
  int64_t tokens, maxDocs;
};

/// The stripe table (runtime/schema/stripe_table.h) of a rank as run-time
/// values of index type; `j` numbers its own stripes, `stripe` all of the row.
class StripesView {
public:
  StripesView() = default;
  StripesView(View table, int64_t rankTokens);
  int64_t count() const; ///< Stripes of the row.
  int64_t rows() const;  ///< Tokens of a stripe.
  Val index(Ix j) const;
  Val firstSegment(Ix j) const;
  Val lastSegment(Ix j) const;
  Val slot(Ix stripe) const;
  Val offset(Ix stripe) const;
  /// The first token continues a document; no document begins inside.
  Val continues(Ix stripe) const;
  Val passes(Ix stripe) const;
  /// Tokens before local token t in its document, whose segment begins at
  /// `segmentBegin`, and where t is in the whole row.
  Val position(Val t, Val segmentBegin) const;
  Val global(Val t) const;

private:
  Val word(int64_t base, Ix index) const;
  View table;
  int64_t rankTokens = 0, ranks = 0;
};

/// Builds the body of one task of one stage.
class KernelBuilder {
public:
  /// `function` has the memrefs of inputs, outputs and, if `plan` has one, the
  /// workspace, then the task as i64; the body is appended to its entry block.
  KernelBuilder(mlir::Operation *function, const KernelSpec &spec,
                const KernelPlan &plan, int64_t vectorBytes,
                int64_t vectorRegisters);

  mlir::ImplicitLocOpBuilder &b() { return builder; }
  /// f32 lanes of a vector register and how many of these there are.
  int64_t width() const { return vectorBytes / 4; }
  int64_t registers() const { return vectorRegisters; }

  mlir::Type f32() { return builder.getF32Type(); }
  mlir::Type f64() { return builder.getF64Type(); }
  mlir::Type i32() { return builder.getI32Type(); }
  mlir::Type i64() { return builder.getI64Type(); }
  mlir::Type index() { return builder.getIndexType(); }

  Val task(); ///< Index type.
  View input(unsigned number);
  View output(unsigned number);
  /// Dense view of the workspace from `byteOffset` on.
  View workspace(Ix byteOffset, llvm::ArrayRef<int64_t> sizes,
                 mlir::Type element);
  /// Stack memory of this task, aligned to 64 bytes.
  View scratch(llvm::ArrayRef<int64_t> sizes, mlir::Type element);
  /// Scratch of Gemm.h, one pair per kernel: 4096 and 65536 floats.
  View packedLeft();
  View packedRight();
  SeqView seq(View table, const KernelSpec &spec);

  /// Constants.
  Val f32(double number);
  Val f64(double number);
  Val i32(int64_t number);
  Val i64(int64_t number);
  Val index(int64_t number);
  Val toIndex(Ix index);
  Val zero(mlir::Type element, int64_t lanes);
  /// All lanes of one width, starting at i.
  Lanes lanesAt(Ix i);
  /// A constant vector.
  Val vector(llvm::ArrayRef<double> numbers, mlir::Type element);

  /// for (i = lo; i < hi; i += step). The second form carries values: body gets
  /// those of the iteration before and returns the next ones.
  void forLoop(Ix lo, Ix hi, int64_t step, llvm::function_ref<void(Val)> body);
  llvm::SmallVector<Val>
  forLoop(Ix lo, Ix hi, int64_t step, llvm::ArrayRef<Val> inits,
          llvm::function_ref<llvm::SmallVector<Val>(Val, llvm::ArrayRef<Val>)>
              body);
  /// From hi - step down to lo, for backward scans; hi - lo a multiple of step.
  void forLoopDown(Ix lo, Ix hi, int64_t step,
                   llvm::function_ref<void(Val)> body);
  void ifThen(Val condition, llvm::function_ref<void()> body);
  void ifThenElse(Val condition, llvm::function_ref<void()> thenBody,
                  llvm::function_ref<void()> elseBody);
  llvm::SmallVector<Val>
  ifValues(Val condition, llvm::function_ref<llvm::SmallVector<Val>()> thenBody,
           llvm::function_ref<llvm::SmallVector<Val>()> elseBody);

  /// 0 .. n in vectors; the last one masked if n is no multiple of the width.
  void forLanes(Ix n, llvm::function_ref<void(Lanes)> body);
  /// With carried values (any types).
  llvm::SmallVector<Val> forLanes(
      Ix n, llvm::ArrayRef<Val> inits,
      llvm::function_ref<llvm::SmallVector<Val>(Lanes, llvm::ArrayRef<Val>)>
          body);
  /// Sum over 0 .. n of the vectors body returns, as a scalar. The order is
  /// fixed: four interleaved partial vectors, then reduceAdd.
  /// `element` (f32 if null) is what body returns.
  Val sum(Ix n, llvm::function_ref<Val(Lanes)> body, mlir::Type element = {});
  /// Several sums in one pass over the data.
  llvm::SmallVector<Val>
  sums(Ix n, unsigned count,
       llvm::function_ref<llvm::SmallVector<Val>(Lanes)> body,
       mlir::Type element = {});
  /// Largest of the vectors' real lanes, -inf for n = 0.
  Val maximum(Ix n, llvm::function_ref<Val(Lanes)> body);

  /// Items lo .. hi - 1 of this task when `items` are split over `tasks` tasks
  /// in equal contiguous pieces (the last ones may be short or empty).
  std::pair<Val, Val> taskRange(int64_t items, int64_t tasks);

  /// The first `count` of `lanes` lanes; lanes j with i + j < n.
  Val firstLanes(int64_t count, int64_t lanes);
  Val tailMask(Val i, Ix n, int64_t lanes);

private:
  int64_t lanesFor(Ix n) const;

  mlir::ImplicitLocOpBuilder builder;
  mlir::Block *entry;
  Val taskIndex;
  View left, right; ///< Null until asked for.
  unsigned inputs, outputs;
  [[maybe_unused]] bool hasWorkspace;
  int64_t vectorBytes, vectorRegisters;
};

} // namespace qwen35::codegen::cpu

#endif // QWEN35_CODEGEN_CPU_KERNELBUILDER_H
