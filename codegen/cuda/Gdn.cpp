// gdn_prep, gdn_scan, gdn_out, gdn_scan_bwd, gdn_local_bwd: the gated delta
// rule in chunks of 64 tokens. KERNELS.md 1 to 5; the kernels are
// q35/gdn_*.cuh.
//
// Token-major operands may be views whose strides and starts are multiples of
// 16 bytes, as slices of the frontend are. Heads are multiples of 16 elements.

#include "codegen/cuda/Families.h"
#include "codegen/cuda/Kernel.h"
#include "codegen/cuda/Stripes.h"
#include "runtime/schema/seq_table.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

using namespace mlir;

namespace qwen35::codegen::cuda {
namespace {

constexpr int64_t kRows = SeqTable::kChunk;

struct DeltaSizes {
  SeqTable table{0, 0};
  int64_t keyHeads = 0, valueHeads = 0, keyDim = 0, valueDim = 0;
  Type element;
  int64_t bytes = 0; ///< Of an element.

  int64_t chunks() const { return table.chunks(); }
  int64_t group() const { return valueHeads / keyHeads; }
  /// Of a q35::Tile.
  int64_t tileBytes(int64_t rows, int64_t columns) const {
    int64_t row = columns * bytes;
    int64_t pitch = row > 64 ? 128 : row > 32 ? 64 : 32;
    return llvm::divideCeil(row, pitch) * rows * pitch;
  }
  int64_t keyTile() const { return tileBytes(kRows, keyDim); }
  int64_t valueTile() const { return tileBytes(kRows, valueDim); }
  int64_t squareTile() const { return tileBytes(kRows, kRows); }
};

/// An operand and what it must be. Token-major operands [T,H,d] and [T,H] get
/// stride constants, <prefix>Token and <prefix>Head; the others must be dense.
struct Expected {
  MemRefType type;
  llvm::StringRef name;
  llvm::SmallVector<int64_t> shape;
  Type element;
  llvm::StringRef prefix = "";
};

bool isDense(MemRefType type) {
  int64_t extent = 1;
  llvm::SmallVector<int64_t> strides = stridesOf(type);
  for (int64_t d = type.getRank() - 1; d >= 0; --d) {
    if (type.getDimSize(d) != 1 && strides[d] != extent)
      return false;
    extent *= type.getDimSize(d);
  }
  return true;
}

LogicalResult check(const KernelSpec &spec, const Expected &operand,
                    int64_t vector, EmitError emitError) {
  if (failed(requireType(spec, operand.type, operand.name, operand.shape,
                         operand.element, emitError)))
    return failure();
  if (operand.prefix.empty() && !isDense(operand.type)) {
    emitError() << spec.op << ": " << operand.name << " must be dense, got "
                << operand.type;
    return failure();
  }
  llvm::SmallVector<int64_t> strides = stridesOf(operand.type);
  // A single head has no stride to speak of.
  if (!operand.prefix.empty() && operand.shape.size() == 3 &&
      (strides[0] % vector != 0 ||
       (operand.shape[1] > 1 && strides[1] % vector != 0))) {
    emitError() << spec.op << ": rows of " << operand.name
                << " must be multiples of " << vector << " elements apart, got "
                << operand.type;
    return failure();
  }
  return success();
}

/// Sizes from `keys` [T,Hk,dk] and `values` [.., Hv, .., dv] (the second
/// dimension and the last); `scale` or `eps` is `attr`, if any.
FailureOr<DeltaSizes> readSizes(const KernelSpec &spec, MemRefType keys,
                                MemRefType values, MemRefType seq,
                                llvm::StringRef attr, EmitError emitError) {
  if (failed(requireAttrs(spec, {"tokens", "max_docs"}, emitError)) ||
      (!attr.empty() && failed(requireAttrs(spec, {attr}, emitError))))
    return failure();
  DeltaSizes sizes;
  sizes.table = {spec.integer("tokens"), spec.integer("max_docs")};
  if (failed(requireType(spec, keys, "k", {sizes.table.tokens, kAny, kAny},
                         floatTypes(spec), emitError)))
    return failure();
  if (values.getRank() < 2)
    return emitError() << spec.op << ": expected values of rank 2 or more, got "
                       << values;
  sizes.element = keys.getElementType();
  sizes.bytes = bytesOf(sizes.element);
  sizes.keyHeads = keys.getDimSize(1);
  sizes.keyDim = keys.getDimSize(2);
  sizes.valueHeads = values.getDimSize(1);
  sizes.valueDim = values.getRank() > 2 ? values.getShape().back() : 16;
  if (sizes.valueHeads % sizes.keyHeads != 0)
    return emitError() << spec.op << ": " << sizes.keyHeads
                       << " key heads do not divide " << sizes.valueHeads
                       << " value heads";
  for (int64_t size : {sizes.keyDim, sizes.valueDim})
    if (size % 16 != 0 || size > 128)
      return emitError() << spec.op << ": heads of " << size
                         << " elements, expected a multiple of 16 up to 128";
  Type i32 = IntegerType::get(seq.getContext(), 32);
  if (failed(requireType(spec, seq, "seq", {sizes.table.words()}, i32,
                         emitError)))
    return failure();
  return sizes;
}

/// Checks the operands and sets the constants that all kernels share.
LogicalResult describe(const KernelSpec &spec, const DeltaSizes &sizes,
                       llvm::ArrayRef<Expected> operands, DeviceStage &stage,
                       EmitError emitError) {
  stage.constant("keyHeads", sizes.keyHeads)
      .constant("valueHeads", sizes.valueHeads)
      .constant("keyDim", sizes.keyDim)
      .constant("valueDim", sizes.valueDim)
      .constant("cuSeqlens", sizes.table.cuSeqlens())
      .constant("docFirstChunk", sizes.table.docFirstChunk())
      .constant("chunkFirst", sizes.table.chunkFirst())
      .constant("chunkRows", sizes.table.chunkRows());
  for (const Expected &operand : operands) {
    if (failed(check(spec, operand, 16 / sizes.bytes, emitError)))
      return failure();
    if (operand.prefix.empty())
      continue;
    llvm::SmallVector<int64_t> strides = stridesOf(operand.type);
    stage.constant((operand.prefix + "Token").str(), strides[0]);
    if (strides.size() > 2)
      stage.constant((operand.prefix + "Head").str(), strides[1]);
  }
  return success();
}

int64_t sharedLimit(const GpuTarget &target) {
  if (target.sm >= 120)
    return 99 << 10;
  return target.sm >= 90 ? 227 << 10 : 163 << 10;
}

LogicalResult requireShared(const KernelSpec &spec, const DeviceStage &stage,
                            const GpuTarget &target, EmitError emitError) {
  if (stage.sharedBytes <= sharedLimit(target))
    return success();
  emitError() << spec.op << ": heads of these sizes need " << stage.sharedBytes
              << " bytes of shared memory, " << target.name << " has "
              << sharedLimit(target);
  return failure();
}

void setShared(DeviceStage &stage, int64_t bytes) {
  stage.sharedBytes = bytes;
  stage.constant("sharedBytes", bytes);
}

struct GdnPrep : KernelFamily {
  StringRef op() const override { return "gdn_prep"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec, const GpuTarget &target,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 5, 6, emitError)))
      return failure();
    const auto &in = spec.inputs, &out = spec.outputs;
    auto sizes = readSizes(spec, in[1], in[2], in[4], "eps", emitError);
    if (failed(sizes))
      return failure();
    const DeltaSizes &s = *sizes;
    Type f32 = Float32Type::get(in[0].getContext());
    llvm::SmallVector<int64_t> heads = {s.table.tokens, s.keyHeads, s.keyDim};
    llvm::SmallVector<int64_t> norms = {s.table.tokens, s.keyHeads};
    llvm::SmallVector<int64_t> gates = {s.table.tokens, s.valueHeads};
    DeviceStage stage;
    stage.header = "q35/gdn_prep.cuh";
    stage.function = "gdn_prep";
    if (failed(describe(
            spec, s,
            {{in[0], "q", heads, s.element, "query"},
             {in[1], "k", heads, s.element, "key"},
             {in[2], "g", gates, f32, "decay"},
             {in[3], "beta", gates, f32, "gate"},
             {out[0], "qn", heads, s.element, "queryOut"},
             {out[1], "kn", heads, s.element, "keyOut"},
             {out[2], "qr", norms, f32},
             {out[3], "kr", norms, f32},
             {out[4], "gamma", {s.chunks(), s.valueHeads, kRows}, f32},
             {out[5],
              "tinv",
              {s.chunks(), s.valueHeads, kRows, kRows},
              s.element}},
            stage, emitError)))
      return failure();
    stage.constant("eps", spec.number("eps"));
    stage.blocks = s.chunks() * s.keyHeads;
    stage.threads = 128;
    stage.minBlocks = s.bytes == 2 ? 4 : 1;
    int64_t matrix = kRows * (kRows + 4) * 4;
    setShared(stage, std::max(s.keyTile(), matrix) + 2 * matrix +
                         2 * s.group() * kRows * 4);
    if (failed(requireShared(spec, stage, target, emitError)))
      return failure();
    KernelPlan plan;
    plan.stages = {stage};
    return plan;
  }
};

