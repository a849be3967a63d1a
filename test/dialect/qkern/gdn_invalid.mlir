// RUN: qwen35-opt %s --split-input-file --verify-diagnostics

func.func @gdn_prep_c1(%q: tensor<64x2x16xf32>, %k: tensor<64x2x8xf32>, %g: tensor<64x4xf32>, %beta: tensor<64x4xf32>,
                       %seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{k is 'tensor<64x2x8xf32>' but q is 'tensor<64x2x16xf32>'}}
  %r:6 = qkern.gdn_prep %q, %k, %g, %beta, %seq <{eps = 0.5}>
      : tensor<64x2x16xf32>, tensor<64x2x8xf32>, tensor<64x4xf32>, tensor<64x4xf32>, !qwen35.seq<64, 3>
  return
}

// -----

func.func @gdn_prep_c2(%q: tensor<64x3x16xf32>, %k: tensor<64x3x16xf32>, %g: tensor<64x4xf32>,
                       %beta: tensor<64x4xf32>, %seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{3 key heads do not divide 4 value heads}}
  %r:6 = qkern.gdn_prep %q, %k, %g, %beta, %seq <{eps = 0.5}>
      : tensor<64x3x16xf32>, tensor<64x3x16xf32>, tensor<64x4xf32>, tensor<64x4xf32>, !qwen35.seq<64, 3>
  return
}

// -----

func.func @gdn_prep_c3_g(%q: tensor<64x2x16xf32>, %k: tensor<64x2x16xf32>, %g: tensor<32x4xf32>,
                         %beta: tensor<64x4xf32>, %seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{g is 'tensor<32x4xf32>', expected shape 'tensor<64x4xf32>'}}
  %r:6 = qkern.gdn_prep %q, %k, %g, %beta, %seq <{eps = 0.5}>
      : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<32x4xf32>, tensor<64x4xf32>, !qwen35.seq<64, 3>
  return
}

// -----

func.func @gdn_prep_c3_beta(%q: tensor<64x2x16xf32>, %k: tensor<64x2x16xf32>, %g: tensor<64x4xf32>,
                            %beta: tensor<64x2xf32>, %seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{beta is 'tensor<64x2xf32>', expected shape 'tensor<64x4xf32>'}}
  %r:6 = qkern.gdn_prep %q, %k, %g, %beta, %seq <{eps = 0.5}>
      : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4xf32>, tensor<64x2xf32>, !qwen35.seq<64, 3>
  return
}

// -----

func.func @gdn_prep_c4(%q: tensor<64x2x16xf32>, %k: tensor<64x2x16xf32>, %g: tensor<64x4xf32>,
                       %beta: tensor<64x4xf32>, %seq: !qwen35.seq<32, 3>) {
  // expected-error @below {{has 64 tokens but its document table describes 32}}
  %r:6 = qkern.gdn_prep %q, %k, %g, %beta, %seq <{eps = 0.5}>
      : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4xf32>, tensor<64x4xf32>, !qwen35.seq<32, 3>
  return
}

// -----

func.func @gdn_prep_c5(%q: tensor<64x2x16xf32>, %k: tensor<64x2x16xf32>, %g: tensor<64x4xf32>,
                       %beta: tensor<64x4xf32>, %seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{eps must be greater than zero, got 0.0}}
  %r:6 = qkern.gdn_prep %q, %k, %g, %beta, %seq <{eps = 0.0}>
      : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4xf32>, tensor<64x4xf32>, !qwen35.seq<64, 3>
  return
}

// -----

func.func @gdn_scan_c1(%kn: tensor<64x3x16xf32>, %v: tensor<64x4x8xf32>, %beta: tensor<64x4xf32>,
                       %gamma: tensor<4x4x64xf32>, %tinv: tensor<4x4x64x64xf32>, %seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{3 key heads do not divide 4 value heads}}
  %r:2 = qkern.gdn_scan %kn, %v, %beta, %gamma, %tinv, %seq
      : tensor<64x3x16xf32>, tensor<64x4x8xf32>, tensor<64x4xf32>, tensor<4x4x64xf32>, tensor<4x4x64x64xf32>,
        !qwen35.seq<64, 3>
  return
}

// -----

func.func @gdn_scan_c2_v(%kn: tensor<64x2x16xf32>, %v: tensor<32x4x8xf32>, %beta: tensor<64x4xf32>,
                         %gamma: tensor<4x4x64xf32>, %tinv: tensor<4x4x64x64xf32>, %seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{v has 32 tokens but kn has 64}}
  %r:2 = qkern.gdn_scan %kn, %v, %beta, %gamma, %tinv, %seq
      : tensor<64x2x16xf32>, tensor<32x4x8xf32>, tensor<64x4xf32>, tensor<4x4x64xf32>, tensor<4x4x64x64xf32>,
        !qwen35.seq<64, 3>
  return
}

// -----

