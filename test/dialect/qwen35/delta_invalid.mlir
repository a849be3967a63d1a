// RUN: qwen35-opt %s --split-input-file --verify-diagnostics

func.func @causal_conv_c1(%x: tensor<64x8xf32>, %w: tensor<4x1x4xf32>, %seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{weight is 'tensor<4x1x4xf32>', expected [8, 1, taps] for the columns of x}}
  %y = qwen35.causal_conv %x, %w, %seq : tensor<64x8xf32>, tensor<4x1x4xf32>, !qwen35.seq<64, 3>
  return
}

// -----

func.func @causal_conv_c2(%x: tensor<64x8xf32>, %w: tensor<8x1x4xf32>, %seq: !qwen35.seq<65, 3>) {
  // expected-error @below {{has 64 tokens but its document table describes 65}}
  %y = qwen35.causal_conv %x, %w, %seq : tensor<64x8xf32>, tensor<8x1x4xf32>, !qwen35.seq<65, 3>
  return
}

// -----

func.func @causal_conv_bwd_dy(%dy: tensor<64x4xf32>, %x: tensor<64x8xf32>, %w: tensor<8x1x4xf32>, %seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{dy is 'tensor<64x4xf32>' but x is 'tensor<64x8xf32>'}}
  %dx, %dw = qwen35.causal_conv_bwd %dy, %x, %w, %seq
      : tensor<64x4xf32>, tensor<64x8xf32>, tensor<8x1x4xf32>, !qwen35.seq<64, 3>
  return
}

// -----

func.func @gdn_gates_c1(%a: tensor<64x4xf32>, %b: tensor<64x2xf32>, %p: tensor<4xf32>) {
  // expected-error @below {{b is 'tensor<64x2xf32>' but a is 'tensor<64x4xf32>'}}
  %g, %beta = qwen35.gdn_gates %a, %b, %p, %p : tensor<64x4xf32>, tensor<64x2xf32>, tensor<4xf32>, tensor<4xf32>
  return
}

// -----

func.func @gdn_gates_c2(%a: tensor<64x4xf32>, %p: tensor<4xf32>, %dt: tensor<2xf32>) {
  // expected-error @below {{dt_bias is 'tensor<2xf32>', expected shape 'tensor<4xf32>'}}
  %g, %beta = qwen35.gdn_gates %a, %a, %p, %dt : tensor<64x4xf32>, tensor<64x4xf32>, tensor<4xf32>, tensor<2xf32>
  return
}

// -----

func.func @gdn_gates_bwd_dg(%dg: tensor<64x2xf32>, %a: tensor<64x4xf32>, %p: tensor<4xf32>) {
  // expected-error @below {{dg is 'tensor<64x2xf32>', expected shape 'tensor<64x4xf32>'}}
  %da, %db, %dal, %ddt = qwen35.gdn_gates_bwd %dg, %a, %a, %a, %p, %p
      : tensor<64x2xf32>, tensor<64x4xf32>, tensor<64x4xf32>, tensor<64x4xf32>, tensor<4xf32>, tensor<4xf32>
  return
}

// -----

func.func @gated_delta_rule_c1(%q: tensor<64x2x16xf32>, %k: tensor<64x2x8xf32>, %v: tensor<64x4x16xf32>,
                               %g: tensor<64x4xf32>, %seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{k is 'tensor<64x2x8xf32>' but q is 'tensor<64x2x16xf32>'}}
  %o = qwen35.gated_delta_rule %q, %k, %v, %g, %g, %seq <{scale = 0.25, eps = 0.5}>
      : tensor<64x2x16xf32>, tensor<64x2x8xf32>, tensor<64x4x16xf32>, tensor<64x4xf32>, tensor<64x4xf32>, !qwen35.seq<64, 3>
  return
}

// -----

func.func @gated_delta_rule_c2(%q: tensor<64x3x16xf32>, %v: tensor<64x4x16xf32>, %g: tensor<64x4xf32>, %seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{3 key heads do not divide 4 value heads}}
  %o = qwen35.gated_delta_rule %q, %q, %v, %g, %g, %seq <{scale = 0.25, eps = 0.5}>
      : tensor<64x3x16xf32>, tensor<64x3x16xf32>, tensor<64x4x16xf32>, tensor<64x4xf32>, tensor<64x4xf32>, !qwen35.seq<64, 3>
  return
}

