// RUN: qwen35-interpret %s | FileCheck %s

// silu'(64) is 1, silu'(0) is 1/2.
// CHECK:      dgate = {{\[\[}}2, 6]]
// CHECK-NEXT: dup = {{\[\[}}64, 0]]
func.func @model() -> (tensor<1x2xf32> {qwen35.name = "dgate"}, tensor<1x2xf32> {qwen35.name = "dup"}) {
  %dy = arith.constant dense<[[1.0, 4.0]]> : tensor<1x2xf32>
  %gate = arith.constant dense<[[64.0, 0.0]]> : tensor<1x2xf32>
  %up = arith.constant dense<[[2.0, 3.0]]> : tensor<1x2xf32>
  %dgate, %dup = qwen35.swiglu_bwd %dy, %gate, %up : tensor<1x2xf32>, tensor<1x2xf32>, tensor<1x2xf32>
  return %dgate, %dup : tensor<1x2xf32>, tensor<1x2xf32>
}