func.func @gdn_scan_c2_beta(%kn: tensor<64x2x16xf32>, %v: tensor<64x4x8xf32>, %beta: tensor<64x2xf32>,
                            %gamma: tensor<4x4x64xf32>, %tinv: tensor<4x4x64x64xf32>, %seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{beta is 'tensor<64x2xf32>', expected shape 'tensor<64x4xf32>'}}
  %r:2 = qkern.gdn_scan %kn, %v, %beta, %gamma, %tinv, %seq
      : tensor<64x2x16xf32>, tensor<64x4x8xf32>, tensor<64x2xf32>, tensor<4x4x64xf32>, tensor<4x4x64x64xf32>,
        !qwen35.seq<64, 3>
  return
}

// -----

func.func @gdn_scan_c3_gamma(%kn: tensor<64x2x16xf32>, %v: tensor<64x4x8xf32>, %beta: tensor<64x4xf32>,
                             %gamma: tensor<3x4x64xf32>, %tinv: tensor<4x4x64x64xf32>, %seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{gamma is 'tensor<3x4x64xf32>', expected shape 'tensor<4x4x64xf32>'}}
  %r:2 = qkern.gdn_scan %kn, %v, %beta, %gamma, %tinv, %seq
      : tensor<64x2x16xf32>, tensor<64x4x8xf32>, tensor<64x4xf32>, tensor<3x4x64xf32>, tensor<4x4x64x64xf32>,
        !qwen35.seq<64, 3>
  return
}

// -----

func.func @gdn_scan_c3_tinv(%kn: tensor<64x2x16xf32>, %v: tensor<64x4x8xf32>, %beta: tensor<64x4xf32>,
                            %gamma: tensor<4x4x64xf32>, %tinv: tensor<4x4x64x32xf32>, %seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{tinv is 'tensor<4x4x64x32xf32>', expected shape 'tensor<4x4x64x64xf32>'}}
  %r:2 = qkern.gdn_scan %kn, %v, %beta, %gamma, %tinv, %seq
      : tensor<64x2x16xf32>, tensor<64x4x8xf32>, tensor<64x4xf32>, tensor<4x4x64xf32>, tensor<4x4x64x32xf32>,
        !qwen35.seq<64, 3>
  return
}

// -----

func.func @gdn_scan_c4(%kn: tensor<64x2x16xf32>, %v: tensor<64x4x8xf32>, %beta: tensor<64x4xf32>,
                       %gamma: tensor<4x4x64xf32>, %tinv: tensor<4x4x64x64xf32>, %seq: !qwen35.seq<32, 3>) {
  // expected-error @below {{has 64 tokens but its document table describes 32}}
  %r:2 = qkern.gdn_scan %kn, %v, %beta, %gamma, %tinv, %seq
      : tensor<64x2x16xf32>, tensor<64x4x8xf32>, tensor<64x4xf32>, tensor<4x4x64xf32>, tensor<4x4x64x64xf32>,
        !qwen35.seq<32, 3>
  return
}

// -----

func.func @gdn_out_c1(%qn: tensor<64x2x16xf32>, %kn: tensor<64x2x8xf32>, %gamma: tensor<4x4x64xf32>,
                      %states: tensor<4x4x16x8xf32>, %vnew: tensor<4x4x64x8xf32>, %seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{kn is 'tensor<64x2x8xf32>' but qn is 'tensor<64x2x16xf32>'}}
  %r = qkern.gdn_out %qn, %kn, %gamma, %states, %vnew, %seq <{scale = 0.5}>
      : tensor<64x2x16xf32>, tensor<64x2x8xf32>, tensor<4x4x64xf32>, tensor<4x4x16x8xf32>, tensor<4x4x64x8xf32>,
        !qwen35.seq<64, 3>
  return
}

// -----

func.func @gdn_out_c2(%qn: tensor<64x3x16xf32>, %kn: tensor<64x3x16xf32>, %gamma: tensor<4x4x64xf32>,
                      %states: tensor<4x4x16x8xf32>, %vnew: tensor<4x4x64x8xf32>, %seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{3 key heads do not divide 4 value heads}}
  %r = qkern.gdn_out %qn, %kn, %gamma, %states, %vnew, %seq <{scale = 0.5}>
      : tensor<64x3x16xf32>, tensor<64x3x16xf32>, tensor<4x4x64xf32>, tensor<4x4x16x8xf32>, tensor<4x4x64x8xf32>,
        !qwen35.seq<64, 3>
  return
}

// -----

func.func @gdn_out_c3_gamma(%qn: tensor<64x2x16xf32>, %kn: tensor<64x2x16xf32>, %gamma: tensor<4x4x32xf32>,
                            %states: tensor<4x4x16x8xf32>, %vnew: tensor<4x4x64x8xf32>, %seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{gamma is 'tensor<4x4x32xf32>', expected shape 'tensor<4x4x64xf32>'}}
  %r = qkern.gdn_out %qn, %kn, %gamma, %states, %vnew, %seq <{scale = 0.5}>
      : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<4x4x32xf32>, tensor<4x4x16x8xf32>, tensor<4x4x64x8xf32>,
        !qwen35.seq<64, 3>
  return
}

