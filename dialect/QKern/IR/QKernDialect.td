#ifndef QWEN35_DIALECT_QKERN_IR_QKERNDIALECT_TD
#define QWEN35_DIALECT_QKERN_IR_QKERNDIALECT_TD

include "dialect/Qwen35/IR/Qwen35Dialect.td"

def QKern_Dialect : Dialect {
  let name = "qkern";
  let cppNamespace = "::qwen35::qkern";
  let summary = "Fused groups, lowered math and kernel launches on tensors";
  let description = [{
    Stage S4 groups ops that one kernel will compute (`qkern.group`); lowering passes replace an op by the kernels it
    consists of (`qkern.gdn_scan` and others); at S5 everything that computes is a `qkern.dispatch`, everything that only
    re-addresses is a `qkern.view`.
  }];
  let dependentDialects = ["::qwen35::Qwen35Dialect"];
}

// Lowered math with inferred result types: `%r = qkern.name %a, %b <{attrs}> : type(a), type(b)`.
class QKern_MathOp<string mnemonic, list<Trait> traits = []>
    : Op<QKern_Dialect, mnemonic, !listconcat([Pure, InferTypeOpAdaptor], traits)> {
  let assemblyFormat = "operands prop-dict attr-dict `:` type(operands)";
}

#endif