/// What a scan keeps in shared memory, and how many blocks go over a head.
struct ScanShape {
  int64_t keyTiles, squareTiles; ///< Of a chunk.
  bool writes = true;            ///< States and rows of every chunk.
  int64_t mapColumns = 0;        ///< Beside those of the values.
  int64_t entries = 0;           ///< Stripes; 0: as many as there are documents.
};

/// What all scans share: how many columns a block takes, how many chunks ahead
/// it loads. Blocks of narrow slices read K and tinv more often from L2; wide
/// ones fit the heads of large models into one wave.
void planScan(DeviceStage &stage, const DeltaSizes &sizes,
              const GpuTarget &target, const ScanShape &shape) {
  auto fits = [&](int64_t columns) {
    return sizes.valueDim % columns == 0 && shape.mapColumns % columns == 0;
  };
  int64_t all = sizes.valueDim + shape.mapColumns;
  int64_t columns = fits(32) ? 32 : 16;
  if (fits(64) && sizes.bytes == 2 &&
      sizes.valueHeads * all / columns > target.multiprocessors)
    columns = 64;
  int64_t valueTile = sizes.tileBytes(kRows, columns);
  int64_t factors = 4 * kRows * 4;
  int64_t stageBytes = shape.keyTiles * sizes.keyTile() +
                       shape.squareTiles * sizes.squareTile() + valueTile +
                       factors;
  int64_t staged =
      shape.writes ? 2 * (sizes.tileBytes(sizes.keyDim, columns) + valueTile)
                   : 0;
  int64_t stages = std::clamp<int64_t>(
      (sharedLimit(target) - staged) / stageBytes, 1, 3);
  // Documents are a loop in a block beyond this many: blocks without one are
  // not free.
  int64_t slots = std::min<int64_t>(sizes.table.maxDocs, 8);
  stage.constant("columns", columns)
      .constant("slices", sizes.valueDim / columns)
      .constant("stages", stages);
  if (shape.mapColumns)
    stage.constant("mapSlices", shape.mapColumns / columns);
  if (!shape.entries)
    stage.constant("slots", slots);
  stage.blocks = (shape.entries ? shape.entries : slots) * sizes.valueHeads *
                 all / columns;
  stage.threads = columns / 16 * 64;
  setShared(stage, stages * stageBytes + staged);
}

