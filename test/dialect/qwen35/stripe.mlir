// Every op of the chapter through text and bytecode; result types are inferred.
// RUN: qwen35-opt %s | qwen35-opt | FileCheck %s
// RUN: qwen35-opt %s --emit-bytecode | qwen35-opt | FileCheck %s

// CHECK-LABEL: func @cp_rope_table(
// CHECK:         qwen35.cp_rope_table %{{.*}}, %{{.*}}{{.*}}: !qwen35.seq<64, 4>, tensor<20xi32>
// CHECK-NEXT:    return %{{.*}} : tensor<64x4x2xf32>
func.func @cp_rope_table(
    %seq: !qwen35.seq<64, 4>, %stripes: tensor<20xi32>)
    -> (tensor<64x4x2xf32>) {
  %table = qwen35.cp_rope_table %seq, %stripes <{theta = 1.0e7, rotary_dim = 8}>
      : !qwen35.seq<64, 4>, tensor<20xi32>
  return %table
      : tensor<64x4x2xf32>
}

// CHECK-LABEL: func @cp_attention(
// CHECK:         qwen35.cp_attention %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}{{.*}}: tensor<64x4x64xf32>, tensor<128x2x64xf32>, tensor<128x2x64xf32>, !qwen35.seq<64, 4>, tensor<20xi32>
// CHECK-NEXT:    return %{{.*}}, %{{.*}} : tensor<64x4x64xf32>, tensor<64x4xf32>
func.func @cp_attention(
    %q: tensor<64x4x64xf32>, %k: tensor<128x2x64xf32>, %v: tensor<128x2x64xf32>, %seq: !qwen35.seq<64, 4>,
    %stripes: tensor<20xi32>)
    -> (tensor<64x4x64xf32>, tensor<64x4xf32>) {
  %o, %lse = qwen35.cp_attention %q, %k, %v, %seq, %stripes <{scale = 0.125}>
      : tensor<64x4x64xf32>, tensor<128x2x64xf32>, tensor<128x2x64xf32>, !qwen35.seq<64, 4>, tensor<20xi32>
  return %o, %lse
      : tensor<64x4x64xf32>, tensor<64x4xf32>
}

// CHECK-LABEL: func @cp_attention_bwd(
// CHECK:         qwen35.cp_attention_bwd %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}{{.*}}: tensor<64x4x64xf32>, tensor<64x4x64xf32>, tensor<128x2x64xf32>, tensor<128x2x64xf32>, tensor<64x4x64xf32>, tensor<64x4xf32>, !qwen35.seq<64, 4>, tensor<20xi32>
// CHECK-NEXT:    return %{{.*}}, %{{.*}}, %{{.*}} : tensor<64x4x64xf32>, tensor<128x2x64xf32>, tensor<128x2x64xf32>
func.func @cp_attention_bwd(
    %do: tensor<64x4x64xf32>, %q: tensor<64x4x64xf32>, %k: tensor<128x2x64xf32>, %v: tensor<128x2x64xf32>,
    %o: tensor<64x4x64xf32>, %lse: tensor<64x4xf32>, %seq: !qwen35.seq<64, 4>, %stripes: tensor<20xi32>)
    -> (tensor<64x4x64xf32>, tensor<128x2x64xf32>, tensor<128x2x64xf32>) {
  %dq, %dk, %dv = qwen35.cp_attention_bwd %do, %q, %k, %v, %o, %lse, %seq, %stripes <{scale = 0.125}>
      : tensor<64x4x64xf32>, tensor<64x4x64xf32>, tensor<128x2x64xf32>, tensor<128x2x64xf32>, tensor<64x4x64xf32>,
        tensor<64x4xf32>, !qwen35.seq<64, 4>, tensor<20xi32>
  return %dq, %dk, %dv
      : tensor<64x4x64xf32>, tensor<128x2x64xf32>, tensor<128x2x64xf32>
}

// CHECK-LABEL: func @stripe_tails(
// CHECK:         qwen35.stripe_tails %{{.*}}{{.*}}: tensor<64x128xf32>
// CHECK-NEXT:    return %{{.*}} : tensor<2x3x128xf32>
func.func @stripe_tails(
    %x: tensor<64x128xf32>)
    -> (tensor<2x3x128xf32>) {
  %tails = qwen35.stripe_tails %x <{taps = 4}>
      : tensor<64x128xf32>
  return %tails
      : tensor<2x3x128xf32>
}

// CHECK-LABEL: func @cp_causal_conv(
// CHECK:         qwen35.cp_causal_conv %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}  : tensor<64x128xf32>, tensor<4x3x128xf32>, tensor<128x1x4xf32>, !qwen35.seq<64, 4>, tensor<20xi32>
// CHECK-NEXT:    return %{{.*}} : tensor<64x128xf32>
func.func @cp_causal_conv(
    %x: tensor<64x128xf32>, %tails: tensor<4x3x128xf32>, %w: tensor<128x1x4xf32>, %seq: !qwen35.seq<64, 4>,
    %stripes: tensor<20xi32>)
    -> (tensor<64x128xf32>) {
  %y = qwen35.cp_causal_conv %x, %tails, %w, %seq, %stripes
      : tensor<64x128xf32>, tensor<4x3x128xf32>, tensor<128x1x4xf32>, !qwen35.seq<64, 4>, tensor<20xi32>
  return %y
      : tensor<64x128xf32>
}

