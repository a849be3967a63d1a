// RUN: qwen35-opt %s --qwen35-lower-gdn --cse --qwen35-to-kernels --split-input-file | FileCheck %s

// A rank's part of attention and convolution: the stripe table is a tensor like any other, the document table of the rank is
// 8 words, 2 x (4 + 1) for segments, 3 x (64/64 + 4) for chunks, 2 x 64 for tokens.
// CHECK-LABEL: func @rows(
// CHECK-SAME:    %[[X:[^:]*]]: tensor<64x8xf32>, %[[T:[^:]*]]: tensor<4x3x8xf32>, %[[W:[^:]*]]: tensor<8x1x4xf32>, %[[Q:[^:]*]]: tensor<64x2x4xf32>, %[[K:[^:]*]]: tensor<128x1x4xf32>, %[[SEQ:[^:]*]]: tensor<161xi32>, %[[ST:[^:]*]]: tensor<20xi32>
// CHECK:         qkern.dispatch "stripe_tails"(%[[X]]) <{{.*}}config = {taps = 4 : i64}
// CHECK:         qkern.dispatch "cp_causal_conv"(%[[X]], %[[T]], %[[W]], %[[SEQ]], %[[ST]]) <{{.*}}config = {max_docs = 4 : i64, tokens = 64 : i64}
// CHECK:         qkern.dispatch "cp_causal_conv_bwd"({{.*}}, %[[X]], %[[T]], %[[W]], %[[SEQ]], %[[ST]])
// The sum overwrites the gradient that ends there.
// CHECK:         qkern.dispatch "add_to_tails"({{.*}}, %[[T]], %[[ST]]) <{aliases = array<i64: 0>
// CHECK:         qkern.dispatch "cp_attention"(%[[Q]], %[[K]], %[[K]], %[[SEQ]], %[[ST]]) <{{.*}}config = {max_docs = 4 : i64, scale = 5.000000e-01 : f64, tokens = 64 : i64}
// CHECK:         qkern.dispatch "cp_attention_bwd"(%[[Q]], %[[Q]], %[[K]], %[[K]], {{.*}}, %[[SEQ]], %[[ST]])
// CHECK:         qkern.dispatch "cp_rope_table"(%[[SEQ]], %[[ST]])
func.func @rows(%x: tensor<64x8xf32>, %t: tensor<4x3x8xf32>, %w: tensor<8x1x4xf32>, %q: tensor<64x2x4xf32>,
                %k: tensor<128x1x4xf32>, %seq: !qwen35.seq<64, 4>, %stripes: tensor<20xi32>)
    -> (tensor<2x3x8xf32>, tensor<64x8xf32>, tensor<64x2x4xf32>, tensor<128x1x4xf32>, tensor<64x2x2xf32>) {
  %tails = qwen35.stripe_tails %x <{taps = 4}> : tensor<64x8xf32>
  %y = qwen35.cp_causal_conv %x, %t, %w, %seq, %stripes
      : tensor<64x8xf32>, tensor<4x3x8xf32>, tensor<8x1x4xf32>, !qwen35.seq<64, 4>, tensor<20xi32>
  %dx, %dh, %dw = qwen35.cp_causal_conv_bwd %y, %x, %t, %w, %seq, %stripes
      : tensor<64x8xf32>, tensor<64x8xf32>, tensor<4x3x8xf32>, tensor<8x1x4xf32>, !qwen35.seq<64, 4>, tensor<20xi32>
  %sum = qwen35.add_to_tails %dx, %t, %stripes : tensor<64x8xf32>, tensor<4x3x8xf32>, tensor<20xi32>
  %twice = qwen35.add %sum, %sum : tensor<64x8xf32>, tensor<64x8xf32>
  %o, %lse = qwen35.cp_attention %q, %k, %k, %seq, %stripes <{scale = 0.5}>
      : tensor<64x2x4xf32>, tensor<128x1x4xf32>, tensor<128x1x4xf32>, !qwen35.seq<64, 4>, tensor<20xi32>
  %dq, %dk, %dv = qwen35.cp_attention_bwd %q, %q, %k, %k, %o, %lse, %seq, %stripes <{scale = 0.5}>
      : tensor<64x2x4xf32>, tensor<64x2x4xf32>, tensor<128x1x4xf32>, tensor<128x1x4xf32>, tensor<64x2x4xf32>,
        tensor<64x2xf32>, !qwen35.seq<64, 4>, tensor<20xi32>
  %rope = qwen35.cp_rope_table %seq, %stripes <{theta = 1.0e7, rotary_dim = 4}> : !qwen35.seq<64, 4>, tensor<20xi32>
  return %tails, %twice, %dq, %dk, %rope
      : tensor<2x3x8xf32>, tensor<64x8xf32>, tensor<64x2x4xf32>, tensor<128x1x4xf32>, tensor<64x2x2xf32>
}

