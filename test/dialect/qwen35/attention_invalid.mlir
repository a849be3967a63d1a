// RUN: qwen35-opt %s --split-input-file --verify-diagnostics

func.func @rope_table_c1(%seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{rotary_dim must be even and positive, got 7}}
  %t = qwen35.rope_table %seq <{theta = 1.0e7, rotary_dim = 7}> : !qwen35.seq<64, 3>
  return
}

// -----

func.func @rope_table_c2(%seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{theta must be greater than one, got 1.0}}
  %t = qwen35.rope_table %seq <{theta = 1.0, rotary_dim = 8}> : !qwen35.seq<64, 3>
  return
}

// -----

func.func @rope_c1(%x: tensor<4x2x8xf32>, %table: tensor<5x2x2xf32>) {
  // expected-error @below {{table is 'tensor<5x2x2xf32>' but x has 4 tokens}}
  %y = qwen35.rope %x, %table : tensor<4x2x8xf32>, tensor<5x2x2xf32>
  return
}

// -----

func.func @rope_c2(%x: tensor<4x2x8xf32>, %table: tensor<4x5x2xf32>) {
  // expected-error @below {{rotates 10 dims of heads that have 8}}
  %y = qwen35.rope %x, %table : tensor<4x2x8xf32>, tensor<4x5x2xf32>
  return
}

// -----

func.func @attention_c1(%q: tensor<64x4x8xf32>, %k: tensor<64x2x8xf32>, %v: tensor<64x1x8xf32>, %seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{v is 'tensor<64x1x8xf32>' but k is 'tensor<64x2x8xf32>'}}
  %o, %l = qwen35.attention %q, %k, %v, %seq <{scale = 0.5}>
      : tensor<64x4x8xf32>, tensor<64x2x8xf32>, tensor<64x1x8xf32>, !qwen35.seq<64, 3>
  return
}

// -----

func.func @attention_c2(%q: tensor<64x4x8xf32>, %k: tensor<64x3x8xf32>, %seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{3 key heads do not divide 4 query heads}}
  %o, %l = qwen35.attention %q, %k, %k, %seq <{scale = 0.5}>
      : tensor<64x4x8xf32>, tensor<64x3x8xf32>, tensor<64x3x8xf32>, !qwen35.seq<64, 3>
  return
}

// -----

func.func @attention_c3_keys(%q: tensor<64x4x8xf32>, %k: tensor<32x2x8xf32>, %seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{q is 'tensor<64x4x8xf32>' but k is 'tensor<32x2x8xf32>'}}
  %o, %l = qwen35.attention %q, %k, %k, %seq <{scale = 0.5}>
      : tensor<64x4x8xf32>, tensor<32x2x8xf32>, tensor<32x2x8xf32>, !qwen35.seq<64, 3>
  return
}

// -----

func.func @attention_c3_table(%q: tensor<64x4x8xf32>, %seq: !qwen35.seq<32, 3>) {
  // expected-error @below {{has 64 tokens but its document table describes 32}}
  %o, %l = qwen35.attention %q, %q, %q, %seq <{scale = 0.5}>
      : tensor<64x4x8xf32>, tensor<64x4x8xf32>, tensor<64x4x8xf32>, !qwen35.seq<32, 3>
  return
}

// -----

func.func @attention_bwd_lse(%q: tensor<64x4x8xf32>, %lse: tensor<64x2xf32>, %seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{lse is 'tensor<64x2xf32>', expected shape 'tensor<64x4xf32>'}}
  %dq, %dk, %dv = qwen35.attention_bwd %q, %q, %q, %q, %q, %lse, %seq <{scale = 0.5}>
      : tensor<64x4x8xf32>, tensor<64x4x8xf32>, tensor<64x4x8xf32>, tensor<64x4x8xf32>, tensor<64x4x8xf32>,
        tensor<64x2xf32>, !qwen35.seq<64, 3>
  return
}

// -----

func.func @mul_sigmoid_c1(%x: tensor<4x8xf32>, %gate: tensor<4x2xf32>) {
  // expected-error @below {{gate is 'tensor<4x2xf32>', neither the type of x, 'tensor<4x8xf32>', nor one value per row}}
  %y = qwen35.mul_sigmoid %x, %gate : tensor<4x8xf32>, tensor<4x2xf32>
  return
}

// -----

func.func @mul_sigmoid_bwd_gate(%x: tensor<4x8xf32>, %gate: tensor<3x1xf32>) {
  // expected-error @below {{gate is 'tensor<3x1xf32>', neither the type of x, 'tensor<4x8xf32>', nor one value per row}}
  %dx, %dg = qwen35.mul_sigmoid_bwd %x, %x, %gate : tensor<4x8xf32>, tensor<4x8xf32>, tensor<3x1xf32>
  return
}

// -----

func.func @rope_c1_type(%x: tensor<64x4x32xbf16>, %table: tensor<64x4x2xbf16>) {
  // expected-error @below {{table is 'tensor<64x4x2xbf16>', expected elements of f32}}
  %y = qwen35.rope %x, %table : tensor<64x4x32xbf16>, tensor<64x4x2xbf16>
  return
}

// -----

func.func @attention_c1_type(%q: tensor<64x4x32xbf16>, %k: tensor<64x2x32xf32>, %seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{k is 'tensor<64x2x32xf32>', expected elements of 'bf16' where q is 'tensor<64x4x32xbf16>'}}
  %o, %lse = qwen35.attention %q, %k, %k, %seq <{scale = 0.5}>
      : tensor<64x4x32xbf16>, tensor<64x2x32xf32>, tensor<64x2x32xf32>, !qwen35.seq<64, 3>
  return
}

// -----

func.func @mul_sigmoid_c1_type(%x: tensor<64x32xbf16>, %gate: tensor<64x1xf32>) {
  // expected-error @below {{gate is 'tensor<64x1xf32>', neither the type of x}}
  %y = qwen35.mul_sigmoid %x, %gate : tensor<64x32xbf16>, tensor<64x1xf32>
  return
}
