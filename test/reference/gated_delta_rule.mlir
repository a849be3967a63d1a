// RUN: qwen35-interpret %s --documents 2,2 | FileCheck %s
// RUN: qwen35-opt %s --qwen35-lower-gdn | qwen35-interpret --documents 2,2 | FileCheck %s

// Normalized q and k are 1 / sqrt(1 + 3) = 1/2, scale is 2, so o is the state:
//   token 0: S = 1/2; token 1: delta = 1/2 (2 - 1/4), S = 1/2 + 7/16; token 2 starts over: S = 2; token 3 forgets: S = 4.
// CHECK: result0 = {{\[\[\[}}0.5]], {{\[\[}}0.9375]], {{\[\[}}2]], {{\[\[}}4]]]
func.func @model(%seq: !qwen35.seq<4, 2>) -> tensor<4x1x1xf32> {
  %q = arith.constant dense<1.0> : tensor<4x1x1xf32>
  %v = arith.constant dense<[[[1.0]], [[2.0]], [[4.0]], [[8.0]]]> : tensor<4x1x1xf32>
  %g = arith.constant dense<[[0.0], [0.0], [0.0], [-1024.0]]> : tensor<4x1xf32>
  %beta = arith.constant dense<[[1.0], [0.5], [1.0], [1.0]]> : tensor<4x1xf32>
  %o = qwen35.gated_delta_rule %q, %q, %v, %g, %beta, %seq <{scale = 2.0, eps = 3.0}>
      : tensor<4x1x1xf32>, tensor<4x1x1xf32>, tensor<4x1x1xf32>, tensor<4x1xf32>, tensor<4x1xf32>, !qwen35.seq<4, 2>
  return %o : tensor<4x1x1xf32>
}