// -----

// The delta rule of a rank, to the last kernel.
// CHECK-LABEL: func @rule(
// CHECK:         qkern.dispatch "gdn_prep"
// CHECK-NEXT:    qkern.dispatch "cp_gdn_affine"({{.*}}) <{{.*}}config = {max_docs = 4 : i64, tokens = 64 : i64}
// CHECK-NEXT:    qkern.dispatch "affine_scan"({{.*}}) <{{.*}}config = {}
// CHECK-NEXT:    qkern.dispatch "cp_gdn_scan"
// CHECK-NEXT:    qkern.dispatch "gdn_out"
// CHECK-NEXT:    qkern.dispatch "cp_gdn_state_grad"({{.*}}) <{{.*}}config = {max_docs = 4 : i64, scale = 5.000000e-01 : f64, tokens = 64 : i64}
// CHECK-NEXT:    qkern.dispatch "affine_scan_bwd"
// CHECK-NEXT:    qkern.dispatch "cp_gdn_scan_bwd"
// CHECK-NEXT:    qkern.dispatch "gdn_local_bwd"
// CHECK-NEXT:    return
func.func @rule(%q: tensor<64x2x16xf32>, %k: tensor<64x2x16xf32>, %v: tensor<64x4x8xf32>, %g: tensor<64x4xf32>,
                %beta: tensor<64x4xf32>, %do: tensor<64x4x8xf32>, %seq: !qwen35.seq<64, 4>, %stripes: tensor<14xi32>)
    -> (tensor<64x4x8xf32>, tensor<64x2x16xf32>) {
  %m, %b = qwen35.gdn_affine %k, %v, %g, %beta, %seq, %stripes <{eps = 0.25}>
      : tensor<64x2x16xf32>, tensor<64x4x8xf32>, tensor<64x4xf32>, tensor<64x4xf32>, !qwen35.seq<64, 4>, tensor<14xi32>
  %before = qwen35.affine_scan %m, %b, %stripes : tensor<2x4x16x16xf32>, tensor<2x4x16x8xf32>, tensor<14xi32>
  %o = qwen35.cp_gated_delta_rule %q, %k, %v, %g, %beta, %before, %seq, %stripes <{scale = 0.5, eps = 0.25}>
      : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4x8xf32>, tensor<64x4xf32>, tensor<64x4xf32>,
        tensor<2x4x16x8xf32>, !qwen35.seq<64, 4>, tensor<14xi32>
  %c = qwen35.gdn_state_grad %do, %q, %k, %g, %beta, %seq, %stripes <{scale = 0.5, eps = 0.25}>
      : tensor<64x4x8xf32>, tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4xf32>, tensor<64x4xf32>,
        !qwen35.seq<64, 4>, tensor<14xi32>
  %after = qwen35.affine_scan_bwd %m, %c, %stripes : tensor<2x4x16x16xf32>, tensor<2x4x16x8xf32>, tensor<14xi32>
  %dq, %dk, %dv, %dg, %dbeta = qwen35.cp_gated_delta_rule_bwd
      %do, %q, %k, %v, %g, %beta, %before, %after, %seq, %stripes <{scale = 0.5, eps = 0.25}>
      : tensor<64x4x8xf32>, tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4x8xf32>, tensor<64x4xf32>,
        tensor<64x4xf32>, tensor<2x4x16x8xf32>, tensor<2x4x16x8xf32>, !qwen35.seq<64, 4>, tensor<14xi32>
  return %o, %dq : tensor<64x4x8xf32>, tensor<64x2x16xf32>
}
