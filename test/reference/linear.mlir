// RUN: qwen35-interpret %s | FileCheck %s

// CHECK:      y = {{\[\[}}17, 39, 61]]
// Its gradients are the matmuls dy weight and dy^T x.
// CHECK-NEXT: dx = {{\[\[}}6, 8]]
// CHECK-NEXT: dweight = {{\[\[}}5, 6], [0, 0], [5, 6]]
// CHECK-NEXT: both = {{\[\[}}17], [39], [61]]
func.func @model() -> (tensor<1x3xf32> {qwen35.name = "y"}, tensor<1x2xf32> {qwen35.name = "dx"},
                       tensor<3x2xf32> {qwen35.name = "dweight"}, tensor<3x1xf32> {qwen35.name = "both"}) {
  %x = arith.constant dense<[[5.0, 6.0]]> : tensor<1x2xf32>
  %w = arith.constant dense<[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]> : tensor<3x2xf32>
  %dy = arith.constant dense<[[1.0, 0.0, 1.0]]> : tensor<1x3xf32>
  %y = qwen35.linear %x, %w : tensor<1x2xf32>, tensor<3x2xf32>
  %dx = qwen35.matmul %dy, %w : tensor<1x3xf32>, tensor<3x2xf32>
  %dw = qwen35.matmul %dy, %x <{transpose_a = true}> : tensor<1x3xf32>, tensor<1x2xf32>
  %i = arith.constant dense<[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]> : tensor<3x3xf32>
  %wt = qwen35.matmul %w, %i <{transpose_a = true}> : tensor<3x2xf32>, tensor<3x3xf32>
  %both = qwen35.matmul %wt, %x <{transpose_a = true, transpose_b = true}> : tensor<2x3xf32>, tensor<1x2xf32>
  return %y, %dx, %dw, %both : tensor<1x3xf32>, tensor<1x2xf32>, tensor<3x2xf32>, tensor<3x1xf32>
}
