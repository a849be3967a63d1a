#ifndef QWEN35_PASSES_SHARDING_PASSES_TD
#define QWEN35_PASSES_SHARDING_PASSES_TD

include "mlir/Pass/PassBase.td"

def ShardSeed : Pass<"qwen35-shard-seed", "mlir::ModuleOp"> {
  let summary = "Say how parameters, batch and layer boundaries are split over a mesh";
  let description = [{
    Sets `qdist.mesh`, gives every argument of the step's functions but gradient sums a `qdist.sharding` (DESIGN.md 4.2) and
    puts a `qdist.shard_constraint` on every value that a norm of whole rows reads: between blocks tokens are split over dpr,
    dps, cp and tp. The batch of S1 is that of all data ranks: rows one after the other, of which each data rank has its own;
    documents do not cross from one row to the next. A mesh that the model cannot be split over is refused with the rule that
    it breaks and the nearest legal meshes.

    With cp > 1 the batch lies over its ranks in stripes (runtime/schema/stripe_table.h): "in order" then means that of the
    ranks, and an input `stripes` behind the document table says how. A row that cannot be cut so (a stripe shorter than what a
    convolution reads back) is held whole by every rank of cp and its tokens are
    gathered where they are read in order; a remark says so.

    `zero` says what is split over (dps, cp), or of experts over what ep leaves of (dps, cp, tp), along a dimension that nothing
    else splits: with 1 the moments; with 2 the gradient sums too, scattered where they
    are made; with 3 (FSDP) the weights and working copies too. Those get a constraint that makes them whole before the first
    op of a layer that reads one, in forward and once more in backward; a layer's routed experts have one of their own.
    Gradients are scattered before norm and update.

    - **Stage.** S1 to S2, before --qwen35-shard-propagate.
    - **Leaves alone.** Ops; a constraint changes no value.
    - **Numerics.** None.
  }];
  let options = [
    Option<"mesh", "mesh", "std::string", /*default=*/"\"\"", "pp=1,dpr=1,dps=2,cp=1,tp=2,ep=4; absent axes are 1">,
    Option<"zero", "zero", "int64_t", /*default=*/"0", "0: every data rank has all; 1: moments are split; 2: gradient sums too; 3: weights too (FSDP)">];
  let dependentDialects = ["::qwen35::qdist::QDistDialect"];
}

def ShardPropagate : Pass<"qwen35-shard-propagate", "mlir::ModuleOp"> {
  let summary = "Derive the sharding of every value from the seeds";
  let description = [{
    In program order, by the factors of each op: a parameter decides the factors that it has, then the widest split of an
    operand; an axis goes to one factor; a result that lacks a split factor is partial over its axes, so a weight's gradient is
    partial over exactly the axes that split its tokens. Every op gets `qdist.operands` and `qdist.results`, gradient sums and
    results of functions their `qdist.sharding`. Gradient sums stay partial between microbatches; what a function that ends a
    step returns is reduced.

    - **Stage.** S1 to S2, after --qwen35-shard-seed.
    - **Leaves alone.** Ops and types. Two seeds that meet in one op and disagree are an error that names both.
    - **Numerics.** None.
  }];
  let dependentDialects = ["::qwen35::qdist::QDistDialect"];
}

#endif
