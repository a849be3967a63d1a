// RUN: qwen35-opt %s --qwen35-lower-gdn --split-input-file | FileCheck %s

// The table has 64/64 + 3 chunks; eps goes to the norms, scale to the outputs.
// CHECK-LABEL: func @forward(
// CHECK-SAME:    %[[Q:.*]]: tensor<64x2x16xf32>, %[[K:.*]]: tensor<64x2x16xf32>, %[[V:.*]]: tensor<64x4x8xf32>,
// CHECK-SAME:    %[[G:.*]]: tensor<64x4xf32>, %[[B:.*]]: tensor<64x4xf32>, %[[SEQ:.*]]: !qwen35.seq<64, 3>
// CHECK-NEXT:    %[[QN:.*]], %[[KN:.*]], %{{.*}}, %{{.*}}, %[[GAMMA:.*]], %[[TINV:.*]] = qkern.gdn_prep %[[Q]], %[[K]], %[[G]], %[[B]], %[[SEQ]] <{eps = 2.500000e-01 : f64}>
// CHECK-NEXT:    %[[S:.*]], %[[VNEW:.*]] = qkern.gdn_scan %[[KN]], %[[V]], %[[B]], %[[GAMMA]], %[[TINV]], %[[SEQ]]
// CHECK-NEXT:    %[[O:.*]] = qkern.gdn_out %[[QN]], %[[KN]], %[[GAMMA]], %[[S]], %[[VNEW]], %[[SEQ]] <{scale = 5.000000e-01 : f64}>
// CHECK-SAME:      tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<4x4x64xf32>, tensor<4x4x16x8xf32>, tensor<4x4x64x8xf32>
// CHECK-NEXT:    return %[[O]] : tensor<64x4x8xf32>
func.func @forward(%q: tensor<64x2x16xf32>, %k: tensor<64x2x16xf32>, %v: tensor<64x4x8xf32>, %g: tensor<64x4xf32>,
                   %beta: tensor<64x4xf32>, %seq: !qwen35.seq<64, 3>) -> tensor<64x4x8xf32> {
  %o = qwen35.gated_delta_rule %q, %k, %v, %g, %beta, %seq <{scale = 0.5, eps = 0.25}>
      : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4x8xf32>, tensor<64x4xf32>, tensor<64x4xf32>, !qwen35.seq<64, 3>
  return %o : tensor<64x4x8xf32>
}

// -----

// States and V' are recomputed; the two scans do not read each other.
// CHECK-LABEL: func @backward(
// CHECK-SAME:    %[[DO:[^:]*]]: tensor<64x4x8xf32>, %[[Q:[^:]*]]: tensor<64x2x16xf32>, %[[K:[^:]*]]: tensor<64x2x16xf32>, %[[V:[^:]*]]: tensor<64x4x8xf32>,
// CHECK-SAME:    %[[G:[^:]*]]: tensor<64x4xf32>, %[[B:[^:]*]]: tensor<64x4xf32>, %[[SEQ:[^:]*]]: !qwen35.seq<64, 3>
// CHECK-NEXT:    %[[QN:.*]], %[[KN:.*]], %[[QR:.*]], %[[KR:.*]], %[[GAMMA:.*]], %[[TINV:.*]] = qkern.gdn_prep %[[Q]], %[[K]], %[[G]], %[[B]], %[[SEQ]] <{eps = 2.500000e-01 : f64}>
// CHECK-NEXT:    %[[S:.*]], %[[VNEW:.*]] = qkern.gdn_scan %[[KN]], %[[V]], %[[B]], %[[GAMMA]], %[[TINV]], %[[SEQ]]
// CHECK-NEXT:    %[[D:.*]], %[[Z:.*]] = qkern.gdn_scan_bwd %[[QN]], %[[KN]], %[[DO]], %[[B]], %[[GAMMA]], %[[TINV]], %[[SEQ]] <{scale = 5.000000e-01 : f64}>
// CHECK-NEXT:    %[[DQ:.*]], %[[DK:.*]], %[[DV:.*]], %[[DG:.*]], %[[DB:.*]] = qkern.gdn_local_bwd %[[QN]], %[[KN]], %[[QR]], %[[KR]], %[[V]], %[[DO]], %[[B]], %[[GAMMA]], %[[S]], %[[D]], %[[VNEW]], %[[Z]], %[[SEQ]] <{scale = 5.000000e-01 : f64}>
// CHECK-NEXT:    return %[[DQ]], %[[DK]], %[[DV]], %[[DG]], %[[DB]]
func.func @backward(%do: tensor<64x4x8xf32>, %q: tensor<64x2x16xf32>, %k: tensor<64x2x16xf32>, %v: tensor<64x4x8xf32>,
                    %g: tensor<64x4xf32>, %beta: tensor<64x4xf32>, %seq: !qwen35.seq<64, 3>)
    -> (tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4x8xf32>, tensor<64x4xf32>, tensor<64x4xf32>) {
  %dq, %dk, %dv, %dg, %dbeta = qwen35.gated_delta_rule_bwd %do, %q, %k, %v, %g, %beta, %seq <{scale = 0.5, eps = 0.25}>
      : tensor<64x4x8xf32>, tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4x8xf32>, tensor<64x4xf32>,
        tensor<64x4xf32>, !qwen35.seq<64, 3>
  return %dq, %dk, %dv, %dg, %dbeta
      : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4x8xf32>, tensor<64x4xf32>, tensor<64x4xf32>
}