// -----

func.func @gdn_out_c3_states(%qn: tensor<64x2x16xf32>, %kn: tensor<64x2x16xf32>, %gamma: tensor<4x4x64xf32>,
                             %states: tensor<4x4x8x8xf32>, %vnew: tensor<4x4x64x8xf32>, %seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{states is 'tensor<4x4x8x8xf32>', expected shape 'tensor<4x4x16x8xf32>'}}
  %r = qkern.gdn_out %qn, %kn, %gamma, %states, %vnew, %seq <{scale = 0.5}>
      : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<4x4x64xf32>, tensor<4x4x8x8xf32>, tensor<4x4x64x8xf32>,
        !qwen35.seq<64, 3>
  return
}

// -----

func.func @gdn_out_c3_vnew(%qn: tensor<64x2x16xf32>, %kn: tensor<64x2x16xf32>, %gamma: tensor<4x4x64xf32>,
                           %states: tensor<4x4x16x8xf32>, %vnew: tensor<5x4x64x8xf32>, %seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{vnew is 'tensor<5x4x64x8xf32>', expected shape 'tensor<4x4x64x8xf32>'}}
  %r = qkern.gdn_out %qn, %kn, %gamma, %states, %vnew, %seq <{scale = 0.5}>
      : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<4x4x64xf32>, tensor<4x4x16x8xf32>, tensor<5x4x64x8xf32>,
        !qwen35.seq<64, 3>
  return
}

// -----

func.func @gdn_out_c4(%qn: tensor<64x2x16xf32>, %kn: tensor<64x2x16xf32>, %gamma: tensor<4x4x64xf32>,
                      %states: tensor<4x4x16x8xf32>, %vnew: tensor<4x4x64x8xf32>, %seq: !qwen35.seq<32, 3>) {
  // expected-error @below {{has 64 tokens but its document table describes 32}}
  %r = qkern.gdn_out %qn, %kn, %gamma, %states, %vnew, %seq <{scale = 0.5}>
      : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<4x4x64xf32>, tensor<4x4x16x8xf32>, tensor<4x4x64x8xf32>,
        !qwen35.seq<32, 3>
  return
}

// -----

func.func @gdn_scan_bwd_c1(%qn: tensor<64x2x16xf32>, %kn: tensor<64x2x8xf32>, %do: tensor<64x4x8xf32>,
                           %beta: tensor<64x4xf32>, %gamma: tensor<4x4x64xf32>, %tinv: tensor<4x4x64x64xf32>,
                           %seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{kn is 'tensor<64x2x8xf32>' but qn is 'tensor<64x2x16xf32>'}}
  %r:2 = qkern.gdn_scan_bwd %qn, %kn, %do, %beta, %gamma, %tinv, %seq <{scale = 0.5}>
      : tensor<64x2x16xf32>, tensor<64x2x8xf32>, tensor<64x4x8xf32>, tensor<64x4xf32>, tensor<4x4x64xf32>,
        tensor<4x4x64x64xf32>, !qwen35.seq<64, 3>
  return
}

// -----

func.func @gdn_scan_bwd_c2(%qn: tensor<64x3x16xf32>, %kn: tensor<64x3x16xf32>, %do: tensor<64x4x8xf32>,
                           %beta: tensor<64x4xf32>, %gamma: tensor<4x4x64xf32>, %tinv: tensor<4x4x64x64xf32>,
                           %seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{3 key heads do not divide 4 value heads}}
  %r:2 = qkern.gdn_scan_bwd %qn, %kn, %do, %beta, %gamma, %tinv, %seq <{scale = 0.5}>
      : tensor<64x3x16xf32>, tensor<64x3x16xf32>, tensor<64x4x8xf32>, tensor<64x4xf32>, tensor<4x4x64xf32>,
        tensor<4x4x64x64xf32>, !qwen35.seq<64, 3>
  return
}

// -----

func.func @gdn_scan_bwd_c3_do(%qn: tensor<64x2x16xf32>, %kn: tensor<64x2x16xf32>, %do: tensor<32x4x8xf32>,
                              %beta: tensor<64x4xf32>, %gamma: tensor<4x4x64xf32>, %tinv: tensor<4x4x64x64xf32>,
                              %seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{do has 32 tokens but kn has 64}}
  %r:2 = qkern.gdn_scan_bwd %qn, %kn, %do, %beta, %gamma, %tinv, %seq <{scale = 0.5}>
      : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<32x4x8xf32>, tensor<64x4xf32>, tensor<4x4x64xf32>,
        tensor<4x4x64x64xf32>, !qwen35.seq<64, 3>
  return
}

// -----

