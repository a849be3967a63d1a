#ifndef QWEN35_PASSES_PARTITION_PASSES_TD
#define QWEN35_PASSES_PARTITION_PASSES_TD

include "mlir/Pass/PassBase.td"

def Partition : Pass<"qwen35-partition", "mlir::ModuleOp"> {
  let summary = "The program of one rank: local shapes, collectives where a use asks for another split";
  let description = [{
    Every value gets the shape of one rank. Where an op asks for an operand split otherwise than its maker left it, the cheapest
    collective stands between: reduce_scatter before all_reduce, all_to_all before all_gather, all_slice for nothing. A value
    that several ops ask for alike is moved once. Row numbers of split tables become local (`qdist.local_ids`), the head split
    by vocabulary becomes statistics and their reductions, squares of the global norm are added up so that copies count once.

    Where ranks of cp hold stripes of rows, ops that read tokens in order become those of a rank's stripes, with what passes
    between the ranks: maps of the delta rule's states, tails of convolutions, keys and values (rationale 0011).

    With `regather` backward does not read what forward gathered but gathers again: one more collective per block, and a rank
    keeps its own tokens of it only.

    - **Stage.** S2 to S3.
    - **Leaves alone.** Order and arithmetic of ops; `qdist.sharding` of arguments and results, which says what a rank holds.
    - **Numerics.** Sums over ranks are added in the order of coordinates, after those of a rank; nothing else changes.
  }];
  let options = [Option<"regather", "regather", "bool", /*default=*/"false",
      "Gather again in backward what forward has gathered">];
  let dependentDialects = ["::qwen35::qdist::QDistDialect"];
}

def CommSimplify : Pass<"qwen35-comm-simplify", "mlir::func::FuncOp"> {
  let summary = "Fewer and cheaper collectives that mean the same";
  let description = [{
    `reduce(a) + reduce(b)` becomes `reduce(a + b)`, also across a chain of sums; an all_reduce whose only reader slices becomes
    a reduce_scatter; a slice of what was just gathered is the value itself.

    - **Stage.** S3, after --qwen35-partition; canonicalization removes what is left over.
    - **Leaves alone.** Collectives whose values have other readers.
    - **Numerics.** Sums of partial results are added in another order.
  }];
  let dependentDialects = ["::qwen35::qdist::QDistDialect"];
}

def Bucket : Pass<"qwen35-bucket", "mlir::func::FuncOp"> {
  let summary = "Pack small collectives that are alike into one";
  let description = [{
    Collectives of one kind over the same axes, alike in everything but their inputs, become one with several inputs if all
    inputs are there before the first result is read: gradients of norms and vectors above all, and a layer's small weights. A
    bucket moves at most `bytes` (the larger side of each); what is that large by itself stays alone, since several inputs are
    copied together to be sent. Reductions stand where the last of their inputs is made, gathers where the last of them was: what
    adds a reduced gradient to its sum waits for its bucket.

    - **Stage.** S3, after --qwen35-comm-simplify and the removal of equal ops.
    - **Leaves alone.** Ops between; with `bytes` 0, everything.
    - **Numerics.** None.
  }];
  let options = [Option<"bytes", "bytes", "int64_t", /*default=*/"33554432", "What a bucket moves at most">];
  let dependentDialects = ["::qwen35::qdist::QDistDialect"];
}

#endif