/// Checks the stripe table, operand `number`, and sets its constants.
LogicalResult describeStripes(const KernelSpec &spec, const DeltaSizes &sizes,
                              unsigned number, DeviceStage &stage,
                              EmitError emitError) {
  FailureOr<int64_t> ranks = requireStripes(spec, spec.inputs[number],
                                            sizes.table.tokens, emitError);
  if (failed(ranks))
    return failure();
  setStripes(stage, {sizes.table.tokens, *ranks});
  return success();
}

/// The operands kn, v, beta, gamma, tinv of a scan.
llvm::SmallVector<Expected> scanOperands(const KernelSpec &spec,
                                         const DeltaSizes &s) {
  const auto &in = spec.inputs;
  Type f32 = Float32Type::get(in[0].getContext());
  return {{in[0],
           "kn",
           {s.table.tokens, s.keyHeads, s.keyDim},
           s.element,
           "key"},
          {in[1],
           "v",
           {s.table.tokens, s.valueHeads, s.valueDim},
           s.element,
           "value"},
          {in[2], "beta", {s.table.tokens, s.valueHeads}, f32, "gate"},
          {in[3], "gamma", {s.chunks(), s.valueHeads, kRows}, f32},
          {in[4], "tinv", {s.chunks(), s.valueHeads, kRows, kRows}, s.element}};
}

/// One state for each of a rank's stripes.
Expected stripeStates(MemRefType type, llvm::StringRef name,
                      const DeltaSizes &s, int64_t columns) {
  return {type,
          name,
          {StripeTable::kLocal, s.valueHeads, s.keyDim, columns},
          Float32Type::get(type.getContext())};
}

