// RUN: qwen35-opt %s --qwen35-shard-propagate --qwen35-partition --split-input-file --verify-diagnostics | FileCheck %s

// What stands for the ops that read tokens in order where ranks of cp hold stripes of rows: one layer of each kind, forward and
// backward, and every collective of it. Rows of 16 tokens on two data ranks, two stripes of 4 tokens per rank of cp.

// The convolution: tails both ways. Its weight is a sum over data ranks and over cp.
module attributes {qdist.mesh = #qdist.mesh<dps = 2, cp = 2, tp = 2>} {
  // CHECK-LABEL: func @conv(
  // CHECK-SAME: %[[X:[^:]*]]: tensor<8x2xf32> {{[^%]*}}%[[W:[^:]*]]: tensor<2x1x4xf32> {{[^%]*}}%[[DY:[^:]*]]: tensor<8x2xf32> {{[^%]*}}%[[SEQ:[^:]*]]: !qwen35.seq<8, 4> {{[^%]*}}%[[ST:[^:]*]]: tensor<20xi32>
  func.func @conv(%x: tensor<32x4xf32> {qwen35.role = "input", qwen35.name = "x", qdist.sharding = #qdist.sharding<[{dps, cp}, {tp}]>},
                  %w: tensor<4x1x4xf32> {qwen35.role = "weight", qwen35.name = "w", qdist.sharding = #qdist.sharding<[{tp}, {}, {}]>},
                  %dy: tensor<32x4xf32> {qwen35.role = "input", qwen35.name = "dy", qdist.sharding = #qdist.sharding<[{dps, cp}, {tp}]>},
                  %seq: !qwen35.seq<32, 6> {qwen35.role = "input", qwen35.name = "seq", qdist.sharding = #qdist.sharding<[{dps, cp}]>},
                  %stripes: tensor<80xi32> {qwen35.role = "input", qwen35.name = "stripes", qdist.sharding = #qdist.sharding<[{dps, cp}]>},
                  %dw0: tensor<4x1x4xf32> {qwen35.role = "grad", qwen35.name = "w"})
      -> (tensor<32x4xf32> {qwen35.name = "y"}, tensor<32x4xf32> {qwen35.name = "dx"}, tensor<4x1x4xf32> {qwen35.alias = 5 : i64}) {
    // CHECK-NEXT: %[[T:.*]] = qwen35.stripe_tails %[[X]] <{taps = 4 : i64}> : tensor<8x2xf32>
    // CHECK-NEXT: %[[TT:.*]] = qdist.all_gather %[[T]] over ["cp"] <{dim = 0 : i64}> : (tensor<2x3x2xf32>) -> tensor<4x3x2xf32>
    // CHECK-NEXT: %[[Y:.*]] = qwen35.cp_causal_conv %[[X]], %[[TT]], %[[W]], %[[SEQ]], %[[ST]]
    %y = qwen35.causal_conv %x, %w, %seq : tensor<32x4xf32>, tensor<4x1x4xf32>, !qwen35.seq<32, 6>
    // CHECK-NEXT: %[[T2:.*]] = qwen35.stripe_tails %[[X]] <{taps = 4 : i64}> : tensor<8x2xf32>
    // CHECK-NEXT: %[[TT2:.*]] = qdist.all_gather %[[T2]] over ["cp"] <{dim = 0 : i64}> : (tensor<2x3x2xf32>) -> tensor<4x3x2xf32>
    // CHECK-NEXT: %[[E:.*]], %[[H:.*]], %[[DW:.*]] = qwen35.cp_causal_conv_bwd %[[DY]], %[[X]], %[[TT2]], %[[W]], %[[SEQ]], %[[ST]]
    // CHECK-NEXT: %[[HH:.*]] = qdist.all_gather %[[H]] over ["cp"] <{dim = 0 : i64}> : (tensor<2x3x2xf32>) -> tensor<4x3x2xf32>
    // CHECK-NEXT: %[[DX:.*]] = qwen35.add_to_tails %[[E]], %[[HH]], %[[ST]]
    %dx, %dw = qwen35.causal_conv_bwd %dy, %x, %w, %seq
        : tensor<32x4xf32>, tensor<32x4xf32>, tensor<4x1x4xf32>, !qwen35.seq<32, 6>
    // What the host reads is whole; the sum stays partial.
    // CHECK-NEXT: return %[[Y]], %[[DX]], %[[DW]]
    return %y, %dx, %dw : tensor<32x4xf32>, tensor<32x4xf32>, tensor<4x1x4xf32>
  }
}

// -----

// The delta rule: the map of a rank's stripes and the state from nothing, in one collective; backward the map and the gradient.
// Backward reads the map and the states of forward.
module attributes {qdist.mesh = #qdist.mesh<dps = 2, cp = 2, tp = 2>} {
  // CHECK-LABEL: func @delta(
  // CHECK-SAME: %[[Q:[^:]*]]: tensor<8x1x4xf32> {{[^%]*}}%[[K:[^:]*]]: tensor<8x1x4xf32> {{[^%]*}}%[[V:[^:]*]]: tensor<8x2x2xf32> {{[^%]*}}%[[G:[^:]*]]: tensor<8x2xf32> {{[^%]*}}%[[B:[^:]*]]: tensor<8x2xf32> {{[^%]*}}%[[DO:[^:]*]]: tensor<8x2x2xf32> {{[^%]*}}%[[SEQ:[^:]*]]: !qwen35.seq<8, 4> {{[^%]*}}%[[ST:[^:]*]]: tensor<20xi32>
  func.func @delta(%q: tensor<32x2x4xf32> {qwen35.role = "input", qwen35.name = "q", qdist.sharding = #qdist.sharding<[{dps, cp}, {tp}, {}]>},
                   %k: tensor<32x2x4xf32> {qwen35.role = "input", qwen35.name = "k", qdist.sharding = #qdist.sharding<[{dps, cp}, {tp}, {}]>},
                   %v: tensor<32x4x2xf32> {qwen35.role = "input", qwen35.name = "v", qdist.sharding = #qdist.sharding<[{dps, cp}, {tp}, {}]>},
                   %g: tensor<32x4xf32> {qwen35.role = "input", qwen35.name = "g", qdist.sharding = #qdist.sharding<[{dps, cp}, {tp}]>},
                   %beta: tensor<32x4xf32> {qwen35.role = "input", qwen35.name = "beta", qdist.sharding = #qdist.sharding<[{dps, cp}, {tp}]>},
                   %do: tensor<32x4x2xf32> {qwen35.role = "input", qwen35.name = "do", qdist.sharding = #qdist.sharding<[{dps, cp}, {tp}, {}]>},
                   %seq: !qwen35.seq<32, 6> {qwen35.role = "input", qwen35.name = "seq", qdist.sharding = #qdist.sharding<[{dps, cp}]>},
                   %stripes: tensor<80xi32> {qwen35.role = "input", qwen35.name = "stripes", qdist.sharding = #qdist.sharding<[{dps, cp}]>})
      -> (tensor<32x4x2xf32> {qwen35.name = "o"}, tensor<32x4xf32> {qwen35.name = "dbeta"}) {
    // CHECK-NEXT: %[[M:.*]], %[[E:.*]] = qwen35.gdn_affine %[[K]], %[[V]], %[[G]], %[[B]], %[[SEQ]], %[[ST]] <{eps = 2.500000e-01 : f64}>
    // CHECK-NEXT: %[[ME:.*]]:2 = qdist.all_gather %[[M]], %[[E]] over ["cp"] <{dim = 0 : i64}> : (tensor<2x2x4x4xf32>, tensor<2x2x4x2xf32>) -> (tensor<4x2x4x4xf32>, tensor<4x2x4x2xf32>)
    // CHECK-NEXT: %[[S:.*]] = qwen35.affine_scan %[[ME]]#0, %[[ME]]#1, %[[ST]]
    // CHECK-NEXT: %[[O:.*]] = qwen35.cp_gated_delta_rule %[[Q]], %[[K]], %[[V]], %[[G]], %[[B]], %[[S]], %[[SEQ]], %[[ST]] <{eps = 2.500000e-01 : f64, scale = 5.000000e-01 : f64}>
    %o = qwen35.gated_delta_rule %q, %k, %v, %g, %beta, %seq <{scale = 0.5, eps = 0.25}>
        : tensor<32x2x4xf32>, tensor<32x2x4xf32>, tensor<32x4x2xf32>, tensor<32x4xf32>, tensor<32x4xf32>, !qwen35.seq<32, 6>
    // CHECK-NEXT: %[[C:.*]] = qwen35.gdn_state_grad %[[DO]], %[[Q]], %[[K]], %[[G]], %[[B]], %[[SEQ]], %[[ST]]
    // CHECK-NEXT: %[[MC:.*]]:2 = qdist.all_gather %[[M]], %[[C]] over ["cp"] <{dim = 0 : i64}> : (tensor<2x2x4x4xf32>, tensor<2x2x4x2xf32>) -> (tensor<4x2x4x4xf32>, tensor<4x2x4x2xf32>)
    // CHECK-NEXT: %[[R:.*]] = qwen35.affine_scan_bwd %[[MC]]#0, %[[MC]]#1, %[[ST]]
    // CHECK-NEXT: %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %[[DB:.*]] = qwen35.cp_gated_delta_rule_bwd %[[DO]], %[[Q]], %[[K]], %[[V]], %[[G]], %[[B]], %[[S]], %[[R]], %[[SEQ]], %[[ST]]
    %dq, %dk, %dv, %dg, %dbeta = qwen35.gated_delta_rule_bwd %do, %q, %k, %v, %g, %beta, %seq <{scale = 0.5, eps = 0.25}>
        : tensor<32x4x2xf32>, tensor<32x2x4xf32>, tensor<32x2x4xf32>, tensor<32x4x2xf32>, tensor<32x4xf32>, tensor<32x4xf32>, !qwen35.seq<32, 6>
    // CHECK-NEXT: return %[[O]], %[[DB]]
    return %o, %dbeta : tensor<32x4x2xf32>, tensor<32x4xf32>
  }
}

// -----

// Attention in bf16, two key/value heads for four ranks of tp: keys and values are gathered, again in backward, where they are
// not those of forward; their gradients are added in f32 over cp, then over the ranks of tp that have the same heads.
module attributes {qdist.mesh = #qdist.mesh<cp = 2, tp = 4, kv = 2>} {
  // CHECK-LABEL: func @attention(
  // CHECK-SAME: %[[Q:[^:]*]]: tensor<8x1x4xbf16> {{[^%]*}}%[[K:[^:]*]]: tensor<8x1x4xbf16> {{[^%]*}}%[[V:[^:]*]]: tensor<8x1x4xbf16> {{[^%]*}}%[[DO:[^:]*]]: tensor<8x1x4xbf16> {{[^%]*}}%[[SEQ:[^:]*]]: !qwen35.seq<8, 4> {{[^%]*}}%[[ST:[^:]*]]: tensor<20xi32>
  func.func @attention(%q: tensor<16x4x4xbf16> {qwen35.role = "input", qwen35.name = "q", qdist.sharding = #qdist.sharding<[{cp}, {tp}, {}]>},
                       %k: tensor<16x2x4xbf16> {qwen35.role = "input", qwen35.name = "k", qdist.sharding = #qdist.sharding<[{cp}, {tp.0}, {}]>},
                       %v: tensor<16x2x4xbf16> {qwen35.role = "input", qwen35.name = "v", qdist.sharding = #qdist.sharding<[{cp}, {tp.0}, {}]>},
                       %do: tensor<16x4x4xbf16> {qwen35.role = "input", qwen35.name = "do", qdist.sharding = #qdist.sharding<[{cp}, {tp}, {}]>},
                       %seq: !qwen35.seq<16, 3> {qwen35.role = "input", qwen35.name = "seq", qdist.sharding = #qdist.sharding<[{cp}]>},
                       %stripes: tensor<40xi32> {qwen35.role = "input", qwen35.name = "stripes", qdist.sharding = #qdist.sharding<[{cp}]>})
      -> (tensor<16x4x4xbf16> {qwen35.name = "dq"}, tensor<16x2x4xbf16> {qwen35.name = "dk"}, tensor<16x2x2xf32> {qwen35.name = "table"}) {
    // CHECK-NEXT: %[[KV:.*]]:2 = qdist.all_gather %[[K]], %[[V]] over ["cp"] <{dim = 0 : i64}> : (tensor<8x1x4xbf16>, tensor<8x1x4xbf16>) -> (tensor<16x1x4xbf16>, tensor<16x1x4xbf16>)
    // CHECK-NEXT: %[[O:.*]], %[[L:.*]] = qwen35.cp_attention %[[Q]], %[[KV]]#0, %[[KV]]#1, %[[SEQ]], %[[ST]] <{scale = 5.000000e-01 : f64}>
    %o, %lse = qwen35.attention %q, %k, %v, %seq <{scale = 0.5}>
        : tensor<16x4x4xbf16>, tensor<16x2x4xbf16>, tensor<16x2x4xbf16>, !qwen35.seq<16, 3>
    // CHECK-NEXT: %[[AGAIN:.*]]:2 = qdist.all_gather %[[K]], %[[V]] over ["cp"] <{dim = 0 : i64}> {qwen35.recompute}
    // CHECK-NEXT: %[[DQ:.*]], %[[A:.*]], %[[B:.*]] = qwen35.cp_attention_bwd %[[DO]], %[[Q]], %[[AGAIN]]#0, %[[AGAIN]]#1, %[[O]], %[[L]], %[[SEQ]], %[[ST]]
    // CHECK-NEXT: %[[SUM:.*]]:2 = qdist.reduce_scatter %[[A]], %[[B]] over ["cp"] <{dim = 0 : i64}> : (tensor<16x1x4xf32>, tensor<16x1x4xf32>) -> (tensor<8x1x4xf32>, tensor<8x1x4xf32>)
    // CHECK-NEXT: %[[DK:.*]] = qwen35.cast %[[SUM]]#0 : tensor<8x1x4xf32> to tensor<8x1x4xbf16>
    // CHECK-NEXT: qwen35.cast %[[SUM]]#1
    %dq, %dk, %dv = qwen35.attention_bwd %do, %q, %k, %v, %o, %lse, %seq <{scale = 0.5}>
        : tensor<16x4x4xbf16>, tensor<16x4x4xbf16>, tensor<16x2x4xbf16>, tensor<16x2x4xbf16>, tensor<16x4x4xbf16>, tensor<16x4xf32>, !qwen35.seq<16, 3>
    // Positions: the table of a rank's own tokens.
    // CHECK-NEXT: %[[TABLE:.*]] = qwen35.cp_rope_table %[[SEQ]], %[[ST]] <{rotary_dim = 4 : i64, theta = 1.000000e+02 : f64}>
    %table = qwen35.rope_table %seq <{theta = 1.0e2, rotary_dim = 4}> : !qwen35.seq<16, 3>
    // CHECK-NEXT: %[[WHOLE:.*]] = qdist.all_reduce %[[DK]] over ["tp.1"]
    // CHECK-NEXT: return %[[DQ]], %[[WHOLE]], %[[TABLE]]
    return %dq, %dk, %table : tensor<16x4x4xbf16>, tensor<16x2x4xbf16>, tensor<16x2x2xf32>
  }
}

// -----

// Without the seed of stripes: said with the pass that adds it.
module attributes {qdist.mesh = #qdist.mesh<cp = 2>} {
  func.func @table(%seq: !qwen35.seq<16, 3> {qwen35.role = "input", qwen35.name = "seq", qdist.sharding = #qdist.sharding<[{cp}]>})
      -> (tensor<16x2x2xf32> {qwen35.name = "table"}) {
    // expected-error@+1 {{'qwen35.rope_table' reads tokens that lie on several ranks, but the function has no argument "stripes", which --qwen35-shard-seed adds}}
    %table = qwen35.rope_table %seq <{theta = 1.0e2, rotary_dim = 4}> : !qwen35.seq<16, 3>
    return %table : tensor<16x2x2xf32>
  }
}
