// RUN: qwen35-interpret %s --documents 2,2 | FileCheck %s
// RUN: qwen35-opt %s --qwen35-lower-gdn | qwen35-interpret --documents 2,2 | FileCheck %s

// One document of four tokens, cut into two stripes of one rank: to the rank two segments.
//
// Normalized q and k are 1/2 (eps 3), there is no decay, scale is 2, beta is 1, so a token is S <- 3/4 S + v/2 and o = S:
//   M = (3/4)^2 for the stripe in which no document begins, else 0; b = 3/8 v + 1/2 v'.
//   v = 1, 2, 4, 8: b = 11/8 and 11/2; the second stripe begins with S = 11/8.
//   o = 1/2, 11/8, 97/32, 803/128.
//   c of the second stripe, from do = 1, 1: D = 1, then 3/4; + 1, then 21/16. It is also the gradient after the first.
// CHECK:      m = {{\[\[\[\[}}0]]], {{\[\[\[}}0.5625]]]]
// CHECK-NEXT: b = {{\[\[\[\[}}1.375]]], {{\[\[\[}}5.5]]]]
// CHECK-NEXT: before = {{\[\[\[\[}}0]]], {{\[\[\[}}1.375]]]]
// CHECK-NEXT: o = {{\[\[\[}}0.5]], {{\[\[}}1.375]], {{\[\[}}3.03125]], {{\[\[}}6.2734375]]]
// CHECK-NEXT: c = {{\[\[\[\[}}0]]], {{\[\[\[}}1.3125]]]]
// CHECK-NEXT: after = {{\[\[\[\[}}1.3125]]], {{\[\[\[}}0]]]]
// A value reaches all outputs after it: dv = 1/2 (do + 3/4 (next)), from the end 1/2, 7/8, 37/32, 175/128.
// CHECK-NEXT: dv = {{\[\[\[}}1.3671875]], {{\[\[}}1.15625]], {{\[\[}}0.875]], {{\[\[}}0.5]]]
// The tails are the last rows of the stripes; the halo that comes back for the second goes to the first.
// CHECK-NEXT: tails = {{\[\[\[}}2]], {{\[\[}}8]]]
// CHECK-NEXT: sum = {{\[\[}}1], [18], [4], [8]]
// Weights 2 and 1: y = silu(x + 2 x before), which for large arguments is the argument.
// CHECK-NEXT: conv = {{\[\[}}64], [256], [512], [1024]]
// Positions go on: angle t for the only pair, of which the sine of token 2 is seen.
// CHECK-NEXT: angle = {{.*}}0.909
func.func @model(%seq: !qwen35.seq<4, 2>)
    -> (tensor<2x1x1x1xf32> {qwen35.name = "m"}, tensor<2x1x1x1xf32> {qwen35.name = "b"},
        tensor<2x1x1x1xf32> {qwen35.name = "before"}, tensor<4x1x1xf32> {qwen35.name = "o"},
        tensor<2x1x1x1xf32> {qwen35.name = "c"}, tensor<2x1x1x1xf32> {qwen35.name = "after"},
        tensor<4x1x1xf32> {qwen35.name = "dv"}, tensor<2x1x1xf32> {qwen35.name = "tails"},
        tensor<4x1xf32> {qwen35.name = "sum"}, tensor<4x1xf32> {qwen35.name = "conv"},
        tensor<1x1x1xf32> {qwen35.name = "angle"}) {
  // rank 0, stripes of 2: 0 and 1; segments 0 to 1 and 1 to 2; slots; tokens before; documents that begin inside.
  %stripes = arith.constant dense<[0, 2, 0, 1, 0, 1, 1, 2, 0, 1, 0, 2, 1, 0]> : tensor<14xi32>
  %q = arith.constant dense<1.0> : tensor<4x1x1xf32>
  %v = arith.constant dense<[[[1.0]], [[2.0]], [[4.0]], [[8.0]]]> : tensor<4x1x1xf32>
  %g = arith.constant dense<0.0> : tensor<4x1xf32>
  %beta = arith.constant dense<1.0> : tensor<4x1xf32>
  %do = arith.constant dense<1.0> : tensor<4x1x1xf32>
  %m, %b = qwen35.gdn_affine %q, %v, %g, %beta, %seq, %stripes <{eps = 3.0}>
      : tensor<4x1x1xf32>, tensor<4x1x1xf32>, tensor<4x1xf32>, tensor<4x1xf32>, !qwen35.seq<4, 2>, tensor<14xi32>
  %before = qwen35.affine_scan %m, %b, %stripes : tensor<2x1x1x1xf32>, tensor<2x1x1x1xf32>, tensor<14xi32>
  %o = qwen35.cp_gated_delta_rule %q, %q, %v, %g, %beta, %before, %seq, %stripes <{scale = 2.0, eps = 3.0}>
      : tensor<4x1x1xf32>, tensor<4x1x1xf32>, tensor<4x1x1xf32>, tensor<4x1xf32>, tensor<4x1xf32>, tensor<2x1x1x1xf32>,
        !qwen35.seq<4, 2>, tensor<14xi32>
  %c = qwen35.gdn_state_grad %do, %q, %q, %g, %beta, %seq, %stripes <{scale = 2.0, eps = 3.0}>
      : tensor<4x1x1xf32>, tensor<4x1x1xf32>, tensor<4x1x1xf32>, tensor<4x1xf32>, tensor<4x1xf32>, !qwen35.seq<4, 2>,
        tensor<14xi32>
  %after = qwen35.affine_scan_bwd %m, %c, %stripes : tensor<2x1x1x1xf32>, tensor<2x1x1x1xf32>, tensor<14xi32>
  %dq, %dk, %dv, %dg, %dbeta = qwen35.cp_gated_delta_rule_bwd
      %do, %q, %q, %v, %g, %beta, %before, %after, %seq, %stripes <{scale = 2.0, eps = 3.0}>
      : tensor<4x1x1xf32>, tensor<4x1x1xf32>, tensor<4x1x1xf32>, tensor<4x1x1xf32>, tensor<4x1xf32>, tensor<4x1xf32>,
        tensor<2x1x1x1xf32>, tensor<2x1x1x1xf32>, !qwen35.seq<4, 2>, tensor<14xi32>

  %x = arith.constant dense<[[1.0], [2.0], [4.0], [8.0]]> : tensor<4x1xf32>
  %tails = qwen35.stripe_tails %x <{taps = 2}> : tensor<4x1xf32>
  %halo = arith.constant dense<[[[32.0]], [[16.0]]]> : tensor<2x1x1xf32>
  %sum = qwen35.add_to_tails %x, %halo, %stripes : tensor<4x1xf32>, tensor<2x1x1xf32>, tensor<14xi32>
  %w = arith.constant dense<[[[2.0, 1.0]]]> : tensor<1x1x2xf32>
  %large = arith.constant dense<[[64.0], [128.0], [256.0], [512.0]]> : tensor<4x1xf32>
  %largeTails = qwen35.stripe_tails %large <{taps = 2}> : tensor<4x1xf32>
  %conv = qwen35.cp_causal_conv %large, %largeTails, %w, %seq, %stripes
      : tensor<4x1xf32>, tensor<2x1x1xf32>, tensor<1x1x2xf32>, !qwen35.seq<4, 2>, tensor<14xi32>
  %table = qwen35.cp_rope_table %seq, %stripes <{theta = 10.0, rotary_dim = 2}> : !qwen35.seq<4, 2>, tensor<14xi32>
  %row = qwen35.slice %table <{axis = 0, start = 2, size = 1}> : tensor<4x1x2xf32>
  %angle = qwen35.slice %row <{axis = 2, start = 1, size = 1}> : tensor<1x1x2xf32>
  return %m, %b, %before, %o, %c, %after, %dv, %tails, %sum, %conv, %angle
      : tensor<2x1x1x1xf32>, tensor<2x1x1x1xf32>, tensor<2x1x1x1xf32>, tensor<4x1x1xf32>, tensor<2x1x1x1xf32>,
        tensor<2x1x1x1xf32>, tensor<4x1x1xf32>, tensor<2x1x1xf32>, tensor<4x1xf32>, tensor<4x1xf32>, tensor<1x1x1xf32>
}
