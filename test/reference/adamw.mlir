// RUN: qwen35-interpret %s | FileCheck %s

// c = 4 / 2; m' / bc1 = 2, sqrt(v' / bc2) = 2; p' = 1 (1 - 1/4) - 1/2 * 2 / (2 + 2).
// CHECK:      p = [0.5]
// CHECK-NEXT: m = [1]
// CHECK-NEXT: v = [2]
// When commit is 0 not even a NaN gets through.
// CHECK-NEXT: kept = [1]
func.func @model() -> (tensor<1xf32> {qwen35.name = "p"}, tensor<1xf32> {qwen35.name = "m"},
                       tensor<1xf32> {qwen35.name = "v"}, tensor<1xf32> {qwen35.name = "kept"}) {
  %p = arith.constant dense<1.0> : tensor<1xf32>
  %z = arith.constant dense<0.0> : tensor<1xf32>
  %g = arith.constant dense<4.0> : tensor<1xf32>
  %nan = arith.constant dense<0x7FC00000> : tensor<1xf32>
  %half = arith.constant dense<0.5> : tensor<f32>
  %yes = arith.constant dense<1.0> : tensor<f32>
  %no = arith.constant dense<0.0> : tensor<f32>
  %p1, %m1, %v1 = qwen35.adamw %p, %z, %z, %g, %half, %half, %half, %half, %yes
      <{beta1 = 0.5, beta2 = 0.5, eps = 2.0, weight_decay = 0.5}>
      : tensor<1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>,
        tensor<f32>
  %p2, %m2, %v2 = qwen35.adamw %p, %z, %z, %nan, %half, %half, %half, %half, %no
      <{beta1 = 0.5, beta2 = 0.5, eps = 2.0, weight_decay = 0.5}>
      : tensor<1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>,
        tensor<f32>
  return %p1, %m1, %v1, %p2 : tensor<1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>
}
