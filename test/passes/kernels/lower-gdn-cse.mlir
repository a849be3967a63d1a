// RUN: qwen35-opt %s --qwen35-lower-gdn --cse | FileCheck %s

// Forward and backward of one rule share prep and scan when nothing keeps CSE from it.
// CHECK-LABEL: func @shared(
// CHECK:         qkern.gdn_prep
// CHECK-NEXT:    qkern.gdn_scan
// CHECK-NEXT:    qkern.gdn_out
// CHECK-NEXT:    qkern.gdn_scan_bwd
// CHECK-NEXT:    qkern.gdn_local_bwd
// CHECK-NEXT:    return
func.func @shared(%q: tensor<64x2x16xf32>, %k: tensor<64x2x16xf32>, %v: tensor<64x4x8xf32>, %g: tensor<64x4xf32>,
                  %beta: tensor<64x4xf32>, %seq: !qwen35.seq<64, 3>) -> (tensor<64x4x8xf32>, tensor<64x2x16xf32>) {
  %o = qwen35.gated_delta_rule %q, %k, %v, %g, %beta, %seq <{scale = 0.5, eps = 0.25}>
      : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4x8xf32>, tensor<64x4xf32>, tensor<64x4xf32>, !qwen35.seq<64, 3>
  %dq, %dk, %dv, %dg, %dbeta = qwen35.gated_delta_rule_bwd %v, %q, %k, %v, %g, %beta, %seq <{scale = 0.5, eps = 0.25}>
      : tensor<64x4x8xf32>, tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4x8xf32>, tensor<64x4xf32>,
        tensor<64x4xf32>, !qwen35.seq<64, 3>
  return %o, %dq : tensor<64x4x8xf32>, tensor<64x2x16xf32>
}
