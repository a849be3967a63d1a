// attention and attention_bwd: causal inside documents, grouped query heads;
// cp_attention and cp_attention_bwd: of a rank's stripes to gathered keys, by the
// portable kernels on every GPU.
//
// Blocks restart at documents: a grid of n rows per block has room for one broken
// block per document. Operands are read in accesses of 16 bytes where the strides
// are multiples of 16 bytes; views then start at such multiples too, as slices of
// the frontend do.

#include "codegen/cuda/Families.h"
#include "codegen/cuda/Kernel.h"
#include "codegen/cuda/Stripes.h"
#include "runtime/schema/seq_table.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace qwen35::codegen::cuda {
namespace {

struct Dims {
  int64_t tokens, queryHeads, keyHeads, size, maxDocs, elementBytes;
  double scale;
  int64_t ranks = 0; ///< That share the row; 0: it is whole.
  StripeTable stripes() const { return {tokens, ranks}; }
  int64_t group() const { return queryHeads / keyHeads; }
  /// Blocks of `rows` tokens that any packing fits into.
  int64_t blocks(int64_t rows) const { return tokens / rows + maxDocs; }
};

/// Checks q, k, v at `first` and the table at `table`, with that of stripes
/// behind it if striped.
FailureOr<Dims> checkOperands(const KernelSpec &spec, unsigned first,
                              unsigned table, bool striped,
                              EmitError emitError) {
  MemRefType q = spec.inputs[first], k = spec.inputs[first + 1];
  if (failed(requireAttrs(spec, {"scale", "tokens", "max_docs"}, emitError)) ||
      failed(requireType(spec, q, "q", {kAny, kAny, kAny}, floatTypes(spec),
                         emitError)))
    return failure();
  int64_t ranks = 0;
  if (striped) {
    FailureOr<int64_t> found = requireStripes(spec, spec.inputs[table + 1],
                                              q.getDimSize(0), emitError);
    if (failed(found))
      return failure();
    ranks = *found;
  }
  if (failed(requireType(spec, k, "k",
                         {q.getDimSize(0) * std::max<int64_t>(ranks, 1), kAny,
                          q.getDimSize(2)},
                         q.getElementType(), emitError)) ||
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
  if (q.getDimSize(2) % 16 != 0) {
    emitError() << spec.op << ": heads of " << q.getDimSize(2)
                << " elements, expected a multiple of 16";
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
  return Dims{q.getDimSize(0),      q.getDimSize(1),
              k.getDimSize(1),      q.getDimSize(2),
              seq.maxDocs,          bytesOf(q.getElementType()),
              spec.number("scale"), ranks};
}

/// Dynamic shared memory that a block may have.
int64_t sharedLimit(const GpuTarget &target) {
  if (target.sm >= 120)
    return 99 << 10;
  return target.sm >= 90 ? 227 << 10 : 163 << 10;
}

struct Tile {
  int64_t rows, keys;
};

/// The largest tile whose `rowTiles` of rows and `keyTiles` of keys fit.
Tile chooseTile(const Dims &dims, const GpuTarget &target, int64_t rowTiles,
                int64_t keyTiles, int64_t &sharedBytes) {
  for (Tile tile : {Tile{64, 64}, {64, 32}, {32, 32}, {32, 16}, {16, 16}}) {
    int64_t rowBytes = dims.size * dims.elementBytes + 16;
    sharedBytes = (tile.rows * rowTiles + tile.keys * keyTiles) * rowBytes;
    if (sharedBytes <= sharedLimit(target))
      return tile;
  }
  return {0, 0};
}

struct NamedOperand {
  llvm::StringRef name;
  MemRefType type;
};

/// Whether rows of all operands are 16-byte aligned.
bool aligned(const Dims &dims, llvm::ArrayRef<NamedOperand> operands) {
  return llvm::all_of(operands, [&](const NamedOperand &operand) {
    llvm::SmallVector<int64_t> strides = stridesOf(operand.type);
    return strides[0] * dims.elementBytes % 16 == 0 &&
           strides[1] * dims.elementBytes % 16 == 0;
  });
}

/// Whether attention_hopper.cuh has kernels for this.
bool forHopper(const Dims &dims, const GpuTarget &target,
               llvm::ArrayRef<NamedOperand> operands) {
  return target.hopper && dims.ranks == 0 && dims.size == 256 &&
         dims.elementBytes == 2 && aligned(dims, operands);
}

/// The constants that all kernels share, strides of `operands` included.
void setConstants(DeviceStage &stage, const Dims &dims,
                  llvm::ArrayRef<NamedOperand> operands) {
  stage.constant("tokens", dims.tokens)
      .constant("heads", dims.queryHeads)
      .constant("group", dims.group())
      .constant("size", dims.size)
      .constant("scale", dims.scale);
  for (const NamedOperand &operand : operands) {
    llvm::SmallVector<int64_t> strides = stridesOf(operand.type);
    stage.constant((operand.name + "Token").str(), strides[0]);
    stage.constant((operand.name + "Head").str(), strides[1]);
  }
  stage.constant("vectors", aligned(dims, operands));
  if (dims.ranks)
    setStripes(stage, dims.stripes());
}

// Of attention_hopper.cuh.
constexpr int64_t kMapBytes = 128, kForwardMaps = 3, kBackwardMaps = 4;
constexpr int64_t kRowBytes = 512, kBarrierBytes = 128;
constexpr int kHopperThreads = 384;

DeviceStage hopperStage(llvm::StringRef function, int64_t blocks,
                        int64_t sharedBytes) {
  DeviceStage stage;
  stage.header = "q35/attention_hopper.cuh";
  stage.function = function.str();
  stage.threads = kHopperThreads;
  stage.blocks = blocks;
  stage.sharedBytes = sharedBytes;
  return stage;
}

LogicalResult refuseSize(const KernelSpec &spec, const Dims &dims,
                         EmitError emitError) {
  emitError() << spec.op << ": heads of " << dims.size
              << " elements do not fit into shared memory";
  return failure();
}

class Attention : public KernelFamily {
public:
  explicit Attention(bool striped) : striped(striped) {}
  StringRef op() const override {
    return striped ? "cp_attention" : "attention";
  }

  FailureOr<KernelPlan> plan(const KernelSpec &spec, const GpuTarget &target,
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
    NamedOperand operands[] = {{"q", spec.inputs[0]},
                               {"k", spec.inputs[1]},
                               {"v", spec.inputs[2]},
                               {"o", spec.outputs[0]}};
    int64_t lseToken = stridesOf(spec.outputs[1])[0];
    KernelPlan plan;
    if (forHopper(*dims, target, operands)) {
      constexpr int64_t kRows = 128, kKeys = 80;
      int64_t blocks = dims->blocks(kRows);
      DeviceStage maps = hopperStage("attention_forward_maps", 1, 0);
      maps.threads = kForwardMaps * 32;
      setConstants(maps, *dims, operands);
      DeviceStage stage = hopperStage(
          "attention_forward_hopper", blocks * dims->queryHeads,
          (kRows + 4 * kKeys) * kRowBytes + kBarrierBytes);
      setConstants(stage, *dims, operands);
      stage.constant("lseToken", lseToken).constant("blocks", blocks);
      plan.stages = {maps, stage};
      plan.workspaceBytes = kForwardMaps * kMapBytes;
      return plan;
    }
    DeviceStage stage;
    Tile tile = chooseTile(*dims, target, 1, 2, stage.sharedBytes);
    if (tile.rows == 0)
      return refuseSize(spec, *dims, emitError);
    stage.header = "q35/attention.cuh";
    stage.function = (op() + "_forward").str();
    stage.blocks = dims->blocks(tile.rows) * dims->queryHeads;
    stage.threads = tile.rows * 2;
    setConstants(stage, *dims, operands);
    stage.constant("lseToken", lseToken)
        .constant("blocks", dims->blocks(tile.rows))
        .constant("rows", tile.rows)
        .constant("keys", tile.keys);
    plan.stages = {stage};
    return plan;
  }

private:
  bool striped;
};

/// Stages: what gradients read per query row; dk and dv; dq.
class AttentionBwd : public KernelFamily {
public:
  explicit AttentionBwd(bool striped) : striped(striped) {}
  StringRef op() const override {
    return striped ? "cp_attention_bwd" : "attention_bwd";
  }

  FailureOr<KernelPlan> plan(const KernelSpec &spec, const GpuTarget &target,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, striped ? 8 : 7, 3, emitError)))
      return failure();
    FailureOr<Dims> dims = checkOperands(spec, 1, 6, striped, emitError);
    if (failed(dims) ||
        failed(requireSameShape(spec, spec.inputs[1], "q", spec.inputs[0], "do",
                                emitError)) ||
        failed(requireSameShape(spec, spec.inputs[1], "q", spec.inputs[4], "o",
                                emitError)) ||
        failed(requireType(
            spec, spec.inputs[5], "lse", {dims->tokens, dims->queryHeads},
            Float32Type::get(spec.inputs[0].getContext()), emitError)) ||
        failed(requireSameShape(spec, spec.inputs[1], "q", spec.outputs[0],
                                "dq", emitError)) ||
        failed(checkKeyGradient(spec, 1, "dk", emitError)) ||
        failed(checkKeyGradient(spec, 2, "dv", emitError)))
      return failure();
    NamedOperand operands[] = {
        {"do", spec.inputs[0]},  {"q", spec.inputs[1]},
        {"k", spec.inputs[2]},   {"v", spec.inputs[3]},
        {"o", spec.inputs[4]},   {"dq", spec.outputs[0]},
        {"dk", spec.outputs[1]}, {"dv", spec.outputs[2]}};

    DeviceStage delta;
    constexpr int kWarps = 8;
    std::string prefix = striped ? "cp_attention" : "attention";
    delta.header = "q35/attention.cuh";
    delta.function = prefix + "_delta";
    delta.threads = kWarps * 32;
    delta.blocks =
        llvm::divideCeil(dims->tokens * dims->queryHeads, int64_t(kWarps));
    setConstants(delta, *dims, operands);
    delta.constant("lseToken", stridesOf(spec.inputs[5])[0]);

    KernelPlan plan;
    plan.workspaceBytes = dims->tokens * dims->queryHeads * 2 * 4;
    if (forHopper(*dims, target, operands)) {
      delta.header = "q35/attention_hopper.cuh";
      delta.function = "attention_delta_hopper";
      delta.blocks += 1; // makes the tensor maps
      constexpr int64_t kTile = 64 * kRowBytes;
      DeviceStage keys = hopperStage(
          "attention_key_gradients_hopper", dims->blocks(64) * dims->keyHeads,
          6 * kTile + 2 * 8192 + 2 * 512 + kBarrierBytes);
      setConstants(keys, *dims, operands);
      int64_t blocks = dims->blocks(128);
      DeviceStage queries = hopperStage("attention_query_gradient_hopper",
                                        blocks * dims->queryHeads,
                                        7 * kTile + kBarrierBytes);
      setConstants(queries, *dims, operands);
      queries.constant("blocks", blocks);
      plan.stages = {delta, keys, queries};
      plan.workspaceBytes += kBackwardMaps * kMapBytes;
      return plan;
    }

    DeviceStage keys;
    Tile tile = chooseTile(*dims, target, 2, 2, keys.sharedBytes);
    if (tile.rows == 0)
      return refuseSize(spec, *dims, emitError);
    // Rows of the gradients of keys are keys: the first tile size is theirs.
    keys.header = "q35/attention.cuh";
    keys.function = prefix + "_key_gradients";
    keys.sharedBytes += tile.keys * 2 * 4;
    keys.threads = tile.rows * 4;
    int64_t blocks = dims->blocks(tile.rows);
    setConstants(keys, *dims, operands);
    if (striped) {
      // Keys that the rank has no queries among.
      StripeTable stripes = dims->stripes();
      int64_t each = llvm::divideCeil(stripes.rows(), tile.rows) + 1;
      keys.constant("ownBlocks", blocks).constant("stripeBlocks", each);
      blocks += (stripes.stripes() - StripeTable::kLocal) * each;
    }
    keys.blocks = blocks * dims->keyHeads;
    keys.constant("rows", tile.keys).constant("keys", tile.rows);

    DeviceStage queries;
    tile = chooseTile(*dims, target, 2, 2, queries.sharedBytes);
    queries.header = "q35/attention.cuh";
    queries.function = prefix + "_query_gradient";
    queries.threads = tile.rows * 2;
    queries.blocks = dims->blocks(tile.rows) * dims->queryHeads;
    setConstants(queries, *dims, operands);
    queries.constant("blocks", dims->blocks(tile.rows))
        .constant("rows", tile.rows)
        .constant("keys", tile.keys);

    plan.stages = {delta, keys, queries};
    return plan;
  }

private:
  /// Summands of ranks are f32.
  LogicalResult checkKeyGradient(const KernelSpec &spec, unsigned output,
                                 StringRef name, EmitError emitError) const {
    MemRefType k = spec.inputs[2];
    Type element =
        striped ? Float32Type::get(k.getContext()) : k.getElementType();
    return requireType(spec, spec.outputs[output], name, k.getShape(), element,
                       emitError);
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

} // namespace qwen35::codegen::cuda