func.func @gdn_scan_bwd_c3_beta(%qn: tensor<64x2x16xf32>, %kn: tensor<64x2x16xf32>, %do: tensor<64x4x8xf32>,
                                %beta: tensor<64x2xf32>, %gamma: tensor<4x4x64xf32>, %tinv: tensor<4x4x64x64xf32>,
                                %seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{beta is 'tensor<64x2xf32>', expected shape 'tensor<64x4xf32>'}}
  %r:2 = qkern.gdn_scan_bwd %qn, %kn, %do, %beta, %gamma, %tinv, %seq <{scale = 0.5}>
      : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4x8xf32>, tensor<64x2xf32>, tensor<4x4x64xf32>,
        tensor<4x4x64x64xf32>, !qwen35.seq<64, 3>
  return
}

// -----

func.func @gdn_scan_bwd_c4_gamma(%qn: tensor<64x2x16xf32>, %kn: tensor<64x2x16xf32>, %do: tensor<64x4x8xf32>,
                                 %beta: tensor<64x4xf32>, %gamma: tensor<3x4x64xf32>, %tinv: tensor<4x4x64x64xf32>,
                                 %seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{gamma is 'tensor<3x4x64xf32>', expected shape 'tensor<4x4x64xf32>'}}
  %r:2 = qkern.gdn_scan_bwd %qn, %kn, %do, %beta, %gamma, %tinv, %seq <{scale = 0.5}>
      : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4x8xf32>, tensor<64x4xf32>, tensor<3x4x64xf32>,
        tensor<4x4x64x64xf32>, !qwen35.seq<64, 3>
  return
}

// -----

func.func @gdn_scan_bwd_c4_tinv(%qn: tensor<64x2x16xf32>, %kn: tensor<64x2x16xf32>, %do: tensor<64x4x8xf32>,
                                %beta: tensor<64x4xf32>, %gamma: tensor<4x4x64xf32>, %tinv: tensor<4x2x64x64xf32>,
                                %seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{tinv is 'tensor<4x2x64x64xf32>', expected shape 'tensor<4x4x64x64xf32>'}}
  %r:2 = qkern.gdn_scan_bwd %qn, %kn, %do, %beta, %gamma, %tinv, %seq <{scale = 0.5}>
      : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4x8xf32>, tensor<64x4xf32>, tensor<4x4x64xf32>,
        tensor<4x2x64x64xf32>, !qwen35.seq<64, 3>
  return
}

// -----

func.func @gdn_scan_bwd_c5(%qn: tensor<64x2x16xf32>, %kn: tensor<64x2x16xf32>, %do: tensor<64x4x8xf32>,
                           %beta: tensor<64x4xf32>, %gamma: tensor<4x4x64xf32>, %tinv: tensor<4x4x64x64xf32>,
                           %seq: !qwen35.seq<32, 3>) {
  // expected-error @below {{has 64 tokens but its document table describes 32}}
  %r:2 = qkern.gdn_scan_bwd %qn, %kn, %do, %beta, %gamma, %tinv, %seq <{scale = 0.5}>
      : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4x8xf32>, tensor<64x4xf32>, tensor<4x4x64xf32>,
        tensor<4x4x64x64xf32>, !qwen35.seq<32, 3>
  return
}

// -----

func.func @gdn_local_bwd_c1_kn(%qn: tensor<64x2x16xf32>, %kn: tensor<64x2x8xf32>, %qr: tensor<64x2xf32>,
                               %kr: tensor<64x2xf32>, %v: tensor<64x4x8xf32>, %do: tensor<64x4x8xf32>,
                               %beta: tensor<64x4xf32>, %gamma: tensor<4x4x64xf32>, %states: tensor<4x4x16x8xf32>,
                               %dstates: tensor<4x4x16x8xf32>, %vnew: tensor<4x4x64x8xf32>, %z: tensor<4x4x64x8xf32>,
                               %seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{kn is 'tensor<64x2x8xf32>' but qn is 'tensor<64x2x16xf32>'}}
  %r:5 = qkern.gdn_local_bwd %qn, %kn, %qr, %kr, %v, %do, %beta, %gamma, %states, %dstates, %vnew, %z, %seq <{scale = 0.5}>
      : tensor<64x2x16xf32>, tensor<64x2x8xf32>, tensor<64x2xf32>, tensor<64x2xf32>, tensor<64x4x8xf32>,
        tensor<64x4x8xf32>, tensor<64x4xf32>, tensor<4x4x64xf32>, tensor<4x4x16x8xf32>, tensor<4x4x16x8xf32>,
        tensor<4x4x64x8xf32>, tensor<4x4x64x8xf32>, !qwen35.seq<64, 3>
  return
}

// -----

func.func @gdn_local_bwd_c1_qr(%qn: tensor<64x2x16xf32>, %kn: tensor<64x2x16xf32>, %qr: tensor<64x4xf32>,
                               %kr: tensor<64x2xf32>, %v: tensor<64x4x8xf32>, %do: tensor<64x4x8xf32>,
                               %beta: tensor<64x4xf32>, %gamma: tensor<4x4x64xf32>, %states: tensor<4x4x16x8xf32>,
                               %dstates: tensor<4x4x16x8xf32>, %vnew: tensor<4x4x64x8xf32>, %z: tensor<4x4x64x8xf32>,
                               %seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{qr is 'tensor<64x4xf32>', expected shape 'tensor<64x2xf32>'}}
  %r:5 = qkern.gdn_local_bwd %qn, %kn, %qr, %kr, %v, %do, %beta, %gamma, %states, %dstates, %vnew, %z, %seq <{scale = 0.5}>
      : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4xf32>, tensor<64x2xf32>, tensor<64x4x8xf32>,
        tensor<64x4x8xf32>, tensor<64x4xf32>, tensor<4x4x64xf32>, tensor<4x4x16x8xf32>, tensor<4x4x16x8xf32>,
        tensor<4x4x64x8xf32>, tensor<4x4x64x8xf32>, !qwen35.seq<64, 3>
  return
}

