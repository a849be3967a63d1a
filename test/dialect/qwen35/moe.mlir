// Every op of the chapter through text and bytecode; result types are inferred.
// RUN: qwen35-opt %s | qwen35-opt | FileCheck %s
// RUN: qwen35-opt %s --emit-bytecode | qwen35-opt | FileCheck %s

// CHECK-LABEL: func @router(
// CHECK:         qwen35.router %{{.*}} <{top_k = 2 : i64}> : tensor<64x8xf32>
func.func @router(%logits: tensor<64x8xf32>) -> (tensor<64x2xf32>, tensor<64x2xi32>, tensor<64x8xf32>) {
  %weights, %idx, %probs = qwen35.router %logits <{top_k = 2}> : tensor<64x8xf32>
  return %weights, %idx, %probs : tensor<64x2xf32>, tensor<64x2xi32>, tensor<64x8xf32>
}

// CHECK-LABEL: func @router_bwd(
// CHECK:         qwen35.router_bwd %{{.*}}, %{{.*}}, %{{.*}} <{experts = 8 : i64}> : tensor<64x2xf32>, tensor<64x2xf32>, tensor<64x2xi32>
func.func @router_bwd(%dweights: tensor<64x2xf32>, %weights: tensor<64x2xf32>, %idx: tensor<64x2xi32>)
    -> tensor<64x8xf32> {
  %dlogits = qwen35.router_bwd %dweights, %weights, %idx <{experts = 8}> : tensor<64x2xf32>, tensor<64x2xf32>, tensor<64x2xi32>
  return %dlogits : tensor<64x8xf32>
}

// CHECK-LABEL: func @softmax_bwd(
// CHECK:         qwen35.softmax_bwd %{{.*}}, %{{.*}}  : tensor<64x8xf32>, tensor<64x8xf32>
func.func @softmax_bwd(%dprobs: tensor<64x8xf32>, %probs: tensor<64x8xf32>) -> tensor<64x8xf32> {
  %dlogits = qwen35.softmax_bwd %dprobs, %probs : tensor<64x8xf32>, tensor<64x8xf32>
  return %dlogits : tensor<64x8xf32>
}

// CHECK-LABEL: func @router_aux(
// CHECK:         qwen35.router_aux(%{{.*}}, %{{.*}}) (%{{.*}}, %{{.*}}) %{{.*}} <{scope = "pooled"}> : (tensor<64x8xf32>, tensor<64x8xf32>) (tensor<64x2xi32>, tensor<64x2xi32>) <64, 3>
func.func @router_aux(%p0: tensor<64x8xf32>, %p1: tensor<64x8xf32>, %i0: tensor<64x2xi32>, %i1: tensor<64x2xi32>,
                      %seq: !qwen35.seq<64, 3>) -> tensor<f32> {
  %aux = qwen35.router_aux (%p0, %p1) (%i0, %i1) %seq <{scope = "pooled"}>
      : (tensor<64x8xf32>, tensor<64x8xf32>) (tensor<64x2xi32>, tensor<64x2xi32>) !qwen35.seq<64, 3>
  return %aux : tensor<f32>
}

// CHECK-LABEL: func @router_aux_bwd(
// CHECK:         qwen35.router_aux_bwd %{{.*}}(%{{.*}}, %{{.*}}) (%{{.*}}, %{{.*}}) %{{.*}} <{scope = "pooled"}> : tensor<f32>(tensor<64x8xf32>, tensor<64x8xf32>) (tensor<64x2xi32>, tensor<64x2xi32>) <64, 3>
func.func @router_aux_bwd(%daux: tensor<f32>, %p0: tensor<64x8xf32>, %p1: tensor<64x8xf32>, %i0: tensor<64x2xi32>,
                          %i1: tensor<64x2xi32>, %seq: !qwen35.seq<64, 3>) -> (tensor<64x8xf32>, tensor<64x8xf32>) {
  %d0, %d1 = qwen35.router_aux_bwd %daux (%p0, %p1) (%i0, %i1) %seq <{scope = "pooled"}>
      : tensor<f32> (tensor<64x8xf32>, tensor<64x8xf32>) (tensor<64x2xi32>, tensor<64x2xi32>) !qwen35.seq<64, 3>
  return %d0, %d1 : tensor<64x8xf32>, tensor<64x8xf32>
}

