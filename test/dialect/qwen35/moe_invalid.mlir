// RUN: qwen35-opt %s --split-input-file --verify-diagnostics

func.func @router_c1(%logits: tensor<4x8xf32>) {
  // expected-error @below {{top_k must be in [1, 8], got 9}}
  %w, %i, %p = qwen35.router %logits <{top_k = 9}> : tensor<4x8xf32>
  return
}

// -----

func.func @router_bwd_experts(%w: tensor<4x2xf32>, %idx: tensor<4x2xi32>) {
  // expected-error @below {{chooses 2 of 1 experts}}
  %d = qwen35.router_bwd %w, %w, %idx <{experts = 1}> : tensor<4x2xf32>, tensor<4x2xf32>, tensor<4x2xi32>
  return
}

// -----

func.func @softmax_bwd_types(%d: tensor<4x2xf32>, %p: tensor<4x8xf32>) {
  // expected-error @below {{dprobs is 'tensor<4x2xf32>' but probs is 'tensor<4x8xf32>'}}
  %dl = qwen35.softmax_bwd %d, %p : tensor<4x2xf32>, tensor<4x8xf32>
  return
}

// -----

func.func @router_aux_c1(%p: tensor<64x8xf32>, %i: tensor<64x2xi32>, %seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{scope must be "pooled" or "per_layer", got "global"}}
  %aux = qwen35.router_aux (%p) (%i) %seq <{scope = "global"}> : (tensor<64x8xf32>) (tensor<64x2xi32>) !qwen35.seq<64, 3>
  return
}

// -----

func.func @router_aux_c2_counts(%p: tensor<64x8xf32>, %i: tensor<64x2xi32>, %seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{has 2 probs and 1 idx, expected as many of both and at least one}}
  %aux = qwen35.router_aux (%p, %p) (%i) %seq <{scope = "pooled"}>
      : (tensor<64x8xf32>, tensor<64x8xf32>) (tensor<64x2xi32>) !qwen35.seq<64, 3>
  return
}

// -----

func.func @router_aux_c2_none(%seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{has 0 probs and 0 idx, expected as many of both and at least one}}
  // expected-error @below {{failed to infer returned types}}
  %aux = "qwen35.router_aux"(%seq) <{operandSegmentSizes = array<i32: 0, 0, 1>, scope = "pooled"}>
      : (!qwen35.seq<64, 3>) -> tensor<f32>
  return
}

// -----

func.func @router_aux_c2_types(%p: tensor<64x8xf32>, %r: tensor<64x4xf32>, %i: tensor<64x2xi32>, %seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{probs is 'tensor<64x4xf32>' but the first probs is 'tensor<64x8xf32>'}}
  %aux = qwen35.router_aux (%p, %r) (%i, %i) %seq <{scope = "pooled"}>
      : (tensor<64x8xf32>, tensor<64x4xf32>) (tensor<64x2xi32>, tensor<64x2xi32>) !qwen35.seq<64, 3>
  return
}

// -----

func.func @router_aux_bwd_scope(%d: tensor<f32>, %p: tensor<64x8xf32>, %i: tensor<64x2xi32>, %seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{scope must be "pooled" or "per_layer", got ""}}
  %dp = qwen35.router_aux_bwd %d (%p) (%i) %seq <{scope = ""}>
      : tensor<f32> (tensor<64x8xf32>) (tensor<64x2xi32>) !qwen35.seq<64, 3>
  return
}

// -----

func.func @router_stats_aux_c1(%c: tensor<1x8xf32>, %n: tensor<f32>) {
  // expected-error @below {{scope must be "pooled" or "per_layer", got "all"}}
  %a = qwen35.router_stats_aux %c, %c, %n <{layers = 2, scope = "all", slots = 2}> : tensor<1x8xf32>, tensor<1x8xf32>, tensor<f32>
  return
}

// -----

func.func @router_stats_aux_c2_rows(%c: tensor<1x8xf32>, %n: tensor<f32>) {
  // expected-error @below {{counts is 'tensor<1x8xf32>', expected shape 'tensor<2x8xf32>'}}
  %a = qwen35.router_stats_aux %c, %c, %n <{layers = 2, scope = "per_layer", slots = 2}>
      : tensor<1x8xf32>, tensor<1x8xf32>, tensor<f32>
  return
}

// -----

func.func @router_stats_aux_c2_sums(%c: tensor<1x8xf32>, %s: tensor<1x4xf32>, %n: tensor<f32>) {
  // expected-error @below {{sums is 'tensor<1x4xf32>' but counts is 'tensor<1x8xf32>'}}
  %a = qwen35.router_stats_aux %c, %s, %n <{layers = 2, scope = "pooled", slots = 2}>
      : tensor<1x8xf32>, tensor<1x4xf32>, tensor<f32>
  return
}

// -----

func.func @router_stats_grad_c3(%d: tensor<f32>, %c: tensor<1x8xf32>, %n: tensor<f32>, %seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{has layers 2 and slots 0, expected more than 0}}
  %a:2 = qwen35.router_stats_grad %d, %c, %n, %seq <{layers = 2, scope = "pooled", slots = 0}>
      : tensor<f32>, tensor<1x8xf32>, tensor<f32>, !qwen35.seq<64, 3>
  return
}

