#include "codegen/cuda/Cost.h"

#include "runtime/schema/seq_table.h"

#include <algorithm>

using namespace mlir;

namespace qwen35::codegen::cuda {
namespace {

double sizeOf(MemRefType type, int64_t dimension) {
  return double(type.getDimSize(dimension));
}

/// One stage of one spec.
class Cost {
public:
  Cost(const KernelSpec &spec, const KernelPlan &plan, unsigned index)
      : spec(spec), plan(plan), index(index),
        stage(std::get<DeviceStage>(plan.stages[index])), op(spec.op),
        name(stage.function) {
    name.consume_back("_hopper");
    name.consume_front("cp_");
    op.consume_front("cp_");
  }

  StageCost get() const {
    StageCost cost{stage.flops, index == 0 ? all() : workspace()};
    if (stage.bytes > 0)
      cost.bytes = stage.bytes;
    else if (op == "attention" || op == "attention_bwd")
      cost = attention();
    else if (op.starts_with("gdn_") && !op.starts_with("gdn_gates"))
      cost = deltaRule();
    else if (llvm::StringRef(spec.op).starts_with("moe_experts"))
      cost = experts();
    else if (llvm::StringRef(spec.op).starts_with("embed"))
      cost.bytes = embedding();
    else if (llvm::StringRef(spec.op).starts_with("lm_") &&
             spec.op != "lm_stats_loss")
      cost.bytes = loss();
    // None would read as not known, and extents of arguments stand in then: too
    // many for stages that only prepare others.
    cost.bytes = std::max(cost.bytes, 1.0);
    return cost;
  }

private:
  double in(unsigned number) const { return bytesOf(spec.inputs[number]); }
  double out(unsigned number) const { return bytesOf(spec.outputs[number]); }
  double workspace() const { return double(plan.workspaceBytes); }
  double all() const {
    double bytes = 0;
    for (MemRefType type : spec.inputs)
      bytes += bytesOf(type);
    for (MemRefType type : spec.outputs)
      bytes += bytesOf(type);
    return bytes;
  }

  StageCost attention() const {
    bool backward = op == "attention_bwd";
    MemRefType q = spec.inputs[backward ? 1 : 0];
    double tokens = sizeOf(q, 0), heads = sizeOf(q, 1);
    // Of one product over the causal half. A rank's stripes of a longer row see
    // half of it.
    double keys = sizeOf(spec.inputs[backward ? 2 : 1], 0);
    double product = heads * tokens * (keys + 1) * sizeOf(q, 2);
    if (name.ends_with("_maps"))
      return {};
    if (!backward)
      return {2 * product, all()};
    double delta = tokens * heads * 2 * 4; // what stage 0 leaves per query
    double operands = in(0) + in(1) + in(2) + in(3);
    if (name == "attention_delta")
      return {0, in(0) + in(4) + in(5) + delta};
    if (name == "attention_key_gradients") // scores, dP, dV, dK
      return {4 * product, operands + delta + out(1) + out(2)};
    if (name == "attention_query_gradient") // scores, dP, dQ
      return {3 * product, operands + delta + out(0)};
    return {5 * product, operands + delta + out(0) + out(1) + out(2)};
  }

  /// Per token and head, with chunks of c tokens. The backward products are
  /// 6 dk dv + c (6 dk + 4 dv) over its stages.
  StageCost deltaRule() const {
    bool scans = name == "gdn_scan";
    MemRefType k = spec.inputs[scans ? 0 : 1];
    double tokens = sizeOf(k, 0), keyHeads = sizeOf(k, 1), dk = sizeOf(k, 2);
    double c = SeqTable::kChunk;
    if (name == "gdn_prep") {
      double heads = sizeOf(spec.inputs[2], 1);
      return {2 * tokens * (keyHeads * c * dk + heads * c * c / 6), all()};
    }
    // [.., Hv, .., dv]: v, states, do, v.
    MemRefType v = spec.inputs[scans                     ? 1
                               : name == "gdn_out"       ? 3
                               : name == "gdn_local_bwd" ? 4
                                                         : 2];
    double perHead = 2 * tokens * sizeOf(v, 1),
           dv = double(v.getShape().back());
    if (scans)
      return {perHead * (2 * dk * dv + c * dv), all()};
    if (name == "gdn_out")
      return {perHead * (dk * dv + c * (dk + dv)), all()};
    if (name.ends_with("_scores"))
      return {2 * tokens * keyHeads * c * dk,
              in(0) + in(1) + in(4) + workspace()};
    if (name == "gdn_scan_bwd")
      return {perHead * (3 * dk * dv + 2 * c * dv), all() + workspace()};
    if (name == "gdn_local_bwd")
      return {perHead * (3 * dk * dv + c * (6 * dk + 2 * dv)), all()};
    return {stage.flops, index == 0 ? all() : workspace()};
  }