// CHECK-LABEL: func @router_stats(
// CHECK:         qwen35.router_stats(%{{.*}}, %{{.*}}) (%{{.*}}, %{{.*}}) %{{.*}} <{scope = "pooled"}> : (tensor<64x8xf32>, tensor<64x8xf32>) (tensor<64x2xi32>, tensor<64x2xi32>) <64, 3>
// CHECK:         qwen35.router_stats_aux %{{.*}}, %{{.*}}, %{{.*}} <{layers = 2 : i64, scope = "pooled", slots = 2 : i64}> : tensor<1x8xf32>, tensor<1x8xf32>, tensor<f32>
// CHECK:         qwen35.router_stats_grad %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} <{layers = 2 : i64, scope = "pooled", slots = 2 : i64}> : tensor<f32>, tensor<1x8xf32>, tensor<f32>, !qwen35.seq<64, 3>
// CHECK:         return {{.*}} : tensor<f32>, tensor<64x8xf32>, tensor<64x8xf32>
func.func @router_stats(%p0: tensor<64x8xf32>, %p1: tensor<64x8xf32>, %i0: tensor<64x2xi32>, %i1: tensor<64x2xi32>,
                        %seq: !qwen35.seq<64, 3>) -> (tensor<f32>, tensor<64x8xf32>, tensor<64x8xf32>) {
  %c, %s, %n = qwen35.router_stats (%p0, %p1) (%i0, %i1) %seq <{scope = "pooled"}>
      : (tensor<64x8xf32>, tensor<64x8xf32>) (tensor<64x2xi32>, tensor<64x2xi32>) !qwen35.seq<64, 3>
  %aux = qwen35.router_stats_aux %c, %s, %n <{layers = 2, scope = "pooled", slots = 2}>
      : tensor<1x8xf32>, tensor<1x8xf32>, tensor<f32>
  %d:2 = qwen35.router_stats_grad %aux, %c, %n, %seq <{layers = 2, scope = "pooled", slots = 2}>
      : tensor<f32>, tensor<1x8xf32>, tensor<f32>, !qwen35.seq<64, 3>
  return %aux, %d#0, %d#1 : tensor<f32>, tensor<64x8xf32>, tensor<64x8xf32>
}

// CHECK-LABEL: func @moe_experts(
// CHECK:         qwen35.moe_experts %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}  : tensor<64x32xf32>, tensor<64x2xf32>, tensor<64x2xi32>, tensor<8x96x32xf32>, tensor<8x32x48xf32>
func.func @moe_experts(%x: tensor<64x32xf32>, %weights: tensor<64x2xf32>, %idx: tensor<64x2xi32>,
                       %w_gate_up: tensor<8x96x32xf32>, %w_down: tensor<8x32x48xf32>) -> tensor<64x32xf32> {
  %y = qwen35.moe_experts %x, %weights, %idx, %w_gate_up, %w_down
      : tensor<64x32xf32>, tensor<64x2xf32>, tensor<64x2xi32>, tensor<8x96x32xf32>, tensor<8x32x48xf32>
  return %y : tensor<64x32xf32>
}

// CHECK-LABEL: func @moe_experts_bwd(
// CHECK:         qwen35.moe_experts_bwd %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}  : tensor<64x32xf32>, tensor<64x32xf32>, tensor<64x2xf32>, tensor<64x2xi32>, tensor<8x96x32xf32>, tensor<8x32x48xf32>
func.func @moe_experts_bwd(%dy: tensor<64x32xf32>, %x: tensor<64x32xf32>, %weights: tensor<64x2xf32>,
                           %idx: tensor<64x2xi32>, %w_gate_up: tensor<8x96x32xf32>, %w_down: tensor<8x32x48xf32>)
    -> (tensor<64x32xf32>, tensor<64x2xf32>, tensor<8x96x32xf32>, tensor<8x32x48xf32>) {
  %dx, %dweights, %dgu, %ddown = qwen35.moe_experts_bwd %dy, %x, %weights, %idx, %w_gate_up, %w_down
      : tensor<64x32xf32>, tensor<64x32xf32>, tensor<64x2xf32>, tensor<64x2xi32>, tensor<8x96x32xf32>, tensor<8x32x48xf32>
  return %dx, %dweights, %dgu, %ddown : tensor<64x32xf32>, tensor<64x2xf32>, tensor<8x96x32xf32>, tensor<8x32x48xf32>
}
