// RUN: qwen35-interpret %s --documents 2 | FileCheck %s

// The two layers of router_aux.mlir on each of two ranks: the loss of twice as many tokens is the same, a token has half of its
// gradient.
// CHECK:      counts = {{\[\[}}3, 1]]
// CHECK-NEXT: sums = {{\[\[}}2.5, 1.5]]
// CHECK-NEXT: n = 2
// CHECK-NEXT: layer_counts = {{\[\[}}2, 0], [1, 1]]
// CHECK-NEXT: pooled = 1.125
// CHECK-NEXT: per_layer = 2
// CHECK-NEXT: d0 = {{\[\[}}0.1875, 0.0625], [0.1875, 0.0625], [0, 0]]
// CHECK-NEXT: d1 = {{\[\[}}0.1875, 0.0625], [0.1875, 0.0625], [0, 0]]
// CHECK-NEXT: e0 = {{\[\[}}0.5, 0], [0.5, 0], [0, 0]]
// CHECK-NEXT: e1 = {{\[\[}}0.25, 0.25], [0.25, 0.25], [0, 0]]
func.func @model(%seq: !qwen35.seq<3, 2>)
    -> (tensor<1x2xf32> {qwen35.name = "counts"}, tensor<1x2xf32> {qwen35.name = "sums"}, tensor<f32> {qwen35.name = "n"},
        tensor<2x2xf32> {qwen35.name = "layer_counts"}, tensor<f32> {qwen35.name = "pooled"},
        tensor<f32> {qwen35.name = "per_layer"}, tensor<3x2xf32> {qwen35.name = "d0"}, tensor<3x2xf32> {qwen35.name = "d1"},
        tensor<3x2xf32> {qwen35.name = "e0"}, tensor<3x2xf32> {qwen35.name = "e1"}) {
  %one = qwen35.ones : tensor<f32>
  %p0 = arith.constant dense<[[0.5, 0.5], [0.5, 0.5], [0.0, 1.0]]> : tensor<3x2xf32>
  %p1 = arith.constant dense<[[0.75, 0.25], [0.75, 0.25], [0.0, 1.0]]> : tensor<3x2xf32>
  %i0 = arith.constant dense<[[0], [0], [1]]> : tensor<3x1xi32>
  %i1 = arith.constant dense<[[1], [0], [1]]> : tensor<3x1xi32>
  %c, %s, %n = qwen35.router_stats (%p0, %p1) (%i0, %i1) %seq <{scope = "pooled"}>
      : (tensor<3x2xf32>, tensor<3x2xf32>) (tensor<3x1xi32>, tensor<3x1xi32>) !qwen35.seq<3, 2>
  %cl, %sl, %nl = qwen35.router_stats (%p0, %p1) (%i0, %i1) %seq <{scope = "per_layer"}>
      : (tensor<3x2xf32>, tensor<3x2xf32>) (tensor<3x1xi32>, tensor<3x1xi32>) !qwen35.seq<3, 2>
  %c2 = qwen35.add %c, %c : tensor<1x2xf32>, tensor<1x2xf32>
  %s2 = qwen35.add %s, %s : tensor<1x2xf32>, tensor<1x2xf32>
  %cl2 = qwen35.add %cl, %cl : tensor<2x2xf32>, tensor<2x2xf32>
  %sl2 = qwen35.add %sl, %sl : tensor<2x2xf32>, tensor<2x2xf32>
  %n2 = qwen35.add %n, %nl : tensor<f32>, tensor<f32>
  %pooled = qwen35.router_stats_aux %c2, %s2, %n2 <{layers = 2, scope = "pooled", slots = 1}>
      : tensor<1x2xf32>, tensor<1x2xf32>, tensor<f32>
  %per_layer = qwen35.router_stats_aux %cl2, %sl2, %n2 <{layers = 2, scope = "per_layer", slots = 1}>
      : tensor<2x2xf32>, tensor<2x2xf32>, tensor<f32>
  %d:2 = qwen35.router_stats_grad %one, %c2, %n2, %seq <{layers = 2, scope = "pooled", slots = 1}>
      : tensor<f32>, tensor<1x2xf32>, tensor<f32>, !qwen35.seq<3, 2>
  %e:2 = qwen35.router_stats_grad %one, %cl2, %n2, %seq <{layers = 2, scope = "per_layer", slots = 1}>
      : tensor<f32>, tensor<2x2xf32>, tensor<f32>, !qwen35.seq<3, 2>
  return %c, %s, %n, %cl, %pooled, %per_layer, %d#0, %d#1, %e#0, %e#1
      : tensor<1x2xf32>, tensor<1x2xf32>, tensor<f32>, tensor<2x2xf32>, tensor<f32>, tensor<f32>, tensor<3x2xf32>, tensor<3x2xf32>,
        tensor<3x2xf32>, tensor<3x2xf32>
}
