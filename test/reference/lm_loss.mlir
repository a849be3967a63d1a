// RUN: qwen35-interpret %s | FileCheck %s

// h . w is 0 for every row: two targets of log 2 each, one label ignored.
// CHECK: result0 = 0.69314718055994{{[0-9]*$}}
func.func @model() -> tensor<f32> {
  %h = arith.constant dense<[[2.0, 0.0], [4.0, 0.0], [8.0, 0.0]]> : tensor<3x2xf32>
  %w = arith.constant dense<[[0.0, 1.0], [0.0, 3.0]]> : tensor<2x2xf32>
  %labels = arith.constant dense<[0, 1, -100]> : tensor<3xi32>
  %n = arith.constant dense<0.5> : tensor<f32>
  %loss = qwen35.lm_loss %h, %w, %labels, %n : tensor<3x2xf32>, tensor<2x2xf32>, tensor<3xi32>, tensor<f32>
  return %loss : tensor<f32>
}