// -----

func.func @moe_experts_c1(%x: tensor<4x8xf32>, %w: tensor<4x2xf32>, %i: tensor<4x3xi32>, %gu: tensor<3x6x8xf32>,
                          %dn: tensor<3x8x3xf32>) {
  // expected-error @below {{idx is 'tensor<4x3xi32>', expected shape 'tensor<4x2xi32>'}}
  %y = qwen35.moe_experts %x, %w, %i, %gu, %dn
      : tensor<4x8xf32>, tensor<4x2xf32>, tensor<4x3xi32>, tensor<3x6x8xf32>, tensor<3x8x3xf32>
  return
}

// -----

func.func @moe_experts_c1_tokens(%x: tensor<4x8xf32>, %w: tensor<3x2xf32>, %i: tensor<3x2xi32>, %gu: tensor<3x6x8xf32>,
                                 %dn: tensor<3x8x3xf32>) {
  // expected-error @below {{weights is 'tensor<3x2xf32>' but x is 'tensor<4x8xf32>'}}
  %y = qwen35.moe_experts %x, %w, %i, %gu, %dn
      : tensor<4x8xf32>, tensor<3x2xf32>, tensor<3x2xi32>, tensor<3x6x8xf32>, tensor<3x8x3xf32>
  return
}

// -----

func.func @moe_experts_c2_odd(%x: tensor<4x8xf32>, %w: tensor<4x2xf32>, %i: tensor<4x2xi32>, %gu: tensor<3x5x8xf32>,
                              %dn: tensor<3x8x3xf32>) {
  // expected-error @below {{w_gate_up is 'tensor<3x5x8xf32>', expected [experts, 2 * width, 8]}}
  %y = qwen35.moe_experts %x, %w, %i, %gu, %dn
      : tensor<4x8xf32>, tensor<4x2xf32>, tensor<4x2xi32>, tensor<3x5x8xf32>, tensor<3x8x3xf32>
  return
}

// -----

func.func @moe_experts_c2_down(%x: tensor<4x8xf32>, %w: tensor<4x2xf32>, %i: tensor<4x2xi32>, %gu: tensor<3x6x8xf32>,
                               %dn: tensor<3x3x8xf32>) {
  // expected-error @below {{w_down is 'tensor<3x3x8xf32>', expected shape 'tensor<3x8x3xf32>'}}
  %y = qwen35.moe_experts %x, %w, %i, %gu, %dn
      : tensor<4x8xf32>, tensor<4x2xf32>, tensor<4x2xi32>, tensor<3x6x8xf32>, tensor<3x3x8xf32>
  return
}

// -----

func.func @moe_experts_bwd_dy(%dy: tensor<4x4xf32>, %x: tensor<4x8xf32>, %w: tensor<4x2xf32>, %i: tensor<4x2xi32>,
                              %gu: tensor<3x6x8xf32>, %dn: tensor<3x8x3xf32>) {
  // expected-error @below {{dy is 'tensor<4x4xf32>' but x is 'tensor<4x8xf32>'}}
  %dx, %dw, %dgu, %ddn = qwen35.moe_experts_bwd %dy, %x, %w, %i, %gu, %dn
      : tensor<4x4xf32>, tensor<4x8xf32>, tensor<4x2xf32>, tensor<4x2xi32>, tensor<3x6x8xf32>, tensor<3x8x3xf32>
  return
}

// -----

func.func @router_c2(%logits: tensor<4x8xbf16>) {
  // expected-error @below {{logits is 'tensor<4x8xbf16>', expected elements of f32}}
  %w, %i, %p = qwen35.router %logits <{top_k = 2}> : tensor<4x8xbf16>
  return
}

// -----

func.func @moe_experts_c2_type(%x: tensor<4x8xbf16>, %w: tensor<4x2xf32>, %i: tensor<4x2xi32>, %gu: tensor<3x12x8xbf16>, %dn: tensor<3x8x6xf32>) {
  // expected-error @below {{w_down is 'tensor<3x8x6xf32>', expected elements of 'bf16' where x is 'tensor<4x8xbf16>'}}
  %y = qwen35.moe_experts %x, %w, %i, %gu, %dn
      : tensor<4x8xbf16>, tensor<4x2xf32>, tensor<4x2xi32>, tensor<3x12x8xbf16>, tensor<3x8x6xf32>
  return
}

// -----

func.func @moe_experts_c3(%x: tensor<4x8xbf16>, %w: tensor<4x2xbf16>, %i: tensor<4x2xi32>, %gu: tensor<3x12x8xbf16>, %dn: tensor<3x8x6xbf16>) {
  // expected-error @below {{weights is 'tensor<4x2xbf16>', expected elements of 'f32' where x is 'tensor<4x8xbf16>'}}
  %y = qwen35.moe_experts %x, %w, %i, %gu, %dn
      : tensor<4x8xbf16>, tensor<4x2xbf16>, tensor<4x2xi32>, tensor<3x12x8xbf16>, tensor<3x8x6xbf16>
  return
}
