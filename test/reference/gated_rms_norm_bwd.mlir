// RUN: qwen35-interpret %s | FileCheck %s

// n = (1/4, 5/4), silu(z) = (64, 0), silu'(z) = (1, 1/2), mean(u * n) = 8.
// CHECK:      do = {{\[\[\[}}15.5, -2.5]]]
// CHECK-NEXT: dz = {{\[\[\[}}0.25, 1.25]]]
// CHECK-NEXT: dweight = [16, 0]
func.func @model() -> (tensor<1x1x2xf32> {qwen35.name = "do"}, tensor<1x1x2xf32> {qwen35.name = "dz"},
                       tensor<2xf32> {qwen35.name = "dweight"}) {
  %dy = arith.constant dense<1.0> : tensor<1x1x2xf32>
  %o = arith.constant dense<[[[1.0, 5.0]]]> : tensor<1x1x2xf32>
  %z = arith.constant dense<[[[64.0, 0.0]]]> : tensor<1x1x2xf32>
  %w = arith.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %rstd = arith.constant dense<0.25> : tensor<1x1xf32>
  %do, %dz, %dw = qwen35.gated_rms_norm_bwd %dy, %o, %z, %w, %rstd
      : tensor<1x1x2xf32>, tensor<1x1x2xf32>, tensor<1x1x2xf32>, tensor<2xf32>, tensor<1x1xf32>
  return %do, %dz, %dw : tensor<1x1x2xf32>, tensor<1x1x2xf32>, tensor<2xf32>
}