// CHECK-LABEL: func @cp_causal_conv_bwd(
// CHECK:         qwen35.cp_causal_conv_bwd %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}  : tensor<64x128xf32>, tensor<64x128xf32>, tensor<4x3x128xf32>, tensor<128x1x4xf32>, !qwen35.seq<64, 4>, tensor<20xi32>
// CHECK-NEXT:    return %{{.*}}, %{{.*}}, %{{.*}} : tensor<64x128xf32>, tensor<2x3x128xf32>, tensor<128x1x4xf32>
func.func @cp_causal_conv_bwd(
    %dy: tensor<64x128xf32>, %x: tensor<64x128xf32>, %tails: tensor<4x3x128xf32>, %w: tensor<128x1x4xf32>,
    %seq: !qwen35.seq<64, 4>, %stripes: tensor<20xi32>)
    -> (tensor<64x128xf32>, tensor<2x3x128xf32>, tensor<128x1x4xf32>) {
  %dx, %dhalo, %dw = qwen35.cp_causal_conv_bwd %dy, %x, %tails, %w, %seq, %stripes
      : tensor<64x128xf32>, tensor<64x128xf32>, tensor<4x3x128xf32>, tensor<128x1x4xf32>, !qwen35.seq<64, 4>,
        tensor<20xi32>
  return %dx, %dhalo, %dw
      : tensor<64x128xf32>, tensor<2x3x128xf32>, tensor<128x1x4xf32>
}

// CHECK-LABEL: func @add_to_tails(
// CHECK:         qwen35.add_to_tails %{{.*}}, %{{.*}}, %{{.*}}  : tensor<64x128xf32>, tensor<4x3x128xf32>, tensor<20xi32>
// CHECK-NEXT:    return %{{.*}} : tensor<64x128xf32>
func.func @add_to_tails(
    %x: tensor<64x128xf32>, %halo: tensor<4x3x128xf32>, %stripes: tensor<20xi32>)
    -> (tensor<64x128xf32>) {
  %y = qwen35.add_to_tails %x, %halo, %stripes
      : tensor<64x128xf32>, tensor<4x3x128xf32>, tensor<20xi32>
  return %y
      : tensor<64x128xf32>
}

// CHECK-LABEL: func @gdn_affine(
// CHECK:         qwen35.gdn_affine %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}{{.*}}: tensor<64x2x16xf32>, tensor<64x4x8xf32>, tensor<64x4xf32>, tensor<64x4xf32>, !qwen35.seq<64, 4>, tensor<20xi32>
// CHECK-NEXT:    return %{{.*}}, %{{.*}} : tensor<2x4x16x16xf32>, tensor<2x4x16x8xf32>
func.func @gdn_affine(
    %k: tensor<64x2x16xf32>, %v: tensor<64x4x8xf32>, %g: tensor<64x4xf32>, %beta: tensor<64x4xf32>,
    %seq: !qwen35.seq<64, 4>, %stripes: tensor<20xi32>)
    -> (tensor<2x4x16x16xf32>, tensor<2x4x16x8xf32>) {
  %m, %b = qwen35.gdn_affine %k, %v, %g, %beta, %seq, %stripes <{eps = 1.0e-6}>
      : tensor<64x2x16xf32>, tensor<64x4x8xf32>, tensor<64x4xf32>, tensor<64x4xf32>, !qwen35.seq<64, 4>,
        tensor<20xi32>
  return %m, %b
      : tensor<2x4x16x16xf32>, tensor<2x4x16x8xf32>
}

// CHECK-LABEL: func @affine_scan(
// CHECK:         qwen35.affine_scan %{{.*}}, %{{.*}}, %{{.*}}  : tensor<4x4x16x16xf32>, tensor<4x4x16x8xf32>, tensor<20xi32>
// CHECK-NEXT:    return %{{.*}} : tensor<2x4x16x8xf32>
func.func @affine_scan(
    %m: tensor<4x4x16x16xf32>, %b: tensor<4x4x16x8xf32>, %stripes: tensor<20xi32>)
    -> (tensor<2x4x16x8xf32>) {
  %states = qwen35.affine_scan %m, %b, %stripes
      : tensor<4x4x16x16xf32>, tensor<4x4x16x8xf32>, tensor<20xi32>
  return %states
      : tensor<2x4x16x8xf32>
}

