// RUN: qwen35-interpret %s | FileCheck %s

// The case of lm_loss_grad.mlir with a row of the weight on each of two ranks, whose statistics are put together by hand: labels
// count from the rank's own row, -1 is the other's. Logits of row 0: (0, 0, 0), of row 1 the same: maxima 0, sums 1 + 1.
// CHECK:      highest = [0, 0, 0]
// CHECK-NEXT: sum = [1, 1, 1]
// CHECK-NEXT: target = [0, 0, 0]
// CHECK-NEXT: loss = 0.69314718055994{{[0-9]*$}}
// CHECK-NEXT: dh = {{\[\[}}0, -0.25], [0, 0.25], [0, 0]]
// CHECK-NEXT: dweight = {{\[\[}}0.5, 0]]
func.func @model() -> (tensor<3xf32> {qwen35.name = "highest"}, tensor<3xf32> {qwen35.name = "sum"},
                       tensor<3xf32> {qwen35.name = "target"}, tensor<f32> {qwen35.name = "loss"},
                       tensor<3x2xf32> {qwen35.name = "dh"}, tensor<1x2xf32> {qwen35.name = "dweight"}) {
  %h = arith.constant dense<[[2.0, 0.0], [4.0, 0.0], [8.0, 0.0]]> : tensor<3x2xf32>
  %w = arith.constant dense<[[0.0, 1.0]]> : tensor<1x2xf32>
  %labels = arith.constant dense<[0, -1, -100]> : tensor<3xi32>
  %n = arith.constant dense<0.5> : tensor<f32>
  %highest, %sum, %target = qwen35.lm_stats %h, %w, %labels : tensor<3x2xf32>, tensor<1x2xf32>, tensor<3xi32>
  %both = qwen35.add %sum, %sum : tensor<3xf32>, tensor<3xf32>
  %loss = qwen35.lm_stats_loss %labels, %n, %highest, %both, %target
      : tensor<3xi32>, tensor<f32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>
  %dh, %dw = qwen35.lm_stats_grad %h, %w, %labels, %n, %highest, %both
      : tensor<3x2xf32>, tensor<1x2xf32>, tensor<3xi32>, tensor<f32>, tensor<3xf32>, tensor<3xf32>
  return %highest, %sum, %target, %loss, %dh, %dw
      : tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<f32>, tensor<3x2xf32>, tensor<1x2xf32>
}
