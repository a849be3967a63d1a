// RUN: qwen35-interpret %s | FileCheck %s

// silu(64) is 64 in double, silu(0) is 0: one gate open, one closed.
// CHECK:      y = {{\[\[\[}}16, 0]]]
// CHECK-NEXT: rstd = {{\[\[}}0.25]]
func.func @model() -> (tensor<1x1x2xf32> {qwen35.name = "y"}, tensor<1x1xf32> {qwen35.name = "rstd"}) {
  %o = arith.constant dense<[[[1.0, 5.0]]]> : tensor<1x1x2xf32>
  %z = arith.constant dense<[[[64.0, 0.0]]]> : tensor<1x1x2xf32>
  %w = arith.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %y, %rstd = qwen35.gated_rms_norm %o, %z, %w <{eps = 3.0}> : tensor<1x1x2xf32>, tensor<1x1x2xf32>, tensor<2xf32>
  return %y, %rstd : tensor<1x1x2xf32>, tensor<1x1xf32>
}
