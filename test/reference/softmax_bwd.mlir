// RUN: qwen35-interpret %s | FileCheck %s

// CHECK: result0 = {{\[\[}}0.25, -0.25, 0]]
func.func @model() -> tensor<1x3xf32> {
  %dp = arith.constant dense<[[1.0, 0.0, 7.0]]> : tensor<1x3xf32>
  %p = arith.constant dense<[[0.5, 0.5, 0.0]]> : tensor<1x3xf32>
  %d = qwen35.softmax_bwd %dp, %p : tensor<1x3xf32>, tensor<1x3xf32>
  return %d : tensor<1x3xf32>
}
