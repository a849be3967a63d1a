// RUN: qwen35-interpret %s --documents 2,1 | FileCheck %s

// q has only dim 0, k only dim 1, so that every p is 1 or 1/2. Token 1: ds = (-1/2, 1/2).
// CHECK:      dq = {{\[\[\[}}0, 0]], {{\[\[}}0, 0.5]], {{\[\[}}0, 0]]]
// CHECK-NEXT: dk = {{\[\[\[}}-0.5, 0]], {{\[\[}}0.5, 0]], {{\[\[}}0, 0]]]
// CHECK-NEXT: dv = {{\[\[\[}}1.5, 0]], {{\[\[}}0.5, 0]], {{\[\[}}1, 0]]]
func.func @model(%seq: !qwen35.seq<3, 2>)
    -> (tensor<3x1x2xf32> {qwen35.name = "dq"}, tensor<3x1x2xf32> {qwen35.name = "dk"}, tensor<3x1x2xf32> {qwen35.name = "dv"}) {
  %do = arith.constant dense<[[[1.0, 0.0]], [[1.0, 0.0]], [[1.0, 0.0]]]> : tensor<3x1x2xf32>
  %q = arith.constant dense<[[[2.0, 0.0]], [[2.0, 0.0]], [[2.0, 0.0]]]> : tensor<3x1x2xf32>
  %k = arith.constant dense<[[[0.0, 1.0]], [[0.0, 3.0]], [[0.0, 5.0]]]> : tensor<3x1x2xf32>
  %v = arith.constant dense<[[[2.0, 0.0]], [[4.0, 0.0]], [[8.0, 0.0]]]> : tensor<3x1x2xf32>
  %o, %lse = qwen35.attention %q, %k, %v, %seq <{scale = 0.5}>
      : tensor<3x1x2xf32>, tensor<3x1x2xf32>, tensor<3x1x2xf32>, !qwen35.seq<3, 2>
  %dq, %dk, %dv = qwen35.attention_bwd %do, %q, %k, %v, %o, %lse, %seq <{scale = 0.5}>
      : tensor<3x1x2xf32>, tensor<3x1x2xf32>, tensor<3x1x2xf32>, tensor<3x1x2xf32>, tensor<3x1x2xf32>, tensor<3x1xf32>,
        !qwen35.seq<3, 2>
  return %dq, %dk, %dv : tensor<3x1x2xf32>, tensor<3x1x2xf32>, tensor<3x1x2xf32>
}
