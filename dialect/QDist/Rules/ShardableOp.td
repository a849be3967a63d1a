#ifndef QWEN35_DIALECT_QDIST_RULES_SHARDABLEOP_TD
#define QWEN35_DIALECT_QDIST_RULES_SHARDABLEOP_TD

include "mlir/IR/OpBase.td"

def QDist_ShardableOp : OpInterface<"ShardableOp"> {
  let cppNamespace = "::qwen35::qdist";
  let description = [{
    An op that says which dimensions of its operands and results go together when it is split over ranks. Attached to the
    ops of the model from outside, in ModelRules.cpp.
  }];
  let methods = [InterfaceMethod<"The factors of the op.", "::qwen35::qdist::ShardRule", "shardRule">];
}

#endif
