// RUN: qwen35-interpret %s | FileCheck %s

// Equal probabilities go by lower id; e^-1024 is 0 in double.
// CHECK:      weights = {{\[\[}}0.5, 0.5], [0.5, 0.5], [1, 0]]
// CHECK-NEXT: idx = {{\[\[}}0, 1], [0, 2], [3, 0]]
// CHECK-NEXT: probs = {{\[\[}}0.25, 0.25, 0.25, 0.25], [0.5, 0, 0.5, 0], [0, 0, 0, 1]]
func.func @model() -> (tensor<3x2xf32> {qwen35.name = "weights"}, tensor<3x2xi32> {qwen35.name = "idx"},
                       tensor<3x4xf32> {qwen35.name = "probs"}) {
  %logits = arith.constant dense<[[7.0, 7.0, 7.0, 7.0], [0.0, -1024.0, 0.0, -1024.0], [0.0, 0.0, 0.0, 1024.0]]>
      : tensor<3x4xf32>
  %w, %idx, %probs = qwen35.router %logits <{top_k = 2}> : tensor<3x4xf32>
  return %w, %idx, %probs : tensor<3x2xf32>, tensor<3x2xi32>, tensor<3x4xf32>
}
