// RUN: qwen35-interpret %s | FileCheck %s

// CHECK: result0 = {{\[\[}}128, 0]]
func.func @model() -> tensor<1x2xf32> {
  %gate = arith.constant dense<[[64.0, 0.0]]> : tensor<1x2xf32>
  %up = arith.constant dense<[[2.0, 3.0]]> : tensor<1x2xf32>
  %y = qwen35.swiglu %gate, %up : tensor<1x2xf32>, tensor<1x2xf32>
  return %y : tensor<1x2xf32>
}