struct GdnScan : KernelFamily {
  explicit GdnScan(bool striped) : striped(striped) {}
  StringRef op() const override { return striped ? "cp_gdn_scan" : "gdn_scan"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec, const GpuTarget &target,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, striped ? 8 : 6, 2, emitError)))
      return failure();
    const auto &in = spec.inputs, &out = spec.outputs;
    auto sizes =
        readSizes(spec, in[0], in[1], in[striped ? 6 : 5], "", emitError);
    if (failed(sizes))
      return failure();
    const DeltaSizes &s = *sizes;
    DeviceStage stage;
    stage.header = "q35/gdn_scan.cuh";
    stage.function = op().str();
    llvm::SmallVector<Expected> operands = scanOperands(spec, s);
    operands.push_back({out[0],
                        "states",
                        {s.chunks(), s.valueHeads, s.keyDim, s.valueDim},
                        s.element});
    operands.push_back({out[1],
                        "vnew",
                        {s.chunks(), s.valueHeads, kRows, s.valueDim},
                        s.element});
    if (striped)
      operands.push_back(stripeStates(in[5], "before", s, s.valueDim));
    if (failed(describe(spec, s, operands, stage, emitError)) ||
        (striped && failed(describeStripes(spec, s, 7, stage, emitError))))
      return failure();
    planScan(stage, s, target, {/*keyTiles=*/1, /*squareTiles=*/1});
    if (failed(requireShared(spec, stage, target, emitError)))
      return failure();
    KernelPlan plan;
    plan.stages = {stage};
    return plan;
  }

  bool striped;
};

/// A block per stripe, head and slice of the columns of M or of b.
struct CpGdnAffine : KernelFamily {
  StringRef op() const override { return "cp_gdn_affine"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec, const GpuTarget &target,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 7, 2, emitError)))
      return failure();
    const auto &in = spec.inputs, &out = spec.outputs;
    auto sizes = readSizes(spec, in[0], in[1], in[5], "", emitError);
    if (failed(sizes))
      return failure();
    const DeltaSizes &s = *sizes;
    DeviceStage stage;
    stage.header = "q35/gdn_scan.cuh";
    stage.function = op().str();
    llvm::SmallVector<Expected> operands = scanOperands(spec, s);
    operands.push_back(stripeStates(out[0], "m", s, s.keyDim));
    operands.push_back(stripeStates(out[1], "b", s, s.valueDim));
    if (failed(describe(spec, s, operands, stage, emitError)) ||
        failed(describeStripes(spec, s, 6, stage, emitError)))
      return failure();
    planScan(stage, s, target,
             {/*keyTiles=*/1, /*squareTiles=*/1, /*writes=*/false,
              /*mapColumns=*/s.keyDim, /*entries=*/StripeTable::kLocal});
    if (failed(requireShared(spec, stage, target, emitError)))
      return failure();
    double columns = double(s.keyDim + s.valueDim);
    stage.flops = 2.0 * s.table.tokens * s.valueHeads * columns *
                  (2 * s.keyDim + kRows);
    KernelPlan plan;
    plan.stages = {stage};
    return plan;
  }
};

struct GdnOut : KernelFamily {
  StringRef op() const override { return "gdn_out"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec, const GpuTarget &target,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 6, 1, emitError)))
      return failure();
    const auto &in = spec.inputs, &out = spec.outputs;
    auto sizes = readSizes(spec, in[1], in[3], in[5], "scale", emitError);
    if (failed(sizes))
      return failure();
    const DeltaSizes &s = *sizes;
    Type f32 = Float32Type::get(in[0].getContext());
    llvm::SmallVector<int64_t> heads = {s.table.tokens, s.keyHeads, s.keyDim};
    DeviceStage stage;
    stage.header = "q35/gdn_out.cuh";
    stage.function = "gdn_out";
    if (failed(describe(
            spec, s,
            {{in[0], "qn", heads, s.element, "query"},
             {in[1], "kn", heads, s.element, "key"},
             {in[2], "gamma", {s.chunks(), s.valueHeads, kRows}, f32},
             {in[3], "states", {s.chunks(), s.valueHeads, s.keyDim, s.valueDim},
              s.element},
             {in[4], "vnew", {s.chunks(), s.valueHeads, kRows, s.valueDim},
              s.element},
             {out[0], "o", {s.table.tokens, s.valueHeads, s.valueDim},
              s.element, "out"}},
            stage, emitError)))
      return failure();
    stage.constant("scale", spec.number("scale"));
    stage.blocks = s.chunks() * s.valueHeads;
    stage.threads = 128;
    stage.minBlocks = s.bytes == 2 ? 2 : 1;
    setShared(stage, std::max(s.keyTile(), s.valueTile()) + s.keyTile() +
                         s.tileBytes(s.keyDim, s.valueDim) + s.valueTile() +
                         kRows * 4);
    if (failed(requireShared(spec, stage, target, emitError)))
      return failure();
    KernelPlan plan;
    plan.stages = {stage};
    return plan;
  }
};

