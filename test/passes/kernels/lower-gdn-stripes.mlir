// RUN: qwen35-opt %s --qwen35-lower-gdn --cse | FileCheck %s

// On a rank: the maps of its stripes and the rule share what gdn_prep makes, once for each direction without CSE across
// them, and here once in all.
// CHECK-LABEL: func @rank(
// CHECK-SAME:    %[[Q:[^:]*]]: tensor<64x2x16xf32>, %[[K:[^:]*]]: tensor<64x2x16xf32>, %[[V:[^:]*]]: tensor<64x4x8xf32>,
// CHECK-SAME:    %[[G:[^:]*]]: tensor<64x4xf32>, %[[B:[^:]*]]: tensor<64x4xf32>, %[[DO:[^:]*]]: tensor<64x4x8xf32>,
// CHECK-SAME:    %[[BEFORE:[^:]*]]: tensor<2x4x16x8xf32>, %[[AFTER:[^:]*]]: tensor<2x4x16x8xf32>, %[[SEQ:[^:]*]]: !qwen35.seq<64, 4>, %[[ST:[^:]*]]: tensor<20xi32>
// CHECK-NEXT:    %[[QN:.*]], %[[KN:.*]], %[[QR:.*]], %[[KR:.*]], %[[GAMMA:.*]], %[[TINV:.*]] = qkern.gdn_prep %[[Q]], %[[K]], %[[G]], %[[B]], %[[SEQ]] <{eps = 2.500000e-01 : f64}>
// CHECK-NEXT:    %[[M:.*]], %[[E:.*]] = qkern.cp_gdn_affine %[[KN]], %[[V]], %[[B]], %[[GAMMA]], %[[TINV]], %[[SEQ]], %[[ST]]
// CHECK-NEXT:    %[[S:.*]], %[[VNEW:.*]] = qkern.cp_gdn_scan %[[KN]], %[[V]], %[[B]], %[[GAMMA]], %[[TINV]], %[[BEFORE]], %[[SEQ]], %[[ST]]
// CHECK-NEXT:    %[[O:.*]] = qkern.gdn_out %[[QN]], %[[KN]], %[[GAMMA]], %[[S]], %[[VNEW]], %[[SEQ]] <{scale = 5.000000e-01 : f64}>
// CHECK-NEXT:    %[[C:.*]] = qkern.cp_gdn_state_grad %[[QN]], %[[KN]], %[[DO]], %[[B]], %[[GAMMA]], %[[TINV]], %[[SEQ]], %[[ST]] <{scale = 5.000000e-01 : f64}>
// CHECK-NEXT:    %[[D:.*]], %[[Z:.*]] = qkern.cp_gdn_scan_bwd %[[QN]], %[[KN]], %[[DO]], %[[B]], %[[GAMMA]], %[[TINV]], %[[AFTER]], %[[SEQ]], %[[ST]] <{scale = 5.000000e-01 : f64}>
// CHECK-NEXT:    %[[DQ:.*]], %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} = qkern.gdn_local_bwd %[[QN]], %[[KN]], %[[QR]], %[[KR]], %[[V]], %[[DO]], %[[B]], %[[GAMMA]], %[[S]], %[[D]], %[[VNEW]], %[[Z]], %[[SEQ]] <{scale = 5.000000e-01 : f64}>
// CHECK-NEXT:    return %[[M]], %[[E]], %[[O]], %[[C]], %[[DQ]]
func.func @rank(%q: tensor<64x2x16xf32>, %k: tensor<64x2x16xf32>, %v: tensor<64x4x8xf32>, %g: tensor<64x4xf32>,
                %beta: tensor<64x4xf32>, %do: tensor<64x4x8xf32>, %before: tensor<2x4x16x8xf32>,
                %after: tensor<2x4x16x8xf32>, %seq: !qwen35.seq<64, 4>, %stripes: tensor<20xi32>)
    -> (tensor<2x4x16x16xf32>, tensor<2x4x16x8xf32>, tensor<64x4x8xf32>, tensor<2x4x16x8xf32>, tensor<64x2x16xf32>) {
  %m, %b = qwen35.gdn_affine %k, %v, %g, %beta, %seq, %stripes <{eps = 0.25}>
      : tensor<64x2x16xf32>, tensor<64x4x8xf32>, tensor<64x4xf32>, tensor<64x4xf32>, !qwen35.seq<64, 4>, tensor<20xi32>
  %o = qwen35.cp_gated_delta_rule %q, %k, %v, %g, %beta, %before, %seq, %stripes <{scale = 0.5, eps = 0.25}>
      : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4x8xf32>, tensor<64x4xf32>, tensor<64x4xf32>,
        tensor<2x4x16x8xf32>, !qwen35.seq<64, 4>, tensor<20xi32>
  %c = qwen35.gdn_state_grad %do, %q, %k, %g, %beta, %seq, %stripes <{scale = 0.5, eps = 0.25}>
      : tensor<64x4x8xf32>, tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4xf32>, tensor<64x4xf32>,
        !qwen35.seq<64, 4>, tensor<20xi32>
  %dq, %dk, %dv, %dg, %dbeta = qwen35.cp_gated_delta_rule_bwd
      %do, %q, %k, %v, %g, %beta, %before, %after, %seq, %stripes <{scale = 0.5, eps = 0.25}>
      : tensor<64x4x8xf32>, tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4x8xf32>, tensor<64x4xf32>,
        tensor<64x4xf32>, tensor<2x4x16x8xf32>, tensor<2x4x16x8xf32>, !qwen35.seq<64, 4>, tensor<20xi32>
  return %m, %b, %o, %c, %dq
      : tensor<2x4x16x16xf32>, tensor<2x4x16x8xf32>, tensor<64x4x8xf32>, tensor<2x4x16x8xf32>, tensor<64x2x16xf32>
}