// -----

// In bf16 the tiles of a chunk are bf16 too; gates, decay and the roots of the norms are f32.
// CHECK-LABEL: func @bf16(
// CHECK:         qkern.gdn_prep {{.*}} : tensor<64x2x16xbf16>, tensor<64x2x16xbf16>, tensor<64x4xf32>, tensor<64x4xf32>, !qwen35.seq<64, 3>
// CHECK-NEXT:    qkern.gdn_scan {{.*}} : tensor<64x2x16xbf16>, tensor<64x4x8xbf16>, tensor<64x4xf32>, tensor<4x4x64xf32>, tensor<4x4x64x64xbf16>, !qwen35.seq<64, 3>
// CHECK-NEXT:    qkern.gdn_scan_bwd {{.*}} : tensor<64x2x16xbf16>, tensor<64x2x16xbf16>, tensor<64x4x8xbf16>, tensor<64x4xf32>, tensor<4x4x64xf32>, tensor<4x4x64x64xbf16>, !qwen35.seq<64, 3>
// CHECK-NEXT:    qkern.gdn_local_bwd {{.*}} : tensor<64x2x16xbf16>, tensor<64x2x16xbf16>, tensor<64x2xf32>, tensor<64x2xf32>, tensor<64x4x8xbf16>, tensor<64x4x8xbf16>, tensor<64x4xf32>, tensor<4x4x64xf32>, tensor<4x4x16x8xbf16>, tensor<4x4x16x8xbf16>, tensor<4x4x64x8xbf16>, tensor<4x4x64x8xbf16>, !qwen35.seq<64, 3>
func.func @bf16(%do: tensor<64x4x8xbf16>, %q: tensor<64x2x16xbf16>, %v: tensor<64x4x8xbf16>, %g: tensor<64x4xf32>,
                %seq: !qwen35.seq<64, 3>) -> (tensor<64x2x16xbf16>, tensor<64x4xf32>) {
  %dq, %dk, %dv, %dg, %db = qwen35.gated_delta_rule_bwd %do, %q, %q, %v, %g, %g, %seq <{scale = 0.5, eps = 0.25}>
      : tensor<64x4x8xbf16>, tensor<64x2x16xbf16>, tensor<64x2x16xbf16>, tensor<64x4x8xbf16>, tensor<64x4xf32>,
        tensor<64x4xf32>, !qwen35.seq<64, 3>
  return %dq, %dg : tensor<64x2x16xbf16>, tensor<64x4xf32>
}
