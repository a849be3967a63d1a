#ifndef QWEN35_PASSES_KERNELS_PASSES_TD
#define QWEN35_PASSES_KERNELS_PASSES_TD

include "mlir/Pass/PassBase.td"

def LowerGdn : Pass<"qwen35-lower-gdn", "mlir::func::FuncOp"> {
  let summary = "Lower the gated delta rule to its chunked form";
  let description = [{
    Before: `o = gated_delta_rule(q, k, v, g, beta)`, a recurrence over tokens.
    After: `gdn_prep`, `gdn_scan` and `gdn_out` over chunks of 64 tokens. `gated_delta_rule_bwd` becomes `gdn_prep` and
    `gdn_scan` once more, then `gdn_scan_bwd` and `gdn_local_bwd`: the chunk states cost 16 KB per token at 32 heads and
    are not kept from the forward. Whether both directions share what they have in common is for CSE to decide, run or
    not run after this pass.

    On a rank of a context-parallel group, `cp_gated_delta_rule` and its gradient become the same with `cp_gdn_scan` and
    `cp_gdn_scan_bwd`, where states enter; `gdn_affine` becomes `gdn_prep` and `cp_gdn_affine`, `gdn_state_grad` `gdn_prep` and
    `cp_gdn_state_grad`. `gdn_prep` is written with the operands of the rule that follows, so that CSE leaves one.

    - **Stage.** S4 to S5, after remat, which sees the delta rule as one op.
    - **Leaves alone.** Everything else.
    - **Numerics.** Equal in exact arithmetic (KERNELS.md 1 and 2); 1e-12 relative in f64.
  }];
  let dependentDialects = ["::qwen35::qkern::QKernDialect"];
}

def ToKernels : Pass<"qwen35-to-kernels", "mlir::func::FuncOp"> {
  let summary = "Turn every op into a kernel launch or a view";
  let description = [{
    Before: `qwen35` and lowered `qkern` math. After: `qkern.dispatch`, one per op, of the kernel family named like the op,
    with grids and workspace that the target chose; `reshape` and `slice` become `qkern.view` where strides can say them,
    else a copy and a view; a `concat` of results that kernels can write as views is a `qkern.join`, which copies nothing.
    `!qwen35.seq` arguments become the int32 table they are in memory.

    A collective of `qdist` is a `qkern.collective`, on inputs that are dense, one per element type; over one rank it is
    nothing. An all_reduce takes over the storage of what ends there. `local_ids` is a kernel that reads the
    coordinate of the rank, and `qdist.rank_var` stays: a place that the runtime fills.

    State is overwritten where its new value is computed: `add(grad, x)` works in place, a kernel of weight gradients
    (products, embedding, head, experts) accumulates into the sum itself, and outputs take over operands that end there if
    the kernel allows it. Terms of `x` are added one by one: no gradient of a tied embedding exists beside its sum.

    Where the target has kernels on lists of tensors, AdamW of all parameters alike is one dispatch, and so are the squares of
    all gradients. Where a kernel can sum up the squares of gradients as it stores them, `norm_sq` takes that sum in place of
    the tensors.

    - **Stage.** S4 to S5.
    - **Leaves alone.** Order, and what is computed.
    - **Numerics.** A product that accumulates in place adds its k-sum to the old value once, as the separate add did; the
      head adds chunks of tokens to the old value, the embedding tokens, experts blocks of rows. Both gradients of a tied
      embedding: `(grad + head) + embedding`. The squares of gradients on a list are summed per block, not per tensor; those
      that a kernel sums up itself in f32 per thread and tile, then in f64.
  }];
  let options = [Option<"target", "target", "std::string", /*default=*/"\"cpu\"", "Whose kernels: cpu, sm_90a ...">];
  let dependentDialects = ["::qwen35::qkern::QKernDialect", "::qwen35::qdist::QDistDialect"];
}

#endif