/// gdn_scan_bwd, cp_gdn_scan_bwd, and cp_gdn_state_grad, which keeps only the
/// last state of a stripe's first segment. Stage 0: P of gdn_out to the
/// workspace, which no state enters. Stage 1: the recurrence.
struct GdnScanBwd : KernelFamily {
  enum Kind { kDocuments, kStripes, kStateGradient };
  explicit GdnScanBwd(Kind kind) : kind(kind) {}
  StringRef op() const override {
    return kind == kDocuments ? "gdn_scan_bwd"
           : kind == kStripes ? "cp_gdn_scan_bwd"
                              : "cp_gdn_state_grad";
  }

  FailureOr<KernelPlan> plan(const KernelSpec &spec, const GpuTarget &target,
                             EmitError emitError) const override {
    bool striped = kind != kDocuments, writes = kind != kStateGradient;
    unsigned table = kind == kStripes ? 7 : 6;
    if (failed(requireCounts(spec, table + (striped ? 2 : 1), writes ? 2 : 1,
                             emitError)))
      return failure();
    const auto &in = spec.inputs, &out = spec.outputs;
    auto sizes = readSizes(spec, in[1], in[2], in[table], "scale", emitError);
    if (failed(sizes))
      return failure();
    const DeltaSizes &s = *sizes;
    Type f32 = Float32Type::get(in[0].getContext());
    llvm::SmallVector<int64_t> heads = {s.table.tokens, s.keyHeads, s.keyDim};
    llvm::SmallVector<Expected> operands = {
        {in[0], "qn", heads, s.element, "query"},
        {in[1], "kn", heads, s.element, "key"},
        {in[2],
         "do",
         {s.table.tokens, s.valueHeads, s.valueDim},
         s.element,
         "value"},
        {in[3], "beta", {s.table.tokens, s.valueHeads}, f32, "gate"},
        {in[4], "gamma", {s.chunks(), s.valueHeads, kRows}, f32},
        {in[5], "tinv", {s.chunks(), s.valueHeads, kRows, kRows}, s.element}};
    if (writes) {
      operands.push_back({out[0],
                          "dstates",
                          {s.chunks(), s.valueHeads, s.keyDim, s.valueDim},
                          s.element});
      operands.push_back({out[1],
                          "z",
                          {s.chunks(), s.valueHeads, kRows, s.valueDim},
                          s.element});
    } else {
      operands.push_back(stripeStates(out[0], "c", s, s.valueDim));
    }
    if (kind == kStripes)
      operands.push_back(stripeStates(in[6], "after", s, s.valueDim));
    DeviceStage scores;
    scores.header = "q35/gdn_out.cuh";
    scores.function = kind == kDocuments ? "gdn_scores"
                      : kind == kStripes ? "cp_gdn_scan_scores"
                                         : "cp_gdn_state_scores";
    if (failed(describe(spec, s, operands, scores, emitError)) ||
        (striped &&
         failed(describeStripes(spec, s, table + 1, scores, emitError))))
      return failure();
    scores.constant("scale", spec.number("scale"));
    DeviceStage scan = scores;
    scan.header = "q35/gdn_scan.cuh";
    scan.function = op().str();
    planScan(scan, s, target,
             {/*keyTiles=*/2, /*squareTiles=*/2, writes, /*mapColumns=*/0,
              /*entries=*/writes ? 0 : StripeTable::kLocal});
    scores.blocks = s.chunks() * s.keyHeads;
    scores.threads = 128;
    setShared(scores,
              2 * s.keyTile() + s.squareTile() + s.group() * kRows * 4);
    if (!writes)
      scan.flops = 2.0 * s.table.tokens * s.valueHeads * s.valueDim *
                   (3 * s.keyDim + 2 * kRows);
    for (const DeviceStage &stage : {scores, scan})
      if (failed(requireShared(spec, stage, target, emitError)))
        return failure();
    KernelPlan plan;
    plan.stages = {scores, scan};
    plan.workspaceBytes = s.chunks() * s.valueHeads * kRows * kRows * s.bytes;
    return plan;
  }

