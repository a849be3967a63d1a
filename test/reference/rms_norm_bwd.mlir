// RUN: qwen35-interpret %s | FileCheck %s

// Rows of xh: (1/2, 1/2), (1/4, 5/4); of u: (1, 2), (4, 0); mean(u * xh): 3/4, 1/2.
// CHECK:      dx = {{\[\[}}0.3125, 0.8125], [0.96875, -0.15625]]
// CHECK-NEXT: dweight = [1.5, 0.5]
func.func @model() -> (tensor<2x2xf32> {qwen35.name = "dx"}, tensor<2xf32> {qwen35.name = "dweight"}) {
  %dy = arith.constant dense<[[1.0, 1.0], [4.0, 0.0]]> : tensor<2x2xf32>
  %x = arith.constant dense<[[1.0, 1.0], [1.0, 5.0]]> : tensor<2x2xf32>
  %w = arith.constant dense<[0.0, 1.0]> : tensor<2xf32>
  %rstd = arith.constant dense<[0.5, 0.25]> : tensor<2xf32>
  %dx, %dw = qwen35.rms_norm_bwd %dy, %x, %w, %rstd <{offset = 1.0}>
      : tensor<2x2xf32>, tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>
  return %dx, %dw : tensor<2x2xf32>, tensor<2xf32>
}
