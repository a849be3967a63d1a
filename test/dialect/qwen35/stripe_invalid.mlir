// RUN: qwen35-opt %s --split-input-file --verify-diagnostics

func.func @stripes_words(%seq: !qwen35.seq<64, 4>, %stripes: tensor<19xi32>) {
  // expected-error @below {{stripes has 19 words, expected 8 and 6 for each of the ranks}}
  %t = qwen35.cp_rope_table %seq, %stripes <{theta = 1.0e7, rotary_dim = 8}> : !qwen35.seq<64, 4>, tensor<19xi32>
  return
}

// -----

func.func @stripes_of_no_rank(%seq: !qwen35.seq<64, 4>, %stripes: tensor<8xi32>) {
  // expected-error @below {{stripes has 8 words, expected 8 and 6 for each of the ranks}}
  %t = qwen35.cp_rope_table %seq, %stripes <{theta = 1.0e7, rotary_dim = 8}> : !qwen35.seq<64, 4>, tensor<8xi32>
  return
}

// -----

func.func @odd_tokens(%seq: !qwen35.seq<65, 4>, %stripes: tensor<20xi32>) {
  // expected-error @below {{has 65 tokens, which are not two stripes}}
  %t = qwen35.cp_rope_table %seq, %stripes <{theta = 1.0e7, rotary_dim = 8}> : !qwen35.seq<65, 4>, tensor<20xi32>
  return
}

// -----

func.func @rope_dims(%seq: !qwen35.seq<64, 4>, %stripes: tensor<20xi32>) {
  // expected-error @below {{rotary_dim must be even and positive, got 7}}
  %t = qwen35.cp_rope_table %seq, %stripes <{theta = 1.0e7, rotary_dim = 7}> : !qwen35.seq<64, 4>, tensor<20xi32>
  return
}

// -----

// Keys of two ranks are gathered, not those of one.
func.func @attention_keys(%q: tensor<64x4x8xf32>, %k: tensor<64x2x8xf32>, %seq: !qwen35.seq<64, 4>, %stripes: tensor<20xi32>) {
  // expected-error @below {{k is 'tensor<64x2x8xf32>', expected shape 'tensor<128x2x8xf32>'}}
  %o, %lse = qwen35.cp_attention %q, %k, %k, %seq, %stripes <{scale = 0.5}>
      : tensor<64x4x8xf32>, tensor<64x2x8xf32>, tensor<64x2x8xf32>, !qwen35.seq<64, 4>, tensor<20xi32>
  return
}

// -----

func.func @attention_heads(%q: tensor<64x3x8xf32>, %k: tensor<128x2x8xf32>, %seq: !qwen35.seq<64, 4>, %stripes: tensor<20xi32>) {
  // expected-error @below {{2 key heads do not divide 3 query heads}}
  %o, %lse = qwen35.cp_attention %q, %k, %k, %seq, %stripes <{scale = 0.5}>
      : tensor<64x3x8xf32>, tensor<128x2x8xf32>, tensor<128x2x8xf32>, !qwen35.seq<64, 4>, tensor<20xi32>
  return
}

// -----

func.func @attention_tokens(%q: tensor<32x4x8xf32>, %k: tensor<64x2x8xf32>, %seq: !qwen35.seq<64, 4>, %stripes: tensor<20xi32>) {
  // expected-error @below {{has 32 tokens but its document table describes 64}}
  %o, %lse = qwen35.cp_attention %q, %k, %k, %seq, %stripes <{scale = 0.5}>
      : tensor<32x4x8xf32>, tensor<64x2x8xf32>, tensor<64x2x8xf32>, !qwen35.seq<64, 4>, tensor<20xi32>
  return
}

// -----

func.func @short_stripes(%x: tensor<4x8xf32>) {
  // expected-error @below {{has 4 taps, expected 2 to 3 for stripes of 2 tokens}}
  %t = qwen35.stripe_tails %x <{taps = 4}> : tensor<4x8xf32>
  return
}

// -----

func.func @one_tap(%x: tensor<8x8xf32>) {
  // expected-error @below {{has 1 taps, expected 2 to 5 for stripes of 4 tokens}}
  %t = qwen35.stripe_tails %x <{taps = 1}> : tensor<8x8xf32>
  return
}

// -----

func.func @conv_tails(%x: tensor<64x8xf32>, %t: tensor<2x3x8xf32>, %w: tensor<8x1x4xf32>, %seq: !qwen35.seq<64, 4>, %stripes: tensor<20xi32>) {
  // expected-error @below {{tails is 'tensor<2x3x8xf32>', expected shape 'tensor<4x3x8xf32>'}}
  %y = qwen35.cp_causal_conv %x, %t, %w, %seq, %stripes
      : tensor<64x8xf32>, tensor<2x3x8xf32>, tensor<8x1x4xf32>, !qwen35.seq<64, 4>, tensor<20xi32>
  return
}

