// RUN: qwen35-interpret %s | FileCheck %s

// CHECK: result0 = {{\[\[}}2], [0], [5]]
func.func @model() -> tensor<3x1xf32> {
  %dy = arith.constant dense<[[1.0], [2.0], [4.0]]> : tensor<3x1xf32>
  %ids = arith.constant dense<[2, 0, 2]> : tensor<3xi32>
  %d = qwen35.embed_bwd %dy, %ids <{vocab = 3}> : tensor<3x1xf32>, tensor<3xi32>
  return %d : tensor<3x1xf32>
}
