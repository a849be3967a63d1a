// RUN: qwen35-interpret %s | FileCheck %s

// CHECK: result0 = {{\[\[}}5, 6], [1, 2], [5, 6]]
func.func @model() -> tensor<3x2xf32> {
  %ids = arith.constant dense<[2, 0, 2]> : tensor<3xi32>
  %table = arith.constant dense<[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]> : tensor<3x2xf32>
  %y = qwen35.embed %ids, %table : tensor<3xi32>, tensor<3x2xf32>
  return %y : tensor<3x2xf32>
}
