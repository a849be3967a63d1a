// RUN: qwen35-opt %s --split-input-file --verify-diagnostics

func.func @rms_norm_c1(%x: tensor<4x128xf32>, %w: tensor<64xf32>) {
  // expected-error @below {{'qwen35.rms_norm' op weight has 64 elements but the rows of x have 128}}
  %y, %r = qwen35.rms_norm %x, %w <{eps = 0.5}> : tensor<4x128xf32>, tensor<64xf32>
  return
}

// -----

func.func @rms_norm_c2(%x: tensor<4x8xf32>, %w: tensor<8xf32>) {
  // expected-error @below {{eps must be greater than zero, got 0.0}}
  %y, %r = qwen35.rms_norm %x, %w <{eps = 0.0}> : tensor<4x8xf32>, tensor<8xf32>
  return
}

// -----

// NaN is not greater than zero either.
func.func @rms_norm_c2_nan(%x: tensor<4x8xf32>, %w: tensor<8xf32>) {
  // expected-error @below {{eps must be greater than zero, got nan}}
  %y, %r = qwen35.rms_norm %x, %w <{eps = 0x7FF8000000000000 : f64}> : tensor<4x8xf32>, tensor<8xf32>
  return
}

// -----

func.func @rms_norm_scalar(%x: tensor<f32>, %w: tensor<8xf32>) {
  // expected-error @below {{x must have at least one dimension}}
  %y, %r = qwen35.rms_norm %x, %w <{eps = 0.5}> : tensor<f32>, tensor<8xf32>
  return
}

// -----

func.func @rms_norm_without_eps(%x: tensor<4x8xf32>, %w: tensor<8xf32>) {
  // expected-error @below {{expected key entry for eps}}
  %y, %r = qwen35.rms_norm %x, %w <{offset = 1.0}> : tensor<4x8xf32>, tensor<8xf32>
  return
}

// -----

func.func @rms_norm_bwd_c1(%dy: tensor<4x4xf32>, %x: tensor<4x8xf32>, %w: tensor<8xf32>, %r: tensor<4xf32>) {
  // expected-error @below {{dy is 'tensor<4x4xf32>' but x is 'tensor<4x8xf32>'}}
  %dx, %dw = qwen35.rms_norm_bwd %dy, %x, %w, %r : tensor<4x4xf32>, tensor<4x8xf32>, tensor<8xf32>, tensor<4xf32>
  return
}

// -----

func.func @rms_norm_bwd_c2(%x: tensor<4x8xf32>, %w: tensor<4xf32>, %r: tensor<4xf32>) {
  // expected-error @below {{weight is 'tensor<4xf32>' but x is 'tensor<4x8xf32>'}}
  %dx, %dw = qwen35.rms_norm_bwd %x, %x, %w, %r : tensor<4x8xf32>, tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>
  return
}

// -----

func.func @rms_norm_bwd_rstd(%x: tensor<4x8xf32>, %w: tensor<8xf32>, %r: tensor<8xf32>) {
  // expected-error @below {{rstd is 'tensor<8xf32>', expected shape 'tensor<4xf32>'}}
  %dx, %dw = qwen35.rms_norm_bwd %x, %x, %w, %r : tensor<4x8xf32>, tensor<4x8xf32>, tensor<8xf32>, tensor<8xf32>
  return
}

// -----

func.func @gated_rms_norm_c1(%o: tensor<4x2x8xf32>, %z: tensor<4x1x8xf32>, %w: tensor<8xf32>) {
  // expected-error @below {{z is 'tensor<4x1x8xf32>' but o is 'tensor<4x2x8xf32>'}}
  %y, %r = qwen35.gated_rms_norm %o, %z, %w <{eps = 0.5}> : tensor<4x2x8xf32>, tensor<4x1x8xf32>, tensor<8xf32>
  return
}

// -----

func.func @gated_rms_norm_c2(%o: tensor<4x2x8xf32>, %w: tensor<16xf32>) {
  // expected-error @below {{weight has 16 elements but the head rows of o have 8}}
  %y, %r = qwen35.gated_rms_norm %o, %o, %w <{eps = 0.5}> : tensor<4x2x8xf32>, tensor<4x2x8xf32>, tensor<16xf32>
  return
}

// -----

func.func @gated_rms_norm_c3(%o: tensor<4x2x8xf32>, %w: tensor<8xf32>) {
  // expected-error @below {{eps must be greater than zero, got -1.0}}
  %y, %r = qwen35.gated_rms_norm %o, %o, %w <{eps = -1.0}> : tensor<4x2x8xf32>, tensor<4x2x8xf32>, tensor<8xf32>
  return
}

// -----

func.func @gated_rms_norm_bwd_c1(%o: tensor<4x2x8xf32>, %z: tensor<4x1x8xf32>, %w: tensor<8xf32>, %r: tensor<4x2xf32>) {
  // expected-error @below {{z is 'tensor<4x1x8xf32>' but o is 'tensor<4x2x8xf32>'}}
  %do, %dz, %dw = qwen35.gated_rms_norm_bwd %o, %o, %z, %w, %r
      : tensor<4x2x8xf32>, tensor<4x2x8xf32>, tensor<4x1x8xf32>, tensor<8xf32>, tensor<4x2xf32>
  return
}

// -----

func.func @gated_rms_norm_bwd_c2(%o: tensor<4x2x8xf32>, %w: tensor<16xf32>, %r: tensor<4x2xf32>) {
  // expected-error @below {{weight is 'tensor<16xf32>' but o is 'tensor<4x2x8xf32>'}}
  %do, %dz, %dw = qwen35.gated_rms_norm_bwd %o, %o, %o, %w, %r
      : tensor<4x2x8xf32>, tensor<4x2x8xf32>, tensor<4x2x8xf32>, tensor<16xf32>, tensor<4x2xf32>
  return
}

// -----

func.func @rms_norm_c1_type(%x: tensor<4x8xbf16>, %w: tensor<8xbf16>) {
  // expected-error @below {{weight is 'tensor<8xbf16>', expected elements of 'f32' where x is 'tensor<4x8xbf16>'}}
  %y, %r = qwen35.rms_norm %x, %w <{eps = 0.5}> : tensor<4x8xbf16>, tensor<8xbf16>
  return
}

// -----

func.func @rms_norm_bwd_c3(%x: tensor<4x8xbf16>, %w: tensor<8xf32>, %r: tensor<4xbf16>) {
  // expected-error @below {{rstd is 'tensor<4xbf16>', expected elements of 'f32' where x is 'tensor<4x8xbf16>'}}
  %dx, %dw = qwen35.rms_norm_bwd %x, %x, %w, %r : tensor<4x8xbf16>, tensor<4x8xbf16>, tensor<8xf32>, tensor<4xbf16>
  return
}

// -----

func.func @gated_rms_norm_c2_type(%o: tensor<4x2x8xbf16>, %w: tensor<8xbf16>) {
  // expected-error @below {{weight is 'tensor<8xbf16>', expected elements of 'f32' where o is 'tensor<4x2x8xbf16>'}}
  %y, %r = qwen35.gated_rms_norm %o, %o, %w <{eps = 0.5}> : tensor<4x2x8xbf16>, tensor<4x2x8xbf16>, tensor<8xbf16>
  return
}
