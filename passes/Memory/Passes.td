#ifndef QWEN35_PASSES_MEMORY_PASSES_TD
#define QWEN35_PASSES_MEMORY_PASSES_TD

include "mlir/Pass/PassBase.td"

def PlanMemory : Pass<"qwen35-plan-memory", "mlir::ModuleOp"> {
  let summary = "Give every tensor its place in an arena";
  let description = [{
    Before: functions of `qkern.dispatch` and `qkern.view` on tensors. After: one `qplan` module: arenas `state` (weights,
    their working copies, moments, gradient sums), `io` (batch, scalars, sums, metrics) and `act` (everything else), their buffers, kernels
    deduplicated by what they depend on, and one program per function, plus `begin`, which zeroes the sums.

    A `qkern.collective` becomes a `qplan.collective`, numbered in the one order in which all ranks run them, and a
    `qdist.rank_var` a buffer of `io` that the runtime fills with the coordinate of its rank.

    Two buffers share bytes only when one's last use comes before the other's first write. Buffers are placed largest
    first, each in the smallest gap that holds it; `qplan.report` on the module has the peak by category, the lower bound
    (the most bytes ever live) and the largest buffers at the peak.

    - **Stage.** S5 to S6.
    - **Leaves alone.** The order of launches.
    - **Numerics.** None: a test replays plans on poisoned memory.
  }];
  let dependentDialects = ["::qwen35::qplan::QPlanDialect"];
}

#endif
