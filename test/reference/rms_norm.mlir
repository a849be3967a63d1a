// RUN: qwen35-interpret %s | FileCheck %s

// mean(x^2) + eps is 1 + 3 and 13 + 3, so rstd is 1/2 and 1/4.
// CHECK:      y = {{\[\[}}0.5, 1], [0.25, 2.5]]
// CHECK-NEXT: rstd = [0.5, 0.25]
func.func @model() -> (tensor<2x2xf32> {qwen35.name = "y"}, tensor<2xf32> {qwen35.name = "rstd"}) {
  %x = arith.constant dense<[[1.0, 1.0], [1.0, 5.0]]> : tensor<2x2xf32>
  %w = arith.constant dense<[0.0, 1.0]> : tensor<2xf32>
  %y, %rstd = qwen35.rms_norm %x, %w <{eps = 3.0, offset = 1.0}> : tensor<2x2xf32>, tensor<2xf32>
  return %y, %rstd : tensor<2x2xf32>, tensor<2xf32>
}