// -----

func.func @gdn_local_bwd_c1_kr(%qn: tensor<64x2x16xf32>, %kn: tensor<64x2x16xf32>, %qr: tensor<64x2xf32>,
                               %kr: tensor<64x4xf32>, %v: tensor<64x4x8xf32>, %do: tensor<64x4x8xf32>,
                               %beta: tensor<64x4xf32>, %gamma: tensor<4x4x64xf32>, %states: tensor<4x4x16x8xf32>,
                               %dstates: tensor<4x4x16x8xf32>, %vnew: tensor<4x4x64x8xf32>, %z: tensor<4x4x64x8xf32>,
                               %seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{kr is 'tensor<64x4xf32>', expected shape 'tensor<64x2xf32>'}}
  %r:5 = qkern.gdn_local_bwd %qn, %kn, %qr, %kr, %v, %do, %beta, %gamma, %states, %dstates, %vnew, %z, %seq <{scale = 0.5}>
      : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x2xf32>, tensor<64x4xf32>, tensor<64x4x8xf32>,
        tensor<64x4x8xf32>, tensor<64x4xf32>, tensor<4x4x64xf32>, tensor<4x4x16x8xf32>, tensor<4x4x16x8xf32>,
        tensor<4x4x64x8xf32>, tensor<4x4x64x8xf32>, !qwen35.seq<64, 3>
  return
}

// -----

func.func @gdn_local_bwd_c2(%qn: tensor<64x3x16xf32>, %kn: tensor<64x3x16xf32>, %qr: tensor<64x2xf32>,
                            %kr: tensor<64x2xf32>, %v: tensor<64x4x8xf32>, %do: tensor<64x4x8xf32>,
                            %beta: tensor<64x4xf32>, %gamma: tensor<4x4x64xf32>, %states: tensor<4x4x16x8xf32>,
                            %dstates: tensor<4x4x16x8xf32>, %vnew: tensor<4x4x64x8xf32>, %z: tensor<4x4x64x8xf32>,
                            %seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{3 key heads do not divide 4 value heads}}
  %r:5 = qkern.gdn_local_bwd %qn, %kn, %qr, %kr, %v, %do, %beta, %gamma, %states, %dstates, %vnew, %z, %seq <{scale = 0.5}>
      : tensor<64x3x16xf32>, tensor<64x3x16xf32>, tensor<64x2xf32>, tensor<64x2xf32>, tensor<64x4x8xf32>,
        tensor<64x4x8xf32>, tensor<64x4xf32>, tensor<4x4x64xf32>, tensor<4x4x16x8xf32>, tensor<4x4x16x8xf32>,
        tensor<4x4x64x8xf32>, tensor<4x4x64x8xf32>, !qwen35.seq<64, 3>
  return
}

// -----

func.func @gdn_local_bwd_c3_do(%qn: tensor<64x2x16xf32>, %kn: tensor<64x2x16xf32>, %qr: tensor<64x2xf32>,
                               %kr: tensor<64x2xf32>, %v: tensor<64x4x8xf32>, %do: tensor<64x4x16xf32>,
                               %beta: tensor<64x4xf32>, %gamma: tensor<4x4x64xf32>, %states: tensor<4x4x16x8xf32>,
                               %dstates: tensor<4x4x16x8xf32>, %vnew: tensor<4x4x64x8xf32>, %z: tensor<4x4x64x8xf32>,
                               %seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{do is 'tensor<64x4x16xf32>' but v is 'tensor<64x4x8xf32>'}}
  %r:5 = qkern.gdn_local_bwd %qn, %kn, %qr, %kr, %v, %do, %beta, %gamma, %states, %dstates, %vnew, %z, %seq <{scale = 0.5}>
      : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x2xf32>, tensor<64x2xf32>, tensor<64x4x8xf32>,
        tensor<64x4x16xf32>, tensor<64x4xf32>, tensor<4x4x64xf32>, tensor<4x4x16x8xf32>, tensor<4x4x16x8xf32>,
        tensor<4x4x64x8xf32>, tensor<4x4x64x8xf32>, !qwen35.seq<64, 3>
  return
}

// -----

