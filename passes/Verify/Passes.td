#ifndef QWEN35_PASSES_VERIFY_PASSES_TD
#define QWEN35_PASSES_VERIFY_PASSES_TD

include "mlir/Pass/PassBase.td"

class StageVerifier<string stage, string promise> : Pass<"qwen35-verify-" # stage, "mlir::ModuleOp"> {
  let summary = "Check what stage " # stage # " promises";
  let description = promise # [{

    - **Stage.** The end of the stage it is named after; changes nothing.
    - **Leaves alone.** Everything.
    - **Numerics.** None.
  }];
}

def VerifyS0 : StageVerifier<"s0", [{
    One function `@model` of `qwen35` forward ops, batch arguments and scalar losses named as docs/stages.md says.
  }]>;
def VerifyS1 : StageVerifier<"s1", [{
    The functions `@eval`, `@accumulate` and `@finish` of `qwen35` ops without parameters; every argument has a role and
    a name, every result either overwrites an argument of its type or has a name. `@refresh` where there are working copies
    of weights.
  }]>;
def VerifyS2 : StageVerifier<"s2", [{
    What S1 promises, and: the module has a `qdist.mesh`; every argument and result of a function has a `qdist.sharding`, every
    op one for each operand and result; `qdist.shard_constraint` is the only op of another dialect.
  }]>;
def VerifyS3 : StageVerifier<"s3", [{
    Shapes of one rank: what S1 promises, with collectives of `qdist` beside the ops of `qwen35`. Arguments and results keep
    their `qdist.sharding`; only gradient sums are partial at the end of a function.
  }]>;
def VerifyS4 : StageVerifier<"s4", [{
    What S1 promises, except that ops may sit in `qkern.group` regions, which hold `qwen35` ops only, and that
    ranks may exchange values by ops of `qdist` outside of them.
  }]>;
def VerifyS5 : StageVerifier<"s5", [{
    Only `qkern.dispatch`, `qkern.collective`, `qkern.view`, `qkern.join` and `qdist.rank_var` between a function's
    arguments and its return; no document-table types.
  }]>;
def VerifyS6 : StageVerifier<"s6", [{
    Only `qplan` ops; every symbol they name exists; buffers lie inside their arenas on the arena's alignment; launches and
    collectives stay inside their buffers; collectives are numbered in order.
  }]>;

#endif
