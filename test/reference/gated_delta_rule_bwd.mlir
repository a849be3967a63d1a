// RUN: qwen35-interpret %s --documents 2,2 | FileCheck %s
// RUN: qwen35-opt %s --qwen35-lower-gdn | qwen35-interpret --documents 2,2 | FileCheck %s

// The two documents of gated_delta_rule.mlir, the loss being o[1] + o[2]; by hand from MODEL.md 13.7:
//   token 1: dS = 1, ddelta = 1/2, dS before = 7/8; token 0: ddelta = 7/16; token 2: ddelta = 1/2.
// CHECK:      dq = {{\[\[\[}}0]], {{\[\[}}0.703125]], {{\[\[}}1.5]], {{\[\[}}0]]]
// CHECK-NEXT: dk = {{\[\[\[}}0.328125]], {{\[\[}}0.28125]], {{\[\[}}1.5]], {{\[\[}}0]]]
// CHECK-NEXT: dv = {{\[\[\[}}0.4375]], {{\[\[}}0.25]], {{\[\[}}0.5]], {{\[\[}}0]]]
// CHECK-NEXT: dg = {{\[\[}}0], [0.4375], [0], [0]]
// CHECK-NEXT: dbeta = {{\[\[}}0.4375], [0.875], [2], [0]]
func.func @model(%seq: !qwen35.seq<4, 2>)
    -> (tensor<4x1x1xf32> {qwen35.name = "dq"}, tensor<4x1x1xf32> {qwen35.name = "dk"},
        tensor<4x1x1xf32> {qwen35.name = "dv"}, tensor<4x1xf32> {qwen35.name = "dg"},
        tensor<4x1xf32> {qwen35.name = "dbeta"}) {
  %do = arith.constant dense<[[[0.0]], [[1.0]], [[1.0]], [[0.0]]]> : tensor<4x1x1xf32>
  %q = arith.constant dense<1.0> : tensor<4x1x1xf32>
  %v = arith.constant dense<[[[1.0]], [[2.0]], [[4.0]], [[8.0]]]> : tensor<4x1x1xf32>
  %g = arith.constant dense<[[0.0], [0.0], [0.0], [-1024.0]]> : tensor<4x1xf32>
  %beta = arith.constant dense<[[1.0], [0.5], [1.0], [1.0]]> : tensor<4x1xf32>
  %dq, %dk, %dv, %dg, %dbeta = qwen35.gated_delta_rule_bwd %do, %q, %q, %v, %g, %beta, %seq <{scale = 2.0, eps = 3.0}>
      : tensor<4x1x1xf32>, tensor<4x1x1xf32>, tensor<4x1x1xf32>, tensor<4x1x1xf32>, tensor<4x1xf32>, tensor<4x1xf32>,
        !qwen35.seq<4, 2>
  return %dq, %dk, %dv, %dg, %dbeta
      : tensor<4x1x1xf32>, tensor<4x1x1xf32>, tensor<4x1x1xf32>, tensor<4x1xf32>, tensor<4x1xf32>
}