func.func @gdn_local_bwd_c3_v(%qn: tensor<64x2x16xf32>, %kn: tensor<64x2x16xf32>, %qr: tensor<64x2xf32>,
                              %kr: tensor<64x2xf32>, %v: tensor<32x4x8xf32>, %do: tensor<32x4x8xf32>,
                              %beta: tensor<64x4xf32>, %gamma: tensor<4x4x64xf32>, %states: tensor<4x4x16x8xf32>,
                              %dstates: tensor<4x4x16x8xf32>, %vnew: tensor<4x4x64x8xf32>, %z: tensor<4x4x64x8xf32>,
                              %seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{v has 32 tokens but kn has 64}}
  %r:5 = qkern.gdn_local_bwd %qn, %kn, %qr, %kr, %v, %do, %beta, %gamma, %states, %dstates, %vnew, %z, %seq <{scale = 0.5}>
      : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x2xf32>, tensor<64x2xf32>, tensor<32x4x8xf32>,
        tensor<32x4x8xf32>, tensor<64x4xf32>, tensor<4x4x64xf32>, tensor<4x4x16x8xf32>, tensor<4x4x16x8xf32>,
        tensor<4x4x64x8xf32>, tensor<4x4x64x8xf32>, !qwen35.seq<64, 3>
  return
}

// -----

func.func @gdn_local_bwd_c3_beta(%qn: tensor<64x2x16xf32>, %kn: tensor<64x2x16xf32>, %qr: tensor<64x2xf32>,
                                 %kr: tensor<64x2xf32>, %v: tensor<64x4x8xf32>, %do: tensor<64x4x8xf32>,
                                 %beta: tensor<64x2xf32>, %gamma: tensor<4x4x64xf32>, %states: tensor<4x4x16x8xf32>,
                                 %dstates: tensor<4x4x16x8xf32>, %vnew: tensor<4x4x64x8xf32>,
                                 %z: tensor<4x4x64x8xf32>, %seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{beta is 'tensor<64x2xf32>', expected shape 'tensor<64x4xf32>'}}
  %r:5 = qkern.gdn_local_bwd %qn, %kn, %qr, %kr, %v, %do, %beta, %gamma, %states, %dstates, %vnew, %z, %seq <{scale = 0.5}>
      : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x2xf32>, tensor<64x2xf32>, tensor<64x4x8xf32>,
        tensor<64x4x8xf32>, tensor<64x2xf32>, tensor<4x4x64xf32>, tensor<4x4x16x8xf32>, tensor<4x4x16x8xf32>,
        tensor<4x4x64x8xf32>, tensor<4x4x64x8xf32>, !qwen35.seq<64, 3>
  return
}

// -----

func.func @gdn_local_bwd_c4_gamma(%qn: tensor<64x2x16xf32>, %kn: tensor<64x2x16xf32>, %qr: tensor<64x2xf32>,
                                  %kr: tensor<64x2xf32>, %v: tensor<64x4x8xf32>, %do: tensor<64x4x8xf32>,
                                  %beta: tensor<64x4xf32>, %gamma: tensor<3x4x64xf32>, %states: tensor<4x4x16x8xf32>,
                                  %dstates: tensor<4x4x16x8xf32>, %vnew: tensor<4x4x64x8xf32>,
                                  %z: tensor<4x4x64x8xf32>, %seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{gamma is 'tensor<3x4x64xf32>', expected shape 'tensor<4x4x64xf32>'}}
  %r:5 = qkern.gdn_local_bwd %qn, %kn, %qr, %kr, %v, %do, %beta, %gamma, %states, %dstates, %vnew, %z, %seq <{scale = 0.5}>
      : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x2xf32>, tensor<64x2xf32>, tensor<64x4x8xf32>,
        tensor<64x4x8xf32>, tensor<64x4xf32>, tensor<3x4x64xf32>, tensor<4x4x16x8xf32>, tensor<4x4x16x8xf32>,
        tensor<4x4x64x8xf32>, tensor<4x4x64x8xf32>, !qwen35.seq<64, 3>
  return
}

// -----

func.func @gdn_local_bwd_c4_states(%qn: tensor<64x2x16xf32>, %kn: tensor<64x2x16xf32>, %qr: tensor<64x2xf32>,
                                   %kr: tensor<64x2xf32>, %v: tensor<64x4x8xf32>, %do: tensor<64x4x8xf32>,
                                   %beta: tensor<64x4xf32>, %gamma: tensor<4x4x64xf32>, %states: tensor<4x4x8x16xf32>,
                                   %dstates: tensor<4x4x16x8xf32>, %vnew: tensor<4x4x64x8xf32>,
                                   %z: tensor<4x4x64x8xf32>, %seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{states is 'tensor<4x4x8x16xf32>', expected shape 'tensor<4x4x16x8xf32>'}}
  %r:5 = qkern.gdn_local_bwd %qn, %kn, %qr, %kr, %v, %do, %beta, %gamma, %states, %dstates, %vnew, %z, %seq <{scale = 0.5}>
      : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x2xf32>, tensor<64x2xf32>, tensor<64x4x8xf32>,
        tensor<64x4x8xf32>, tensor<64x4xf32>, tensor<4x4x64xf32>, tensor<4x4x8x16xf32>, tensor<4x4x16x8xf32>,
        tensor<4x4x64x8xf32>, tensor<4x4x64x8xf32>, !qwen35.seq<64, 3>
  return
}