// -----

func.func @gated_delta_rule_c3(%q: tensor<64x2x16xf32>, %v: tensor<64x4x16xf32>, %g: tensor<64x4xf32>, %b: tensor<64x2xf32>,
                               %seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{beta is 'tensor<64x2xf32>', expected shape 'tensor<64x4xf32>'}}
  %o = qwen35.gated_delta_rule %q, %q, %v, %g, %b, %seq <{scale = 0.25, eps = 0.5}>
      : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4x16xf32>, tensor<64x4xf32>, tensor<64x2xf32>, !qwen35.seq<64, 3>
  return
}

// -----

func.func @gated_delta_rule_c4(%q: tensor<64x2x16xf32>, %v: tensor<64x4x16xf32>, %g: tensor<64x4xf32>, %seq: !qwen35.seq<32, 3>) {
  // expected-error @below {{has 64 tokens but its document table describes 32}}
  %o = qwen35.gated_delta_rule %q, %q, %v, %g, %g, %seq <{scale = 0.25, eps = 0.5}>
      : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4x16xf32>, tensor<64x4xf32>, tensor<64x4xf32>, !qwen35.seq<32, 3>
  return
}

// -----

func.func @gated_delta_rule_bwd_do(%do: tensor<64x4x8xf32>, %q: tensor<64x2x16xf32>, %v: tensor<64x4x16xf32>,
                                   %g: tensor<64x4xf32>, %seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{do is 'tensor<64x4x8xf32>' but v is 'tensor<64x4x16xf32>'}}
  %dq, %dk, %dv, %dg, %db = qwen35.gated_delta_rule_bwd %do, %q, %q, %v, %g, %g, %seq <{scale = 0.25, eps = 0.5}>
      : tensor<64x4x8xf32>, tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4x16xf32>, tensor<64x4xf32>,
        tensor<64x4xf32>, !qwen35.seq<64, 3>
  return
}

// -----

func.func @causal_conv_c1_type(%x: tensor<64x8xbf16>, %w: tensor<8x1x4xbf16>, %seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{weight is 'tensor<8x1x4xbf16>', expected elements of 'f32' where x is 'tensor<64x8xbf16>'}}
  %y = qwen35.causal_conv %x, %w, %seq : tensor<64x8xbf16>, tensor<8x1x4xbf16>, !qwen35.seq<64, 3>
  return
}

// -----

func.func @gdn_gates_c2_type(%a: tensor<64x4xbf16>, %v: tensor<4xbf16>) {
  // expected-error @below {{a_log is 'tensor<4xbf16>', expected elements of 'f32' where a is 'tensor<64x4xbf16>'}}
  %g, %beta = qwen35.gdn_gates %a, %a, %v, %v : tensor<64x4xbf16>, tensor<64x4xbf16>, tensor<4xbf16>, tensor<4xbf16>
  return
}

// -----

func.func @gated_delta_rule_c1_type(%q: tensor<64x2x16xbf16>, %v: tensor<64x4x8xf32>, %g: tensor<64x4xf32>, %seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{v is 'tensor<64x4x8xf32>', expected elements of 'bf16' where q is 'tensor<64x2x16xbf16>'}}
  %o = qwen35.gated_delta_rule %q, %q, %v, %g, %g, %seq <{scale = 0.5, eps = 0.25}>
      : tensor<64x2x16xbf16>, tensor<64x2x16xbf16>, tensor<64x4x8xf32>, tensor<64x4xf32>, tensor<64x4xf32>, !qwen35.seq<64, 3>
  return
}

// -----

func.func @gated_delta_rule_c3_type(%q: tensor<64x2x16xbf16>, %v: tensor<64x4x8xbf16>, %g: tensor<64x4xf32>, %b: tensor<64x4xbf16>,
                                    %seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{beta is 'tensor<64x4xbf16>', expected elements of 'f32' where q is 'tensor<64x2x16xbf16>'}}
  %o = qwen35.gated_delta_rule %q, %q, %v, %g, %b, %seq <{scale = 0.5, eps = 0.25}>
      : tensor<64x2x16xbf16>, tensor<64x2x16xbf16>, tensor<64x4x8xbf16>, tensor<64x4xf32>, tensor<64x4xbf16>, !qwen35.seq<64, 3>
  return
}
