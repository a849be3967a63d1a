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

def Fuse : Pass<"qwen35-fuse", "mlir::func::FuncOp"> {
  let summary = "Group ops that share rows into one kernel";
  let description = [{
    Before: `s = add(h, d)`, `y, r = rms_norm(s, w)`: five passes over a row.
    After: one `qkern.group` of the two: `h` and `d` read, `s` and `y` written.

    Before: `dx, dw = rms_norm_bwd(dy, x, w, r)`, `g = add(res, dx)`: six passes.
    After: one group: `dy`, `x` and `res` read, `g` written.

    Before: `y, r = rms_norm(x, w)`, `z = rope(y, table)`: four passes over the heads.
    After: one group: `x` read, `z` written; `y` never reaches memory.

    Remarks of the category `fusion` tell what was grouped and why not.

    - **Stage.** S1 to S4, after remat, whose copies group like originals.
    - **Leaves alone.** Rows over `max-row`; a sum read ahead of the norm; a norm gradient whose residual comes later;
      normalized heads with other readers.
    - **Numerics.** Every op reads what it read before, as it was rounded. On the CPU a product and a sum may be contracted
      in one kernel and not in another, so results agree to a rounding; the backward group adds the residual before the
      norm's gradient is rounded.
  }];
  let options = [Option<"maxRow", "max-row", "int64_t", /*default=*/"8192", "Longest row, in elements, of a group">];
  let dependentDialects = ["::qwen35::qkern::QKernDialect"];
}

def Schedule : Pass<"qwen35-schedule", "mlir::func::FuncOp"> {
  let summary = "Start collectives early and wait for them late";
  let description = [{
    Before: `g = all_gather(w)`, `y = linear(x, g)`: the product waits. After: the gather is `async` and stands ahead of what the
    device computes meanwhile, `qdist.wait` ahead of the product.

    A collective starts as soon as its inputs are made; one of arguments only (a layer's weights) as early as the cost model says
    that it takes, with half as much again. Products of the next ops that need nothing of it go between start and reader. It is
    awaited by its first reader; what adds a reduced gradient to its sum lets it fly. No more than `in-flight` bytes (both sides
    of collectives) are asked for early or fly at once: past that the oldest is awaited. A collective that nothing can be computed
    beside stays as it is. The program is that of all ranks, so starts have one order.

    A remark of the category `schedule` tells what the cost model predicts to be exposed before and after.

    - **Stage.** S4, last.
    - **Leaves alone.** What ops compute; functions without a mesh.
    - **Numerics.** None.
  }];
  let options = [Option<"inFlight", "in-flight", "int64_t", /*default=*/"1073741824", "Bytes that fly at most">];
  let dependentDialects = ["::qwen35::qdist::QDistDialect"];
}

#endif
