// RUN: qwen35-interpret %s | FileCheck %s

// dlogits: (-1/4, 1/4), (1/4, -1/4), (0, 0).
// CHECK:      loss = 0.69314718055994{{[0-9]*$}}
// CHECK-NEXT: dh = {{\[\[}}0, 0.5], [0, -0.5], [0, 0]]
// CHECK-NEXT: dweight = {{\[\[}}0.5, 0], [-0.5, 0]]
func.func @model() -> (tensor<f32> {qwen35.name = "loss"}, tensor<3x2xf32> {qwen35.name = "dh"},
                       tensor<2x2xf32> {qwen35.name = "dweight"}) {
  %h = arith.constant dense<[[2.0, 0.0], [4.0, 0.0], [8.0, 0.0]]> : tensor<3x2xf32>
  %w = arith.constant dense<[[0.0, 1.0], [0.0, 3.0]]> : tensor<2x2xf32>
  %labels = arith.constant dense<[0, 1, -100]> : tensor<3xi32>
  %n = arith.constant dense<0.5> : tensor<f32>
  %loss, %dh, %dw = qwen35.lm_loss_grad %h, %w, %labels, %n : tensor<3x2xf32>, tensor<2x2xf32>, tensor<3xi32>, tensor<f32>
  return %loss, %dh, %dw : tensor<f32>, tensor<3x2xf32>, tensor<2x2xf32>
}