// -----

func.func @conv_weight(%x: tensor<64x8xf32>, %t: tensor<4x3x8xf32>, %w: tensor<4x1x4xf32>, %seq: !qwen35.seq<64, 4>, %stripes: tensor<20xi32>) {
  // expected-error @below {{weight is 'tensor<4x1x4xf32>', expected [8, 1, taps] for the columns of x}}
  %y = qwen35.cp_causal_conv %x, %t, %w, %seq, %stripes
      : tensor<64x8xf32>, tensor<4x3x8xf32>, tensor<4x1x4xf32>, !qwen35.seq<64, 4>, tensor<20xi32>
  return
}

// -----

func.func @halo_columns(%x: tensor<64x8xf32>, %h: tensor<4x3x4xf32>, %stripes: tensor<20xi32>) {
  // expected-error @below {{halo is 'tensor<4x3x4xf32>', expected shape 'tensor<4x3x8xf32>'}}
  %y = qwen35.add_to_tails %x, %h, %stripes : tensor<64x8xf32>, tensor<4x3x4xf32>, tensor<20xi32>
  return
}

// -----

func.func @affine_gates(%k: tensor<64x2x16xf32>, %v: tensor<64x4x8xf32>, %g: tensor<64x2xf32>, %seq: !qwen35.seq<64, 4>, %stripes: tensor<20xi32>) {
  // expected-error @below {{g is 'tensor<64x2xf32>', expected shape 'tensor<64x4xf32>'}}
  %m, %b = qwen35.gdn_affine %k, %v, %g, %g, %seq, %stripes <{eps = 0.5}>
      : tensor<64x2x16xf32>, tensor<64x4x8xf32>, tensor<64x2xf32>, tensor<64x2xf32>, !qwen35.seq<64, 4>, tensor<20xi32>
  return
}

// -----

// The maps of the rank are not those of all ranks.
func.func @scan_not_gathered(%m: tensor<2x4x16x16xf32>, %b: tensor<2x4x16x8xf32>, %stripes: tensor<20xi32>) {
  // expected-error @below {{m is 'tensor<2x4x16x16xf32>', expected shape 'tensor<4x4x16x16xf32>'}}
  %s = qwen35.affine_scan %m, %b, %stripes : tensor<2x4x16x16xf32>, tensor<2x4x16x8xf32>, tensor<20xi32>
  return
}

// -----

func.func @scan_rounded(%m: tensor<4x4x16x16xbf16>, %b: tensor<4x4x16x8xbf16>, %stripes: tensor<20xi32>) {
  // expected-error @below {{m is 'tensor<4x4x16x16xbf16>', expected elements of f32}}
  %s = qwen35.affine_scan %m, %b, %stripes : tensor<4x4x16x16xbf16>, tensor<4x4x16x8xbf16>, tensor<20xi32>
  return
}

// -----

func.func @rule_states(%q: tensor<64x2x16xf32>, %v: tensor<64x4x8xf32>, %g: tensor<64x4xf32>, %s: tensor<4x4x16x8xf32>, %seq: !qwen35.seq<64, 4>, %stripes: tensor<20xi32>) {
  // expected-error @below {{states is 'tensor<4x4x16x8xf32>', expected shape 'tensor<2x4x16x8xf32>'}}
  %o = qwen35.cp_gated_delta_rule %q, %q, %v, %g, %g, %s, %seq, %stripes <{scale = 0.5, eps = 0.5}>
      : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4x8xf32>, tensor<64x4xf32>, tensor<64x4xf32>,
        tensor<4x4x16x8xf32>, !qwen35.seq<64, 4>, tensor<20xi32>
  return
}

// -----

func.func @rule_eps(%q: tensor<64x2x16xf32>, %v: tensor<64x4x8xf32>, %g: tensor<64x4xf32>, %seq: !qwen35.seq<64, 4>, %stripes: tensor<20xi32>) {
  // expected-error @below {{eps must be greater than zero, got 0}}
  %c = qwen35.gdn_state_grad %v, %q, %q, %g, %g, %seq, %stripes <{scale = 0.5, eps = 0.0}>
      : tensor<64x4x8xf32>, tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4xf32>, tensor<64x4xf32>,
        !qwen35.seq<64, 4>, tensor<20xi32>
  return
}
