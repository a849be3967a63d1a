// Every op of the chapter through text and bytecode; result types are inferred.
// RUN: qwen35-opt %s | qwen35-opt | FileCheck %s
// RUN: qwen35-opt %s --emit-bytecode | qwen35-opt | FileCheck %s

// CHECK-LABEL: func @gdn_prep(
// CHECK:         qkern.gdn_prep %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} <{eps = 5.000000e-01 : f64}> : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4xf32>, tensor<64x4xf32>, !qwen35.seq<64, 3>
func.func @gdn_prep(%q: tensor<64x2x16xf32>, %k: tensor<64x2x16xf32>, %g: tensor<64x4xf32>,
                    %beta: tensor<64x4xf32>, %seq: !qwen35.seq<64, 3>)
    -> (tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x2xf32>, tensor<64x2xf32>, tensor<4x4x64xf32>, tensor<4x4x64x64xf32>) {
  %qn, %kn, %qr, %kr, %gamma, %tinv = qkern.gdn_prep %q, %k, %g, %beta, %seq <{eps = 0.5}>
      : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4xf32>, tensor<64x4xf32>, !qwen35.seq<64, 3>
  return %qn, %kn, %qr, %kr, %gamma, %tinv
      : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x2xf32>, tensor<64x2xf32>, tensor<4x4x64xf32>, tensor<4x4x64x64xf32>
}

// CHECK-LABEL: func @gdn_scan(
// CHECK:         qkern.gdn_scan %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}  : tensor<64x2x16xf32>, tensor<64x4x16xf32>, tensor<64x4xf32>, tensor<4x4x64xf32>, tensor<4x4x64x64xf32>, !qwen35.seq<64, 3>
func.func @gdn_scan(%kn: tensor<64x2x16xf32>, %v: tensor<64x4x16xf32>, %beta: tensor<64x4xf32>,
                    %gamma: tensor<4x4x64xf32>, %tinv: tensor<4x4x64x64xf32>, %seq: !qwen35.seq<64, 3>)
    -> (tensor<4x4x16x16xf32>, tensor<4x4x64x16xf32>) {
  %states, %vnew = qkern.gdn_scan %kn, %v, %beta, %gamma, %tinv, %seq
      : tensor<64x2x16xf32>, tensor<64x4x16xf32>, tensor<64x4xf32>, tensor<4x4x64xf32>, tensor<4x4x64x64xf32>,
        !qwen35.seq<64, 3>
  return %states, %vnew : tensor<4x4x16x16xf32>, tensor<4x4x64x16xf32>
}

// CHECK-LABEL: func @gdn_out(
// CHECK:         qkern.gdn_out %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} <{scale = 2.500000e-01 : f64}> : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<4x4x64xf32>, tensor<4x4x16x16xf32>, tensor<4x4x64x16xf32>, !qwen35.seq<64, 3>
func.func @gdn_out(%qn: tensor<64x2x16xf32>, %kn: tensor<64x2x16xf32>, %gamma: tensor<4x4x64xf32>,
                   %states: tensor<4x4x16x16xf32>, %vnew: tensor<4x4x64x16xf32>, %seq: !qwen35.seq<64, 3>)
    -> tensor<64x4x16xf32> {
  %o = qkern.gdn_out %qn, %kn, %gamma, %states, %vnew, %seq <{scale = 0.25}>
      : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<4x4x64xf32>, tensor<4x4x16x16xf32>, tensor<4x4x64x16xf32>,
        !qwen35.seq<64, 3>
  return %o : tensor<64x4x16xf32>
}

// CHECK-LABEL: func @gdn_scan_bwd(
// CHECK:         qkern.gdn_scan_bwd %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} <{scale = 2.500000e-01 : f64}> : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4x16xf32>, tensor<64x4xf32>, tensor<4x4x64xf32>, tensor<4x4x64x64xf32>, !qwen35.seq<64, 3>
func.func @gdn_scan_bwd(%qn: tensor<64x2x16xf32>, %kn: tensor<64x2x16xf32>, %do: tensor<64x4x16xf32>,
                        %beta: tensor<64x4xf32>, %gamma: tensor<4x4x64xf32>, %tinv: tensor<4x4x64x64xf32>,
                        %seq: !qwen35.seq<64, 3>) -> (tensor<4x4x16x16xf32>, tensor<4x4x64x16xf32>) {
  %dstates, %z = qkern.gdn_scan_bwd %qn, %kn, %do, %beta, %gamma, %tinv, %seq <{scale = 0.25}>
      : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4x16xf32>, tensor<64x4xf32>, tensor<4x4x64xf32>,
        tensor<4x4x64x64xf32>, !qwen35.seq<64, 3>
  return %dstates, %z : tensor<4x4x16x16xf32>, tensor<4x4x64x16xf32>
}

// CHECK-LABEL: func @gdn_local_bwd(
// CHECK:         qkern.gdn_local_bwd %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} <{scale = 2.500000e-01 : f64}> : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x2xf32>, tensor<64x2xf32>, tensor<64x4x16xf32>, tensor<64x4x16xf32>, tensor<64x4xf32>, tensor<4x4x64xf32>, tensor<4x4x16x16xf32>, tensor<4x4x16x16xf32>, tensor<4x4x64x16xf32>, tensor<4x4x64x16xf32>, !qwen35.seq<64, 3>
func.func @gdn_local_bwd(%qn: tensor<64x2x16xf32>, %kn: tensor<64x2x16xf32>, %qr: tensor<64x2xf32>,
                         %kr: tensor<64x2xf32>, %v: tensor<64x4x16xf32>, %do: tensor<64x4x16xf32>,
                         %beta: tensor<64x4xf32>, %gamma: tensor<4x4x64xf32>, %states: tensor<4x4x16x16xf32>,
                         %dstates: tensor<4x4x16x16xf32>, %vnew: tensor<4x4x64x16xf32>, %z: tensor<4x4x64x16xf32>,
                         %seq: !qwen35.seq<64, 3>)
    -> (tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4x16xf32>, tensor<64x4xf32>, tensor<64x4xf32>) {
  %dq, %dk, %dv, %dg, %dbeta = qkern.gdn_local_bwd
      %qn, %kn, %qr, %kr, %v, %do, %beta, %gamma, %states, %dstates, %vnew, %z, %seq <{scale = 0.25}>
      : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x2xf32>, tensor<64x2xf32>, tensor<64x4x16xf32>,
        tensor<64x4x16xf32>, tensor<64x4xf32>, tensor<4x4x64xf32>, tensor<4x4x16x16xf32>, tensor<4x4x16x16xf32>,
        tensor<4x4x64x16xf32>, tensor<4x4x64x16xf32>, !qwen35.seq<64, 3>
  return %dq, %dk, %dv, %dg, %dbeta
      : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4x16xf32>, tensor<64x4xf32>, tensor<64x4xf32>
}
