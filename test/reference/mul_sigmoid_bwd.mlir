// RUN: qwen35-interpret %s | FileCheck %s

// dgate is dy * x / 4 at a gate of 0; that of a row is the sum over the row.
// CHECK:      dx = {{\[\[}}0.5, 1]]
// CHECK-NEXT: dgate = {{\[\[}}0.5, 2]]
// CHECK-NEXT: dx_row = {{\[\[}}0.5, 1]]
// CHECK-NEXT: dgate_row = {{\[\[}}2.5]]
func.func @model() -> (tensor<1x2xf32> {qwen35.name = "dx"}, tensor<1x2xf32> {qwen35.name = "dgate"},
                       tensor<1x2xf32> {qwen35.name = "dx_row"}, tensor<1x1xf32> {qwen35.name = "dgate_row"}) {
  %dy = arith.constant dense<[[1.0, 2.0]]> : tensor<1x2xf32>
  %x = arith.constant dense<[[2.0, 4.0]]> : tensor<1x2xf32>
  %gate = arith.constant dense<0.0> : tensor<1x2xf32>
  %row = arith.constant dense<0.0> : tensor<1x1xf32>
  %dx, %dg = qwen35.mul_sigmoid_bwd %dy, %x, %gate : tensor<1x2xf32>, tensor<1x2xf32>, tensor<1x2xf32>
  %dxr, %dgr = qwen35.mul_sigmoid_bwd %dy, %x, %row : tensor<1x2xf32>, tensor<1x2xf32>, tensor<1x1xf32>
  return %dx, %dg, %dxr, %dgr : tensor<1x2xf32>, tensor<1x2xf32>, tensor<1x2xf32>, tensor<1x1xf32>
}
