// RUN: qwen35-interpret %s | FileCheck %s

// CHECK: result0 = 36
func.func @model() -> tensor<f64> {
  %x = arith.constant dense<[3.0, 4.0]> : tensor<2xf32>
  %acc = arith.constant dense<11.0> : tensor<f64>
  %n = qwen35.norm_sq %x, %acc : tensor<2xf32>, tensor<f64>
  return %n : tensor<f64>
}
