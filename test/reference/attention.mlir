// RUN: qwen35-interpret %s --documents 2,1 | FileCheck %s

// q . k is 0 throughout: each token averages the values of its document up to itself. Both query heads read the one key
// head; lse is the log of how many tokens are seen.
// CHECK:      o = {{\[\[\[}}2], [2]], {{\[\[}}3], [3]], {{\[\[}}8], [8]]]
// CHECK-NEXT: lse = {{\[\[}}0, 0], [0.69314718055994{{[0-9]*}}, 0.69314718055994{{[0-9]*}}], [0, 0]]
func.func @model(%seq: !qwen35.seq<3, 2>)
    -> (tensor<3x2x1xf32> {qwen35.name = "o"}, tensor<3x2xf32> {qwen35.name = "lse"}) {
  %q = arith.constant dense<1.0> : tensor<3x2x1xf32>
  %k = arith.constant dense<0.0> : tensor<3x1x1xf32>
  %v = arith.constant dense<[[[2.0]], [[4.0]], [[8.0]]]> : tensor<3x1x1xf32>
  %o, %lse = qwen35.attention %q, %k, %v, %seq <{scale = 0.5}>
      : tensor<3x2x1xf32>, tensor<3x1x1xf32>, tensor<3x1x1xf32>, !qwen35.seq<3, 2>
  return %o, %lse : tensor<3x2x1xf32>, tensor<3x2xf32>
}