// -----

func.func @gdn_local_bwd_c4_dstates(%qn: tensor<64x2x16xf32>, %kn: tensor<64x2x16xf32>, %qr: tensor<64x2xf32>,
                                    %kr: tensor<64x2xf32>, %v: tensor<64x4x8xf32>, %do: tensor<64x4x8xf32>,
                                    %beta: tensor<64x4xf32>, %gamma: tensor<4x4x64xf32>,
                                    %states: tensor<4x4x16x8xf32>, %dstates: tensor<4x4x8x16xf32>,
                                    %vnew: tensor<4x4x64x8xf32>, %z: tensor<4x4x64x8xf32>,
                                    %seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{dstates is 'tensor<4x4x8x16xf32>', expected shape 'tensor<4x4x16x8xf32>'}}
  %r:5 = qkern.gdn_local_bwd %qn, %kn, %qr, %kr, %v, %do, %beta, %gamma, %states, %dstates, %vnew, %z, %seq <{scale = 0.5}>
      : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x2xf32>, tensor<64x2xf32>, tensor<64x4x8xf32>,
        tensor<64x4x8xf32>, tensor<64x4xf32>, tensor<4x4x64xf32>, tensor<4x4x16x8xf32>, tensor<4x4x8x16xf32>,
        tensor<4x4x64x8xf32>, tensor<4x4x64x8xf32>, !qwen35.seq<64, 3>
  return
}

// -----

func.func @gdn_local_bwd_c4_vnew(%qn: tensor<64x2x16xf32>, %kn: tensor<64x2x16xf32>, %qr: tensor<64x2xf32>,
                                 %kr: tensor<64x2xf32>, %v: tensor<64x4x8xf32>, %do: tensor<64x4x8xf32>,
                                 %beta: tensor<64x4xf32>, %gamma: tensor<4x4x64xf32>, %states: tensor<4x4x16x8xf32>,
                                 %dstates: tensor<4x4x16x8xf32>, %vnew: tensor<4x4x32x8xf32>,
                                 %z: tensor<4x4x64x8xf32>, %seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{vnew is 'tensor<4x4x32x8xf32>', expected shape 'tensor<4x4x64x8xf32>'}}
  %r:5 = qkern.gdn_local_bwd %qn, %kn, %qr, %kr, %v, %do, %beta, %gamma, %states, %dstates, %vnew, %z, %seq <{scale = 0.5}>
      : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x2xf32>, tensor<64x2xf32>, tensor<64x4x8xf32>,
        tensor<64x4x8xf32>, tensor<64x4xf32>, tensor<4x4x64xf32>, tensor<4x4x16x8xf32>, tensor<4x4x16x8xf32>,
        tensor<4x4x32x8xf32>, tensor<4x4x64x8xf32>, !qwen35.seq<64, 3>
  return
}

// -----

func.func @gdn_local_bwd_c4_z(%qn: tensor<64x2x16xf32>, %kn: tensor<64x2x16xf32>, %qr: tensor<64x2xf32>,
                              %kr: tensor<64x2xf32>, %v: tensor<64x4x8xf32>, %do: tensor<64x4x8xf32>,
                              %beta: tensor<64x4xf32>, %gamma: tensor<4x4x64xf32>, %states: tensor<4x4x16x8xf32>,
                              %dstates: tensor<4x4x16x8xf32>, %vnew: tensor<4x4x64x8xf32>, %z: tensor<4x4x32x8xf32>,
                              %seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{z is 'tensor<4x4x32x8xf32>', expected shape 'tensor<4x4x64x8xf32>'}}
  %r:5 = qkern.gdn_local_bwd %qn, %kn, %qr, %kr, %v, %do, %beta, %gamma, %states, %dstates, %vnew, %z, %seq <{scale = 0.5}>
      : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x2xf32>, tensor<64x2xf32>, tensor<64x4x8xf32>,
        tensor<64x4x8xf32>, tensor<64x4xf32>, tensor<4x4x64xf32>, tensor<4x4x16x8xf32>, tensor<4x4x16x8xf32>,
        tensor<4x4x64x8xf32>, tensor<4x4x32x8xf32>, !qwen35.seq<64, 3>
  return
}

// -----

