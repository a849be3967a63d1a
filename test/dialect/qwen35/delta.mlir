// Every op of the chapter through text and bytecode; result types are inferred.
// RUN: qwen35-opt %s | qwen35-opt | FileCheck %s
// RUN: qwen35-opt %s --emit-bytecode | qwen35-opt | FileCheck %s

// CHECK-LABEL: func @causal_conv(
// CHECK:         qwen35.causal_conv %{{.*}}, %{{.*}}, %{{.*}}  : tensor<64x128xf32>, tensor<128x1x4xf32>, !qwen35.seq<64, 3>
func.func @causal_conv(%x: tensor<64x128xf32>, %w: tensor<128x1x4xf32>, %seq: !qwen35.seq<64, 3>)
    -> tensor<64x128xf32> {
  %y = qwen35.causal_conv %x, %w, %seq : tensor<64x128xf32>, tensor<128x1x4xf32>, !qwen35.seq<64, 3>
  return %y : tensor<64x128xf32>
}

// CHECK-LABEL: func @causal_conv_bwd(
// CHECK:         qwen35.causal_conv_bwd %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}  : tensor<64x128xf32>, tensor<64x128xf32>, tensor<128x1x4xf32>, !qwen35.seq<64, 3>
func.func @causal_conv_bwd(%dy: tensor<64x128xf32>, %x: tensor<64x128xf32>, %w: tensor<128x1x4xf32>,
                           %seq: !qwen35.seq<64, 3>) -> (tensor<64x128xf32>, tensor<128x1x4xf32>) {
  %dx, %dw = qwen35.causal_conv_bwd %dy, %x, %w, %seq
      : tensor<64x128xf32>, tensor<64x128xf32>, tensor<128x1x4xf32>, !qwen35.seq<64, 3>
  return %dx, %dw : tensor<64x128xf32>, tensor<128x1x4xf32>
}

// CHECK-LABEL: func @gdn_gates(
// CHECK:         qwen35.gdn_gates %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}  : tensor<64x4xf32>, tensor<64x4xf32>, tensor<4xf32>, tensor<4xf32>
func.func @gdn_gates(%a: tensor<64x4xf32>, %b: tensor<64x4xf32>, %a_log: tensor<4xf32>, %dt_bias: tensor<4xf32>)
    -> (tensor<64x4xf32>, tensor<64x4xf32>) {
  %g, %beta = qwen35.gdn_gates %a, %b, %a_log, %dt_bias : tensor<64x4xf32>, tensor<64x4xf32>, tensor<4xf32>, tensor<4xf32>
  return %g, %beta : tensor<64x4xf32>, tensor<64x4xf32>
}

// CHECK-LABEL: func @gdn_gates_bwd(
// CHECK:         qwen35.gdn_gates_bwd %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}  : tensor<64x4xf32>, tensor<64x4xf32>, tensor<64x4xf32>, tensor<64x4xf32>, tensor<4xf32>, tensor<4xf32>
func.func @gdn_gates_bwd(%dg: tensor<64x4xf32>, %dbeta: tensor<64x4xf32>, %a: tensor<64x4xf32>,
                         %b: tensor<64x4xf32>, %a_log: tensor<4xf32>, %dt_bias: tensor<4xf32>)
    -> (tensor<64x4xf32>, tensor<64x4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %da, %db, %da_log, %ddt = qwen35.gdn_gates_bwd %dg, %dbeta, %a, %b, %a_log, %dt_bias
      : tensor<64x4xf32>, tensor<64x4xf32>, tensor<64x4xf32>, tensor<64x4xf32>, tensor<4xf32>, tensor<4xf32>
  return %da, %db, %da_log, %ddt : tensor<64x4xf32>, tensor<64x4xf32>, tensor<4xf32>, tensor<4xf32>
}

// CHECK-LABEL: func @gated_delta_rule(
// CHECK:         qwen35.gated_delta_rule %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} <{eps = 5.000000e-01 : f64, scale = 2.500000e-01 : f64}> : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4x16xf32>, tensor<64x4xf32>, tensor<64x4xf32>, !qwen35.seq<64, 3>
func.func @gated_delta_rule(%q: tensor<64x2x16xf32>, %k: tensor<64x2x16xf32>, %v: tensor<64x4x16xf32>,
                            %g: tensor<64x4xf32>, %beta: tensor<64x4xf32>, %seq: !qwen35.seq<64, 3>)
    -> tensor<64x4x16xf32> {
  %o = qwen35.gated_delta_rule %q, %k, %v, %g, %beta, %seq <{scale = 0.25, eps = 0.5}>
      : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4x16xf32>, tensor<64x4xf32>, tensor<64x4xf32>, !qwen35.seq<64, 3>
  return %o : tensor<64x4x16xf32>
}

// CHECK-LABEL: func @gated_delta_rule_bwd(
// CHECK:         qwen35.gated_delta_rule_bwd %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} <{eps = 5.000000e-01 : f64, scale = 2.500000e-01 : f64}> : tensor<64x4x16xf32>, tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4x16xf32>, tensor<64x4xf32>, tensor<64x4xf32>, !qwen35.seq<64, 3>
func.func @gated_delta_rule_bwd(%do: tensor<64x4x16xf32>, %q: tensor<64x2x16xf32>, %k: tensor<64x2x16xf32>,
                                %v: tensor<64x4x16xf32>, %g: tensor<64x4xf32>, %beta: tensor<64x4xf32>,
                                %seq: !qwen35.seq<64, 3>)
    -> (tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4x16xf32>, tensor<64x4xf32>, tensor<64x4xf32>) {
  %dq, %dk, %dv, %dg, %dbeta = qwen35.gated_delta_rule_bwd %do, %q, %k, %v, %g, %beta, %seq <{scale = 0.25, eps = 0.5}>
      : tensor<64x4x16xf32>, tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4x16xf32>, tensor<64x4xf32>,
        tensor<64x4xf32>, !qwen35.seq<64, 3>
  return %dq, %dk, %dv, %dg, %dbeta
      : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4x16xf32>, tensor<64x4xf32>, tensor<64x4xf32>
}
