#ifndef QWEN35_DIALECT_QWEN35_IR_QWEN35INTERFACES_TD
#define QWEN35_DIALECT_QWEN35_IR_QWEN35INTERFACES_TD

include "mlir/IR/OpBase.td"

def Qwen35_DifferentiableOp : OpInterface<"DifferentiableOp"> {
  let cppNamespace = "::qwen35";
  let description = [{
    An op that can append its vector-Jacobian product. Backward ops read forward values directly; what stays alive
    between the two is for the remat pass to decide.
  }];
  let methods = [InterfaceMethod<
    [{
      Appends the ops that turn the gradients of the results (`cotangents`, one per result, null where the loss does not
      depend on it) into the gradients of the operands (`gradients`, one per operand, null for operands that carry none,
      such as ids, tables and run-time scalars).
    }],
    "::mlir::LogicalResult", "buildVjp",
    (ins "::mlir::OpBuilder &":$builder, "::llvm::ArrayRef<::mlir::Value>":$cotangents,
         "::llvm::SmallVectorImpl<::mlir::Value> &":$gradients)>];
}

#endif
