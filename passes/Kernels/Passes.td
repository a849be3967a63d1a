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

    - **Stage.** S4 to S5, after remat, which sees the delta rule as one op.
    - **Leaves alone.** Everything else. A delta rule whose values have another element type than its queries is an
      error: the chunked form rounds the output to the type of the queries.
    - **Numerics.** Equal in exact arithmetic (KERNELS.md 1 and 2); 1e-12 relative in f64.
  }];
  let dependentDialects = ["::qwen35::qkern::QKernDialect"];
}

#endif
