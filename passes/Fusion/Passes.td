#ifndef QWEN35_PASSES_FUSION_PASSES_TD
#define QWEN35_PASSES_FUSION_PASSES_TD

include "mlir/Pass/PassBase.td"

def Remat : Pass<"qwen35-remat", "mlir::func::FuncOp"> {
  let summary = "Recompute forward values in backward instead of keeping them";
  let description = [{
    Backward ops that read a value which the policy does not keep get a copy of the ops that make it, placed before the
    first of them and shared by the rest. Copies carry `qwen35.recompute`, which keeps CSE from merging them with the
    originals, and with them what is later lowered from them: the chunk states of the delta rule.

    - `none`: everything that backward reads is kept.
    - `selective`: kept are the residual stream, products with weights, attention and delta-rule outputs, statistics and
      routing; norms, rotary embedding, convolution, gates and activations are recomputed: no product is done twice.
    - `full`: kept is what one layer hands to another; the rest of a layer is recomputed when its backward begins.

    - **Stage.** S1 to S4, before fusion, which then also groups the copies.
    - **Leaves alone.** Functions without backward.
    - **Numerics.** Bit-identical: the copies compute the same values.
  }];
  let options = [Option<"policy", "policy", "std::string", /*default=*/"\"none\"", "none, selective or full">];
}

#endif
