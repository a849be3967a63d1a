// RUN: qwen35-interpret %s --documents 2 | FileCheck %s

// Two layers, two experts, two tokens and one of padding, which does not count.
//   pooled: f = (3/4, 1/4), P = (5/8, 3/8); per layer: c = (2, 0), (1, 1) with P = (1/2, 1/2), (3/4, 1/4).
// CHECK:      pooled = 1.125
// CHECK-NEXT: per_layer = 2
func.func @model(%seq: !qwen35.seq<3, 2>) -> (tensor<f32> {qwen35.name = "pooled"}, tensor<f32> {qwen35.name = "per_layer"}) {
  %p0 = arith.constant dense<[[0.5, 0.5], [0.5, 0.5], [0.0, 1.0]]> : tensor<3x2xf32>
  %p1 = arith.constant dense<[[0.75, 0.25], [0.75, 0.25], [0.0, 1.0]]> : tensor<3x2xf32>
  %i0 = arith.constant dense<[[0], [0], [1]]> : tensor<3x1xi32>
  %i1 = arith.constant dense<[[1], [0], [1]]> : tensor<3x1xi32>
  %pooled = qwen35.router_aux (%p0, %p1) (%i0, %i1) %seq <{scope = "pooled"}>
      : (tensor<3x2xf32>, tensor<3x2xf32>) (tensor<3x1xi32>, tensor<3x1xi32>) !qwen35.seq<3, 2>
  %per_layer = qwen35.router_aux (%p0, %p1) (%i0, %i1) %seq <{scope = "per_layer"}>
      : (tensor<3x2xf32>, tensor<3x2xf32>) (tensor<3x1xi32>, tensor<3x1xi32>) !qwen35.seq<3, 2>
  return %pooled, %per_layer : tensor<f32>, tensor<f32>
}