  Kind kind;
};

struct GdnLocalBwd : KernelFamily {
  StringRef op() const override { return "gdn_local_bwd"; }
  bool writesViews(unsigned number) const override { return number < 3; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec, const GpuTarget &target,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 13, 5, emitError)))
      return failure();
    const auto &in = spec.inputs, &out = spec.outputs;
    auto sizes = readSizes(spec, in[1], in[4], in[12], "scale", emitError);
    if (failed(sizes))
      return failure();
    const DeltaSizes &s = *sizes;
    Type f32 = Float32Type::get(in[0].getContext()), element = s.element;
    llvm::SmallVector<int64_t> heads = {s.table.tokens, s.keyHeads, s.keyDim};
    llvm::SmallVector<int64_t> norms = {s.table.tokens, s.keyHeads};
    llvm::SmallVector<int64_t> values = {s.table.tokens, s.valueHeads,
                                         s.valueDim};
    llvm::SmallVector<int64_t> gates = {s.table.tokens, s.valueHeads};
    llvm::SmallVector<int64_t> states = {s.chunks(), s.valueHeads, s.keyDim,
                                         s.valueDim};
    llvm::SmallVector<int64_t> tiles = {s.chunks(), s.valueHeads, kRows,
                                        s.valueDim};
    DeviceStage stage;
    stage.header = "q35/gdn_local.cuh";
    stage.function = "gdn_local_bwd";
    if (failed(describe(
            spec, s,
            {{in[0], "qn", heads, element, "query"},
             {in[1], "kn", heads, element, "key"},
             {in[2], "qr", norms, f32},
             {in[3], "kr", norms, f32},
             {in[4], "v", values, element, "value"},
             {in[5], "do", values, element, "out"},
             {in[6], "beta", gates, f32, "gate"},
             {in[7], "gamma", {s.chunks(), s.valueHeads, kRows}, f32},
             {in[8], "states", states, element},
             {in[9], "dstates", states, element},
             {in[10], "vnew", tiles, element},
             {in[11], "z", tiles, element},
             {out[0], "dq", heads, element, "dq"},
             {out[1], "dk", heads, element, "dk"},
             {out[2], "dv", values, element, "dv"},
             {out[3], "dg", gates, f32, "dg"},
             {out[4], "dbeta", gates, f32, "dbeta"}},
            stage, emitError)))
      return failure();
    stage.constant("scale", spec.number("scale"));
    stage.blocks = std::min<int64_t>(s.chunks() * s.keyHeads,
                                     target.multiprocessors);
    stage.threads = 256;
    // bf16 on large GPUs: the tiles of the next head have places of their own.
    // Otherwise operands are read where they are: slow.
    int64_t vectors = 4 * (2 * 4 * kRows + 17 * kRows + 8);
    int64_t least = 2 * s.keyTile() + 2 * s.squareTile() + vectors;
    int64_t ahead = 2 * s.keyTile() + 4 * s.valueTile() +
                    2 * s.tileBytes(s.keyDim, s.valueDim);
    bool staged = s.bytes == 2 && least + ahead <= sharedLimit(target);
    stage.constant("staged", staged);
    setShared(stage, least + (staged ? ahead : 0));
    if (failed(requireShared(spec, stage, target, emitError)))
      return failure();
    KernelPlan plan;
    plan.stages = {stage};
    return plan;
  }
};

} // namespace

void registerGdnKernels() {
  registerKernel(std::make_unique<GdnPrep>());
  registerKernel(std::make_unique<GdnScan>(/*striped=*/false));
  registerKernel(std::make_unique<GdnScan>(/*striped=*/true));
  registerKernel(std::make_unique<CpGdnAffine>());
  registerKernel(std::make_unique<GdnOut>());
  for (GdnScanBwd::Kind kind : {GdnScanBwd::kDocuments, GdnScanBwd::kStripes,
                                GdnScanBwd::kStateGradient})
    registerKernel(std::make_unique<GdnScanBwd>(kind));
  registerKernel(std::make_unique<GdnLocalBwd>());
}

} // namespace qwen35::codegen::cuda
