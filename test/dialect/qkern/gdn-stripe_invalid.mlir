// RUN: qwen35-opt %s --split-input-file --verify-diagnostics

func.func @affine_tinv(%kn: tensor<64x2x16xf32>, %v: tensor<64x4x8xf32>, %b: tensor<64x4xf32>, %gm: tensor<5x4x64xf32>, %t: tensor<4x4x64x64xf32>, %seq: !qwen35.seq<64, 4>, %stripes: tensor<20xi32>) {
  // expected-error @below {{tinv is 'tensor<4x4x64x64xf32>', expected shape 'tensor<5x4x64x64xf32>'}}
  %m, %e = qkern.cp_gdn_affine %kn, %v, %b, %gm, %t, %seq, %stripes
      : tensor<64x2x16xf32>, tensor<64x4x8xf32>, tensor<64x4xf32>, tensor<5x4x64xf32>, tensor<4x4x64x64xf32>,
        !qwen35.seq<64, 4>, tensor<20xi32>
  return
}

// -----

func.func @scan_before(%kn: tensor<64x2x16xf32>, %v: tensor<64x4x8xf32>, %b: tensor<64x4xf32>, %gm: tensor<5x4x64xf32>, %t: tensor<5x4x64x64xf32>, %s: tensor<2x4x8x16xf32>, %seq: !qwen35.seq<64, 4>, %stripes: tensor<20xi32>) {
  // expected-error @below {{before is 'tensor<2x4x8x16xf32>', expected shape 'tensor<2x4x16x8xf32>'}}
  %st, %vn = qkern.cp_gdn_scan %kn, %v, %b, %gm, %t, %s, %seq, %stripes
      : tensor<64x2x16xf32>, tensor<64x4x8xf32>, tensor<64x4xf32>, tensor<5x4x64xf32>, tensor<5x4x64x64xf32>,
        tensor<2x4x8x16xf32>, !qwen35.seq<64, 4>, tensor<20xi32>
  return
}

// -----

func.func @scan_bwd_after(%qn: tensor<64x2x16xf32>, %d: tensor<64x4x8xf32>, %b: tensor<64x4xf32>, %gm: tensor<5x4x64xf32>, %t: tensor<5x4x64x64xf32>, %s: tensor<2x4x16x8xbf16>, %seq: !qwen35.seq<64, 4>, %stripes: tensor<20xi32>) {
  // expected-error @below {{after is 'tensor<2x4x16x8xbf16>', expected elements of 'f32' where do is 'tensor<64x4x8xf32>'}}
  %ds, %z = qkern.cp_gdn_scan_bwd %qn, %qn, %d, %b, %gm, %t, %s, %seq, %stripes <{scale = 0.5}>
      : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4x8xf32>, tensor<64x4xf32>, tensor<5x4x64xf32>,
        tensor<5x4x64x64xf32>, tensor<2x4x16x8xbf16>, !qwen35.seq<64, 4>, tensor<20xi32>
  return
}

// -----

func.func @state_grad_stripes(%qn: tensor<64x2x16xf32>, %d: tensor<64x4x8xf32>, %b: tensor<64x4xf32>, %gm: tensor<5x4x64xf32>, %t: tensor<5x4x64x64xf32>, %seq: !qwen35.seq<64, 4>, %stripes: tensor<21xi32>) {
  // expected-error @below {{stripes has 21 words, expected 8 and 6 for each of the ranks}}
  %c = qkern.cp_gdn_state_grad %qn, %qn, %d, %b, %gm, %t, %seq, %stripes <{scale = 0.5}>
      : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4x8xf32>, tensor<64x4xf32>, tensor<5x4x64xf32>,
        tensor<5x4x64x64xf32>, !qwen35.seq<64, 4>, tensor<21xi32>
  return
}
