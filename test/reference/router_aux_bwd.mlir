// RUN: qwen35-interpret %s --documents 2 | FileCheck %s

// The two layers of router_aux.mlir; the row of padding gets 0.
// CHECK:      result0 = {{\[\[}}0.375, 0.125], [0.375, 0.125], [0, 0]]
// CHECK-NEXT: result1 = {{\[\[}}0.375, 0.125], [0.375, 0.125], [0, 0]]
// CHECK-NEXT: result2 = {{\[\[}}1, 0], [1, 0], [0, 0]]
// CHECK-NEXT: result3 = {{\[\[}}0.5, 0.5], [0.5, 0.5], [0, 0]]
func.func @model(%seq: !qwen35.seq<3, 2>) -> (tensor<3x2xf32>, tensor<3x2xf32>, tensor<3x2xf32>, tensor<3x2xf32>) {
  %one = qwen35.ones : tensor<f32>
  %p0 = arith.constant dense<[[0.5, 0.5], [0.5, 0.5], [0.0, 1.0]]> : tensor<3x2xf32>
  %p1 = arith.constant dense<[[0.75, 0.25], [0.75, 0.25], [0.0, 1.0]]> : tensor<3x2xf32>
  %i0 = arith.constant dense<[[0], [0], [1]]> : tensor<3x1xi32>
  %i1 = arith.constant dense<[[1], [0], [1]]> : tensor<3x1xi32>
  %a:2 = qwen35.router_aux_bwd %one (%p0, %p1) (%i0, %i1) %seq <{scope = "pooled"}>
      : tensor<f32> (tensor<3x2xf32>, tensor<3x2xf32>) (tensor<3x1xi32>, tensor<3x1xi32>) !qwen35.seq<3, 2>
  %b:2 = qwen35.router_aux_bwd %one (%p0, %p1) (%i0, %i1) %seq <{scope = "per_layer"}>
      : tensor<f32> (tensor<3x2xf32>, tensor<3x2xf32>) (tensor<3x1xi32>, tensor<3x1xi32>) !qwen35.seq<3, 2>
  return %a#0, %a#1, %b#0, %b#1 : tensor<3x2xf32>, tensor<3x2xf32>, tensor<3x2xf32>, tensor<3x2xf32>
}
