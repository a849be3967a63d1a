#ifndef QWEN35_CODEGEN_CPU_GDNCHUNK_H
#define QWEN35_CODEGEN_CPU_GDNCHUNK_H

// What the kernels of the chunked delta rule share (GdnForward.cpp,
// GdnBackward.cpp). Symbols are those of KERNELS.md 1 and 2; c = 64.

#include "codegen/cpu/Gemm.h"
#include "codegen/cpu/KernelBuilder.h"

#include <utility>

namespace qwen35::codegen::cpu {

/// Sizes of the delta rule, from the types of one kernel.
struct DeltaSizes {
  int64_t tokens = 0, maxDocs = 0, chunks = 0; ///< chunks: those of the table
  int64_t keyHeads = 0, valueHeads = 0, keyDim = 0, valueDim = 0;

  /// Value heads of a key head.
  int64_t group() const { return valueHeads / keyHeads; }
  /// Columns of the state that one scan task carries: they do not interact, so
  /// few heads still give many tasks.
  int64_t slice() const { return valueDim % 64 == 0 ? 64 : valueDim; }
  int64_t slices() const { return valueDim / slice(); }
};

/// An operand and the shape it must have; f32.
struct Expected {
  mlir::MemRefType type;
  llvm::StringRef name;
  llvm::SmallVector<int64_t> shape;
};

/// Reads the sizes from `keys` [T,Hk,dk] and `values` [.., Hv, .., dv] (the
/// second dimension and the last), then checks attributes, divisibility, the
/// table and all operands that `expected` lists for these sizes.
llvm::FailureOr<DeltaSizes> checkDelta(
    const KernelSpec &spec, mlir::MemRefType keys, mlir::MemRefType values,
    mlir::MemRefType seq, llvm::ArrayRef<llvm::StringRef> attrs,
    llvm::function_ref<llvm::SmallVector<Expected>(const DeltaSizes &)>
        expected,
    EmitError emitError);

/// One chunk while a kernel is built: `rows` <= 64 tokens from `first` on.
class DeltaChunk {
public:
  static constexpr int64_t kRows = 64;

  DeltaChunk(KernelBuilder &k, const SeqView &seq, Val chunk);

  Val chunk, first, rows;

  /// Columns from `column` on of the rows of a [T,H,d] view, into the first
  /// rows of `to` [64 or more, n]; its rows up to 64 become 0.
  void loadRows(View from, Val head, View to, Ix column = 0) const;
  /// The rows of `from` [64,n] to a [T,H,n] view.
  void storeRows(View from, View to, Val head) const;
  /// body(row) for the rows of the chunk.
  void forRows(llvm::function_ref<void(Val)> body) const;

private:
  KernelBuilder &k;
};

/// Factors of the rows of one chunk and value head: [64] each. They are 0 for
/// rows past the last, which removes those rows from every formula.
struct RowFactors {
  View beta, eta, rho, gamma;
  Val whole; ///< e, the decay of the whole chunk
};
RowFactors loadRowFactors(KernelBuilder &k, const DeltaChunk &chunk, Val head,
                          View beta, View gamma);

/// Scratch for RowFactors, allocated where it is used in a loop.
View vectorScratch(KernelBuilder &k);

/// to_ij = factor * x_ij * exp(gamma_i - gamma_j) for j <= i, or for j < i when
/// `strict`, else 0. [64,64] views; `to` may be `x`.
void applyDecay(KernelBuilder &k, View x, View gamma, double factor,
                bool strict, View to);

/// body(row, lanes) over a [64, n] tile.
void forTile(KernelBuilder &k, View tile,
             llvm::function_ref<void(Val, Lanes)> body);
/// tile = 0 for any rank-2 view.
void clearTile(KernelBuilder &k, View tile);

} // namespace qwen35::codegen::cpu

#endif // QWEN35_CODEGEN_CPU_GDNCHUNK_H
