// RUN: qwen35-interpret %s | FileCheck %s

// softplus(64) is 64, softplus(0) is log 2.
// CHECK:      g = {{\[\[}}-64, -0.69314718055994{{[0-9]*}}]]
// CHECK-NEXT: beta = {{\[\[}}0.5, 1]]
func.func @model() -> (tensor<1x2xf32> {qwen35.name = "g"}, tensor<1x2xf32> {qwen35.name = "beta"}) {
  %a = arith.constant dense<[[60.0, -3.0]]> : tensor<1x2xf32>
  %b = arith.constant dense<[[0.0, 64.0]]> : tensor<1x2xf32>
  %a_log = arith.constant dense<0.0> : tensor<2xf32>
  %dt = arith.constant dense<[4.0, 3.0]> : tensor<2xf32>
  %g, %beta = qwen35.gdn_gates %a, %b, %a_log, %dt : tensor<1x2xf32>, tensor<1x2xf32>, tensor<2xf32>, tensor<2xf32>
  return %g, %beta : tensor<1x2xf32>, tensor<1x2xf32>
}