  StageCost experts() const {
    unsigned x = spec.op == "moe_experts" ? 0 : 1; // weights, idx, two matrices
    MemRefType idx = spec.inputs[x + 2];
    double element = bytesOf(spec.inputs[x].getElementType());
    double slots = double(elementCount(idx));
    double hidden = slots * sizeOf(spec.inputs[x], 1) * element;
    double width = slots * sizeOf(spec.inputs[x + 4], 2) * element;
    double gateUp = in(x + 3), down = in(x + 4);
    double sums = spec.flag("accumulate") ? 2 : 1;
    double bytes = 3 * slots * 4; // the plan of rows
    if (name == "moe_up")
      bytes = in(x) + gateUp + width * (x ? 3 : 1);
    else if (name == "moe_down")
      bytes = width + down + hidden;
    else if (name == "moe_down_bwd")
      bytes = in(0) + down + width * 5;
    else if (name == "moe_up_bwd")
      bytes = 2 * width + gateUp + hidden;
    else if (name == "moe_gate_up_gradient")
      bytes = in(1) + 2 * width + out(2) * sums;
    else if (name == "moe_down_gradient")
      bytes = in(0) + width + out(3) * sums;
    else if (name == "moe_combine")
      bytes = hidden + out(0);
    return {stage.flops, bytes};
  }

  double embedding() const {
    if (name == "embed") {
      double row = bytesOf(spec.inputs[1].getElementType());
      return in(0) + double(elementCount(spec.outputs[0])) * row + out(0);
    }
    if (name == "embed_zero")
      return out(0);
    if (name == "embed_copy")
      return 0; // The sum is in its place: see the lowering to kernels.
    double rows =
        std::min(sizeOf(spec.inputs[0], 0), sizeOf(spec.outputs[0], 0));
    return in(0) + in(1) + 2 * rows * sizeOf(spec.outputs[0], 1) * 4;
  }

  double loss() const {
    double tokens =
        double(name == "lm_loss_total" ? spec.inputs[0].getDimSize(0)
                                       : stage.blocks); // a block per row
    double row =
        sizeOf(spec.inputs[1], 0) * bytesOf(spec.inputs[0].getElementType());
    if (name == "lm_loss_total")
      return tokens * 4;
    return tokens * (row * (name.ends_with("_gradient") ? 2 : 1) + 8);
  }

  static double bytesOf(MemRefType type) {
    return double(elementCount(type)) * bytesOf(type.getElementType());
  }
  static double bytesOf(Type element) { return double(cuda::bytesOf(element)); }

  const KernelSpec &spec;
  const KernelPlan &plan;
  unsigned index;
  const DeviceStage &stage;
  llvm::StringRef op, name; ///< Without cp_; of the op and of the function.
};

} // namespace

StageCost costOf(const GemmStage &product) {
  double m = product.m, n = product.n, k = product.k;
  return {2 * m * n * k,
          m * k * bytesOf(product.typeA) + k * n * bytesOf(product.typeB) +
              m * n * bytesOf(product.typeD) * (product.accumulate ? 2 : 1)};
}

StageCost costOf(const KernelSpec &spec, const KernelPlan &plan,
                 unsigned stage) {
  if (const auto *gemm = std::get_if<GemmStage>(&plan.stages[stage]))
    return costOf(*gemm);
  return Cost(spec, plan, stage).get();
}

} // namespace qwen35::codegen::cuda