func.func @gdn_local_bwd_c5(%qn: tensor<64x2x16xf32>, %kn: tensor<64x2x16xf32>, %qr: tensor<64x2xf32>,
                            %kr: tensor<64x2xf32>, %v: tensor<64x4x8xf32>, %do: tensor<64x4x8xf32>,
                            %beta: tensor<64x4xf32>, %gamma: tensor<4x4x64xf32>, %states: tensor<4x4x16x8xf32>,
                            %dstates: tensor<4x4x16x8xf32>, %vnew: tensor<4x4x64x8xf32>, %z: tensor<4x4x64x8xf32>,
                            %seq: !qwen35.seq<32, 3>) {
  // expected-error @below {{has 64 tokens but its document table describes 32}}
  %r:5 = qkern.gdn_local_bwd %qn, %kn, %qr, %kr, %v, %do, %beta, %gamma, %states, %dstates, %vnew, %z, %seq <{scale = 0.5}>
      : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x2xf32>, tensor<64x2xf32>, tensor<64x4x8xf32>,
        tensor<64x4x8xf32>, tensor<64x4xf32>, tensor<4x4x64xf32>, tensor<4x4x16x8xf32>, tensor<4x4x16x8xf32>,
        tensor<4x4x64x8xf32>, tensor<4x4x64x8xf32>, !qwen35.seq<32, 3>
  return
}

// -----

func.func @prep_c3_type(%q: tensor<64x2x16xbf16>, %g: tensor<64x4xbf16>, %seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{g is 'tensor<64x4xbf16>', expected elements of 'f32' where q is 'tensor<64x2x16xbf16>'}}
  %0:6 = qkern.gdn_prep %q, %q, %g, %g, %seq <{eps = 0.5}>
      : tensor<64x2x16xbf16>, tensor<64x2x16xbf16>, tensor<64x4xbf16>, tensor<64x4xbf16>, !qwen35.seq<64, 3>
  return
}

// -----

func.func @scan_c5(%kn: tensor<64x2x16xbf16>, %v: tensor<64x4x16xbf16>, %beta: tensor<64x4xf32>, %gamma: tensor<4x4x64xf32>,
                   %tinv: tensor<4x4x64x64xf32>, %seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{tinv is 'tensor<4x4x64x64xf32>', expected elements of 'bf16' where v is 'tensor<64x4x16xbf16>'}}
  %0:2 = qkern.gdn_scan %kn, %v, %beta, %gamma, %tinv, %seq
      : tensor<64x2x16xbf16>, tensor<64x4x16xbf16>, tensor<64x4xf32>, tensor<4x4x64xf32>, tensor<4x4x64x64xf32>,
        !qwen35.seq<64, 3>
  return
}

// -----

func.func @out_c5(%qn: tensor<64x2x16xbf16>, %gamma: tensor<4x4x64xf32>, %states: tensor<4x4x16x16xf32>,
                  %vnew: tensor<4x4x64x16xbf16>, %seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{states is 'tensor<4x4x16x16xf32>', expected elements of 'bf16' where qn is 'tensor<64x2x16xbf16>'}}
  %o = qkern.gdn_out %qn, %qn, %gamma, %states, %vnew, %seq <{scale = 0.5}>
      : tensor<64x2x16xbf16>, tensor<64x2x16xbf16>, tensor<4x4x64xf32>, tensor<4x4x16x16xf32>, tensor<4x4x64x16xbf16>,
        !qwen35.seq<64, 3>
  return
}

// -----

func.func @scan_bwd_c6(%qn: tensor<64x2x16xbf16>, %do: tensor<64x4x16xbf16>, %beta: tensor<64x4xf32>, %gamma: tensor<4x4x64xbf16>,
                       %tinv: tensor<4x4x64x64xbf16>, %seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{gamma is 'tensor<4x4x64xbf16>', expected elements of 'f32' where do is 'tensor<64x4x16xbf16>'}}
  %0:2 = qkern.gdn_scan_bwd %qn, %qn, %do, %beta, %gamma, %tinv, %seq <{scale = 0.5}>
      : tensor<64x2x16xbf16>, tensor<64x2x16xbf16>, tensor<64x4x16xbf16>, tensor<64x4xf32>, tensor<4x4x64xbf16>,
        tensor<4x4x64x64xbf16>, !qwen35.seq<64, 3>
  return
}

// -----

func.func @local_bwd_c6(%qn: tensor<64x2x16xbf16>, %qr: tensor<64x2xf32>, %v: tensor<64x4x16xbf16>, %beta: tensor<64x4xf32>,
                        %gamma: tensor<4x4x64xf32>, %s: tensor<4x4x16x16xbf16>, %t: tensor<4x4x64x16xbf16>,
                        %z: tensor<4x4x64x16xf32>, %seq: !qwen35.seq<64, 3>) {
  // expected-error @below {{z is 'tensor<4x4x64x16xf32>', expected elements of 'bf16' where v is 'tensor<64x4x16xbf16>'}}
  %0:5 = qkern.gdn_local_bwd %qn, %qn, %qr, %qr, %v, %v, %beta, %gamma, %s, %s, %t, %z, %seq <{scale = 0.5}>
      : tensor<64x2x16xbf16>, tensor<64x2x16xbf16>, tensor<64x2xf32>, tensor<64x2xf32>, tensor<64x4x16xbf16>,
        tensor<64x4x16xbf16>, tensor<64x4xf32>, tensor<4x4x64xf32>, tensor<4x4x16x16xbf16>, tensor<4x4x16x16xbf16>,
        tensor<4x4x64x16xbf16>, tensor<4x4x64x16xf32>, !qwen35.seq<64, 3>
  return
}
