// RUN: qwen35-interpret %s --documents 2 | FileCheck %s

// What lies between the ops of the chunked form, for the first document of gated_delta_rule.mlir: one chunk of two rows.
//   tinv = [[1, 0], [-beta_1 / 4, 1]]; the state before the chunk is 0; rows of V' are the deltas;
//   the gradient of the state after the chunk is 0; rows of Z are dv / beta.
// CHECK:      qr = {{\[\[}}0.5], [0.5]]
// CHECK-NEXT: gamma = {{\[\[\[}}0, -1024, -1024]]]
// CHECK-NEXT: tinv = {{\[\[\[\[}}1, 0, 0], [{{-?}}0, 1, 0], [0, 0, 0]]]]
// CHECK-NEXT: tinv0 = {{\[\[\[\[}}1, 0], [-0.125, 1]]]]
// CHECK-NEXT: states = {{\[\[\[\[}}0]]]]
// CHECK-NEXT: vnew = {{\[\[\[\[}}1], [0.875], [0]]]]
// CHECK-NEXT: dstates = {{\[\[\[\[}}0]]]]
// CHECK-NEXT: z = {{\[\[\[\[}}0.4375], [0.5], [0]]]]
func.func @model(%seq: !qwen35.seq<2, 1>)
    -> (tensor<2x1xf32> {qwen35.name = "qr"}, tensor<1x1x3xf32> {qwen35.name = "gamma"},
        tensor<1x1x3x3xf32> {qwen35.name = "tinv"}, tensor<1x1x2x2xf32> {qwen35.name = "tinv0"},
        tensor<1x1x1x1xf32> {qwen35.name = "states"}, tensor<1x1x3x1xf32> {qwen35.name = "vnew"},
        tensor<1x1x1x1xf32> {qwen35.name = "dstates"}, tensor<1x1x3x1xf32> {qwen35.name = "z"}) {
  %do = arith.constant dense<[[[0.0]], [[1.0]]]> : tensor<2x1x1xf32>
  %q = arith.constant dense<1.0> : tensor<2x1x1xf32>
  %v = arith.constant dense<[[[1.0]], [[2.0]]]> : tensor<2x1x1xf32>
  %g = arith.constant dense<0.0> : tensor<2x1xf32>
  %forget = arith.constant dense<[[0.0], [-1024.0]]> : tensor<2x1xf32>
  %beta = arith.constant dense<[[1.0], [0.5]]> : tensor<2x1xf32>
  %qn, %kn, %qr, %kr, %gamma, %tinv = qkern.gdn_prep %q, %q, %g, %beta, %seq <{eps = 3.0}>
      : tensor<2x1x1xf32>, tensor<2x1x1xf32>, tensor<2x1xf32>, tensor<2x1xf32>, !qwen35.seq<2, 1>
  // With decay: gamma repeats its last row, and the decay enters tinv as a factor.
  %_0, %_1, %_2, %_3, %gammaf, %tinvf = qkern.gdn_prep %q, %q, %forget, %beta, %seq <{eps = 3.0}>
      : tensor<2x1x1xf32>, tensor<2x1x1xf32>, tensor<2x1xf32>, tensor<2x1xf32>, !qwen35.seq<2, 1>
  %s, %vnew = qkern.gdn_scan %kn, %v, %beta, %gamma, %tinv, %seq
      : tensor<2x1x1xf32>, tensor<2x1x1xf32>, tensor<2x1xf32>, tensor<1x1x64xf32>, tensor<1x1x64x64xf32>, !qwen35.seq<2, 1>
  %d, %z = qkern.gdn_scan_bwd %qn, %kn, %do, %beta, %gamma, %tinv, %seq <{scale = 2.0}>
      : tensor<2x1x1xf32>, tensor<2x1x1xf32>, tensor<2x1x1xf32>, tensor<2x1xf32>, tensor<1x1x64xf32>,
        tensor<1x1x64x64xf32>, !qwen35.seq<2, 1>
  %gamma3 = qwen35.slice %gammaf <{axis = 2, start = 0, size = 3}> : tensor<1x1x64xf32>
  %t3 = qwen35.slice %tinvf <{axis = 2, start = 0, size = 3}> : tensor<1x1x64x64xf32>
  %t33 = qwen35.slice %t3 <{axis = 3, start = 0, size = 3}> : tensor<1x1x3x64xf32>
  %t2 = qwen35.slice %tinv <{axis = 2, start = 0, size = 2}> : tensor<1x1x64x64xf32>
  %t22 = qwen35.slice %t2 <{axis = 3, start = 0, size = 2}> : tensor<1x1x2x64xf32>
  %vnew3 = qwen35.slice %vnew <{axis = 2, start = 0, size = 3}> : tensor<1x1x64x1xf32>
  %z3 = qwen35.slice %z <{axis = 2, start = 0, size = 3}> : tensor<1x1x64x1xf32>
  return %qr, %gamma3, %t33, %t22, %s, %vnew3, %d, %z3
      : tensor<2x1xf32>, tensor<1x1x3xf32>, tensor<1x1x3x3xf32>, tensor<1x1x2x2xf32>, tensor<1x1x1x1xf32>,
        tensor<1x1x3x1xf32>, tensor<1x1x1x1xf32>, tensor<1x1x3x1xf32>
}
