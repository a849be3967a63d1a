// RUN: qwen35-opt %s --qwen35-remat=policy=selective --canonicalize | FileCheck %s

module attributes {qdist.mesh = #qdist.mesh<cp = 2>} {

// The convolution of a rank's stripes is made again like that of whole documents, from tails that stay.
// CHECK:      qwen35.cp_causal_conv %arg0, %arg1, %arg2, %arg3, %arg4
// CHECK:      qwen35.lm_loss_grad
// CHECK:      %[[Y:.*]] = qwen35.cp_causal_conv %arg0, %arg1, %arg2, %arg3, %arg4 {{ *}}{qwen35.recompute}
// CHECK-NEXT: qwen35.mul_sigmoid_bwd %{{.*}}, %[[Y]], %[[Y]]
func.func @accumulate(%x: tensor<8x4xf32>, %t: tensor<4x1x4xf32>, %w: tensor<4x1x2xf32>, %seq: !qwen35.seq<8, 2>,
    %stripes: tensor<20xi32>, %head: tensor<16x4xf32>, %labels: tensor<8xi32>, %inv_count: tensor<f32>)
    -> (tensor<f32>, tensor<8x4xf32>, tensor<8x4xf32>) {
  %y = qwen35.cp_causal_conv %x, %t, %w, %seq, %stripes
      : tensor<8x4xf32>, tensor<4x1x4xf32>, tensor<4x1x2xf32>, !qwen35.seq<8, 2>, tensor<20xi32> loc("layers.0.linear_attn")
  %h = qwen35.mul_sigmoid %y, %y : tensor<8x4xf32>, tensor<8x4xf32> loc("layers.0.linear_attn")
  %loss, %dh, %dhead = qwen35.lm_loss_grad %h, %head, %labels, %inv_count
      : tensor<8x4xf32>, tensor<16x4xf32>, tensor<8xi32>, tensor<f32> loc("lm_head")
  %dy, %dg = qwen35.mul_sigmoid_bwd %dh, %y, %y
      : tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf32> loc("layers.0.linear_attn")
  return %loss, %dy, %dg : tensor<f32>, tensor<8x4xf32>, tensor<8x4xf32>
}

// States that the maps of other ranks made stay, whatever the policy: what they were gathered into need not live for them.
// RUN: qwen35-opt %s --qwen35-remat=policy=full --canonicalize | FileCheck %s --check-prefix=FULL
// FULL-LABEL: func @first(
// FULL:      %[[S:.*]] = qwen35.affine_scan
// FULL:      qwen35.lm_loss_grad
// FULL-NOT:  qwen35.affine_scan
// FULL:      qwen35.cp_gated_delta_rule %{{.*}}, %[[S]], %{{.*}} {qwen35.recompute}
func.func @first(%x: tensor<8x4xf32>, %g: tensor<8x2xf32>, %seq: !qwen35.seq<8, 2>, %stripes: tensor<20xi32>,
    %m: tensor<4x2x2x2xf32>, %b: tensor<4x2x2x2xf32>, %head: tensor<16x4xf32>, %labels: tensor<8xi32>, %inv_count: tensor<f32>)
    -> (tensor<f32>, tensor<8x4xf32>) {
  %q = qwen35.reshape %x : tensor<8x4xf32> to tensor<8x2x2xf32> loc("layers.0.linear_attn")
  %s = qwen35.affine_scan %m, %b, %stripes : tensor<4x2x2x2xf32>, tensor<4x2x2x2xf32>, tensor<20xi32> loc("layers.0.linear_attn")
  %o = qwen35.cp_gated_delta_rule %q, %q, %q, %g, %g, %s, %seq, %stripes <{scale = 0.5, eps = 0.25}>
      : tensor<8x2x2xf32>, tensor<8x2x2xf32>, tensor<8x2x2xf32>, tensor<8x2xf32>, tensor<8x2xf32>, tensor<2x2x2x2xf32>,
        !qwen35.seq<8, 2>, tensor<20xi32> loc("layers.0.linear_attn")
  %h = qwen35.reshape %o : tensor<8x2x2xf32> to tensor<8x4xf32> loc("layers.0.linear_attn")
  %y = qwen35.swiglu %h, %x : tensor<8x4xf32>, tensor<8x4xf32> loc("layers.0.mlp")
  %loss, %dh, %dhead = qwen35.lm_loss_grad %y, %head, %labels, %inv_count
      : tensor<8x4xf32>, tensor<16x4xf32>, tensor<8xi32>, tensor<f32> loc("lm_head")
  %dg, %dx = qwen35.swiglu_bwd %dh, %h, %x : tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf32> loc("layers.0.mlp")
  return %loss, %dg : tensor<f32>, tensor<8x4xf32>
}

// Attention that is computed again reads the keys that backward gathers, which move ahead of it.
// FULL-LABEL: func @only(
// FULL:      %[[A:.*]]:2 = qdist.all_gather %{{.*}}, %{{.*}} over ["cp"] <{dim = 0 : i64}> :
// FULL-NEXT: qwen35.cp_attention %{{.*}}, %[[A]]#0, %[[A]]#1
// FULL-NOT:  %[[A]]#
// FULL:      qwen35.lm_loss_grad
// FULL:      %[[K:.*]] = qwen35.reshape %arg0
// FULL:      %[[B:.*]]:2 = qdist.all_gather %[[K]], %[[K]] over ["cp"] <{dim = 0 : i64}> {qwen35.recompute}
// FULL:      qwen35.cp_attention %{{.*}}, %[[B]]#0, %[[B]]#1{{.*}} {qwen35.recompute}
// FULL-NOT:  %[[A]]#
// FULL:      qwen35.cp_attention_bwd %{{.*}}, %{{.*}}, %[[B]]#0, %[[B]]#1
func.func @only(%x: tensor<8x4xf32>, %seq: !qwen35.seq<8, 2>, %stripes: tensor<20xi32>, %head: tensor<16x4xf32>,
    %labels: tensor<8xi32>, %inv_count: tensor<f32>) -> (tensor<f32>, tensor<8x2x2xf32>, tensor<16x2x2xf32>) {
  %q = qwen35.reshape %x : tensor<8x4xf32> to tensor<8x2x2xf32> loc("layers.0.self_attn")
  %kv:2 = qdist.all_gather %q, %q over ["cp"] <{dim = 0 : i64}> : (tensor<8x2x2xf32>, tensor<8x2x2xf32>)
      -> (tensor<16x2x2xf32>, tensor<16x2x2xf32>) loc("layers.0.self_attn")
  %o, %lse = qwen35.cp_attention %q, %kv#0, %kv#1, %seq, %stripes <{scale = 0.5}>
      : tensor<8x2x2xf32>, tensor<16x2x2xf32>, tensor<16x2x2xf32>, !qwen35.seq<8, 2>, tensor<20xi32> loc("layers.0.self_attn")
  %h = qwen35.reshape %o : tensor<8x2x2xf32> to tensor<8x4xf32> loc("layers.0.self_attn")
  %y = qwen35.swiglu %h, %x : tensor<8x4xf32>, tensor<8x4xf32> loc("layers.0.mlp")
  %loss, %dh, %dhead = qwen35.lm_loss_grad %y, %head, %labels, %inv_count
      : tensor<8x4xf32>, tensor<16x4xf32>, tensor<8xi32>, tensor<f32> loc("lm_head")
  %dg, %dx = qwen35.swiglu_bwd %dh, %h, %x : tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf32> loc("layers.0.mlp")
  %do = qwen35.reshape %dg : tensor<8x4xf32> to tensor<8x2x2xf32> loc("layers.0.self_attn")
  %again:2 = qdist.all_gather %q, %q over ["cp"] <{dim = 0 : i64}> {qwen35.recompute} : (tensor<8x2x2xf32>, tensor<8x2x2xf32>)
      -> (tensor<16x2x2xf32>, tensor<16x2x2xf32>) loc("layers.0.self_attn")
  %dq, %dk, %dv = qwen35.cp_attention_bwd %do, %q, %again#0, %again#1, %o, %lse, %seq, %stripes <{scale = 0.5}>
      : tensor<8x2x2xf32>, tensor<8x2x2xf32>, tensor<16x2x2xf32>, tensor<16x2x2xf32>, tensor<8x2x2xf32>, tensor<8x2xf32>,
        !qwen35.seq<8, 2>, tensor<20xi32> loc("layers.0.self_attn")
  return %loss, %dq, %dk : tensor<f32>, tensor<8x2x2xf32>, tensor<16x2x2xf32>
}

}
