// RUN: qwen35-interpret %s --documents 2,1 | FileCheck %s

// Token 1 reads token 0, token 2 reads nobody: dx[0] = dy[0] + 2 dy[1], dweight[0] = dy[1] x[0].
// CHECK:      dx = {{\[\[}}5], [2], [4]]
// CHECK-NEXT: dweight = {{\[\[\[}}128, 1344]]]
func.func @model(%seq: !qwen35.seq<3, 2>)
    -> (tensor<3x1xf32> {qwen35.name = "dx"}, tensor<1x1x2xf32> {qwen35.name = "dweight"}) {
  %dy = arith.constant dense<[[1.0], [2.0], [4.0]]> : tensor<3x1xf32>
  %x = arith.constant dense<[[64.0], [128.0], [256.0]]> : tensor<3x1xf32>
  %w = arith.constant dense<[[[2.0, 1.0]]]> : tensor<1x1x2xf32>
  %dx, %dw = qwen35.causal_conv_bwd %dy, %x, %w, %seq
      : tensor<3x1xf32>, tensor<3x1xf32>, tensor<1x1x2xf32>, !qwen35.seq<3, 2>
  return %dx, %dw : tensor<3x1xf32>, tensor<1x1x2xf32>
}
