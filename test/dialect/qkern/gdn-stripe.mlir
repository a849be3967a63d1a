// The chunked delta rule of a rank's stripes; result types are inferred.
// RUN: qwen35-opt %s | qwen35-opt | FileCheck %s
// RUN: qwen35-opt %s --emit-bytecode | qwen35-opt | FileCheck %s

// CHECK-LABEL: func @cp_gdn_affine(
// CHECK:         qkern.cp_gdn_affine %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}  : tensor<64x2x16xf32>, tensor<64x4x8xf32>, tensor<64x4xf32>, tensor<5x4x64xf32>, tensor<5x4x64x64xf32>, !qwen35.seq<64, 4>, tensor<20xi32>
// CHECK-NEXT:    return %{{.*}}, %{{.*}} : tensor<2x4x16x16xf32>, tensor<2x4x16x8xf32>
func.func @cp_gdn_affine(
    %kn: tensor<64x2x16xf32>, %v: tensor<64x4x8xf32>, %beta: tensor<64x4xf32>, %gamma: tensor<5x4x64xf32>,
    %tinv: tensor<5x4x64x64xf32>, %seq: !qwen35.seq<64, 4>, %stripes: tensor<20xi32>)
    -> (tensor<2x4x16x16xf32>, tensor<2x4x16x8xf32>) {
  %m, %b = qkern.cp_gdn_affine %kn, %v, %beta, %gamma, %tinv, %seq, %stripes
      : tensor<64x2x16xf32>, tensor<64x4x8xf32>, tensor<64x4xf32>, tensor<5x4x64xf32>, tensor<5x4x64x64xf32>,
        !qwen35.seq<64, 4>, tensor<20xi32>
  return %m, %b
      : tensor<2x4x16x16xf32>, tensor<2x4x16x8xf32>
}

// CHECK-LABEL: func @cp_gdn_scan(
// CHECK:         qkern.cp_gdn_scan %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}  : tensor<64x2x16xf32>, tensor<64x4x8xf32>, tensor<64x4xf32>, tensor<5x4x64xf32>, tensor<5x4x64x64xf32>, tensor<2x4x16x8xf32>, !qwen35.seq<64, 4>, tensor<20xi32>
// CHECK-NEXT:    return %{{.*}}, %{{.*}} : tensor<5x4x16x8xf32>, tensor<5x4x64x8xf32>
func.func @cp_gdn_scan(
    %kn: tensor<64x2x16xf32>, %v: tensor<64x4x8xf32>, %beta: tensor<64x4xf32>, %gamma: tensor<5x4x64xf32>,
    %tinv: tensor<5x4x64x64xf32>, %before: tensor<2x4x16x8xf32>, %seq: !qwen35.seq<64, 4>, %stripes: tensor<20xi32>)
    -> (tensor<5x4x16x8xf32>, tensor<5x4x64x8xf32>) {
  %states, %vnew = qkern.cp_gdn_scan %kn, %v, %beta, %gamma, %tinv, %before, %seq, %stripes
      : tensor<64x2x16xf32>, tensor<64x4x8xf32>, tensor<64x4xf32>, tensor<5x4x64xf32>, tensor<5x4x64x64xf32>,
        tensor<2x4x16x8xf32>, !qwen35.seq<64, 4>, tensor<20xi32>
  return %states, %vnew
      : tensor<5x4x16x8xf32>, tensor<5x4x64x8xf32>
}

// CHECK-LABEL: func @cp_gdn_scan_bwd(
// CHECK:         qkern.cp_gdn_scan_bwd %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}{{.*}}: tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4x8xf32>, tensor<64x4xf32>, tensor<5x4x64xf32>, tensor<5x4x64x64xf32>, tensor<2x4x16x8xf32>, !qwen35.seq<64, 4>, tensor<20xi32>
// CHECK-NEXT:    return %{{.*}}, %{{.*}} : tensor<5x4x16x8xf32>, tensor<5x4x64x8xf32>
func.func @cp_gdn_scan_bwd(
    %qn: tensor<64x2x16xf32>, %kn: tensor<64x2x16xf32>, %do: tensor<64x4x8xf32>, %beta: tensor<64x4xf32>,
    %gamma: tensor<5x4x64xf32>, %tinv: tensor<5x4x64x64xf32>, %after: tensor<2x4x16x8xf32>,
    %seq: !qwen35.seq<64, 4>, %stripes: tensor<20xi32>)
    -> (tensor<5x4x16x8xf32>, tensor<5x4x64x8xf32>) {
  %dstates, %z = qkern.cp_gdn_scan_bwd %qn, %kn, %do, %beta, %gamma, %tinv, %after, %seq, %stripes <{scale = 0.25}>
      : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4x8xf32>, tensor<64x4xf32>, tensor<5x4x64xf32>,
        tensor<5x4x64x64xf32>, tensor<2x4x16x8xf32>, !qwen35.seq<64, 4>, tensor<20xi32>
  return %dstates, %z
      : tensor<5x4x16x8xf32>, tensor<5x4x64x8xf32>
}

// CHECK-LABEL: func @cp_gdn_state_grad(
// CHECK:         qkern.cp_gdn_state_grad %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}{{.*}}: tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4x8xf32>, tensor<64x4xf32>, tensor<5x4x64xf32>, tensor<5x4x64x64xf32>, !qwen35.seq<64, 4>, tensor<20xi32>
// CHECK-NEXT:    return %{{.*}} : tensor<2x4x16x8xf32>
func.func @cp_gdn_state_grad(
    %qn: tensor<64x2x16xf32>, %kn: tensor<64x2x16xf32>, %do: tensor<64x4x8xf32>, %beta: tensor<64x4xf32>,
    %gamma: tensor<5x4x64xf32>, %tinv: tensor<5x4x64x64xf32>, %seq: !qwen35.seq<64, 4>, %stripes: tensor<20xi32>)
    -> (tensor<2x4x16x8xf32>) {
  %c = qkern.cp_gdn_state_grad %qn, %kn, %do, %beta, %gamma, %tinv, %seq, %stripes <{scale = 0.25}>
      : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4x8xf32>, tensor<64x4xf32>, tensor<5x4x64xf32>,
        tensor<5x4x64x64xf32>, !qwen35.seq<64, 4>, tensor<20xi32>
  return %c
      : tensor<2x4x16x8xf32>
}