// CHECK-LABEL: func @affine_scan_bwd(
// CHECK:         qwen35.affine_scan_bwd %{{.*}}, %{{.*}}, %{{.*}}  : tensor<4x4x16x16xf32>, tensor<4x4x16x8xf32>, tensor<20xi32>
// CHECK-NEXT:    return %{{.*}} : tensor<2x4x16x8xf32>
func.func @affine_scan_bwd(
    %m: tensor<4x4x16x16xf32>, %c: tensor<4x4x16x8xf32>, %stripes: tensor<20xi32>)
    -> (tensor<2x4x16x8xf32>) {
  %gradients = qwen35.affine_scan_bwd %m, %c, %stripes
      : tensor<4x4x16x16xf32>, tensor<4x4x16x8xf32>, tensor<20xi32>
  return %gradients
      : tensor<2x4x16x8xf32>
}

// CHECK-LABEL: func @cp_gated_delta_rule(
// CHECK:         qwen35.cp_gated_delta_rule %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}{{.*}}: tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4x8xf32>, tensor<64x4xf32>, tensor<64x4xf32>, tensor<2x4x16x8xf32>, !qwen35.seq<64, 4>, tensor<20xi32>
// CHECK-NEXT:    return %{{.*}} : tensor<64x4x8xf32>
func.func @cp_gated_delta_rule(
    %q: tensor<64x2x16xf32>, %k: tensor<64x2x16xf32>, %v: tensor<64x4x8xf32>, %g: tensor<64x4xf32>,
    %beta: tensor<64x4xf32>, %states: tensor<2x4x16x8xf32>, %seq: !qwen35.seq<64, 4>, %stripes: tensor<20xi32>)
    -> (tensor<64x4x8xf32>) {
  %o = qwen35.cp_gated_delta_rule %q, %k, %v, %g, %beta, %states, %seq, %stripes <{scale = 0.25, eps = 1.0e-6}>
      : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4x8xf32>, tensor<64x4xf32>, tensor<64x4xf32>,
        tensor<2x4x16x8xf32>, !qwen35.seq<64, 4>, tensor<20xi32>
  return %o
      : tensor<64x4x8xf32>
}

// CHECK-LABEL: func @gdn_state_grad(
// CHECK:         qwen35.gdn_state_grad %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}{{.*}}: tensor<64x4x8xf32>, tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4xf32>, tensor<64x4xf32>, !qwen35.seq<64, 4>, tensor<20xi32>
// CHECK-NEXT:    return %{{.*}} : tensor<2x4x16x8xf32>
func.func @gdn_state_grad(
    %do: tensor<64x4x8xf32>, %q: tensor<64x2x16xf32>, %k: tensor<64x2x16xf32>, %g: tensor<64x4xf32>,
    %beta: tensor<64x4xf32>, %seq: !qwen35.seq<64, 4>, %stripes: tensor<20xi32>)
    -> (tensor<2x4x16x8xf32>) {
  %c = qwen35.gdn_state_grad %do, %q, %k, %g, %beta, %seq, %stripes <{scale = 0.25, eps = 1.0e-6}>
      : tensor<64x4x8xf32>, tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4xf32>, tensor<64x4xf32>,
        !qwen35.seq<64, 4>, tensor<20xi32>
  return %c
      : tensor<2x4x16x8xf32>
}

// CHECK-LABEL: func @cp_gated_delta_rule_bwd(
// CHECK:         qwen35.cp_gated_delta_rule_bwd %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}{{.*}}: tensor<64x4x8xf32>, tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4x8xf32>, tensor<64x4xf32>, tensor<64x4xf32>, tensor<2x4x16x8xf32>, tensor<2x4x16x8xf32>, !qwen35.seq<64, 4>, tensor<20xi32>
// CHECK-NEXT:    return %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4x8xf32>, tensor<64x4xf32>, tensor<64x4xf32>
func.func @cp_gated_delta_rule_bwd(
    %do: tensor<64x4x8xf32>, %q: tensor<64x2x16xf32>, %k: tensor<64x2x16xf32>, %v: tensor<64x4x8xf32>,
    %g: tensor<64x4xf32>, %beta: tensor<64x4xf32>, %states: tensor<2x4x16x8xf32>, %gradients: tensor<2x4x16x8xf32>,
    %seq: !qwen35.seq<64, 4>, %stripes: tensor<20xi32>)
    -> (tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4x8xf32>, tensor<64x4xf32>, tensor<64x4xf32>) {
  %dq, %dk, %dv, %dg, %dbeta = qwen35.cp_gated_delta_rule_bwd %do, %q, %k, %v, %g, %beta, %states, %gradients, %seq, %stripes <{scale = 0.25, eps = 1.0e-6}>
      : tensor<64x4x8xf32>, tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4x8xf32>, tensor<64x4xf32>,
        tensor<64x4xf32>, tensor<2x4x16x8xf32>, tensor<2x4x16x8xf32>, !qwen35.seq<64, 4>, tensor<20xi32>
  return %dq, %dk, %dv, %dg, %dbeta
      : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4x8xf32>, tensor<64x4xf32>, tensor<64x4xf32>
}
