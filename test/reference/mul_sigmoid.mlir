// RUN: qwen35-interpret %s | FileCheck %s

// sigmoid(0) is 1/2, sigmoid(64) is 1 in double; one gate per element, then one per row.
// CHECK:      result0 = {{\[\[}}1, 4]]
// CHECK-NEXT: result1 = {{\[\[}}1, 2]]
func.func @model() -> (tensor<1x2xf32>, tensor<1x2xf32>) {
  %x = arith.constant dense<[[2.0, 4.0]]> : tensor<1x2xf32>
  %gate = arith.constant dense<[[0.0, 64.0]]> : tensor<1x2xf32>
  %row = arith.constant dense<0.0> : tensor<1x1xf32>
  %a = qwen35.mul_sigmoid %x, %gate : tensor<1x2xf32>, tensor<1x2xf32>
  %b = qwen35.mul_sigmoid %x, %row : tensor<1x2xf32>, tensor<1x1xf32>
  return %a, %b : tensor<1x2xf32>, tensor<1x2xf32>
}
