// RUN: qwen35-interpret %s | FileCheck %s

// A quarter turn of the pair (0, 1), dim 2 copied; the inverse undoes it.
// CHECK:      y = {{\[\[\[}}-2, 1, 5]]]
// CHECK-NEXT: x = {{\[\[\[}}1, 2, 5]]]
func.func @model() -> (tensor<1x1x3xf32> {qwen35.name = "y"}, tensor<1x1x3xf32> {qwen35.name = "x"}) {
  %x = arith.constant dense<[[[1.0, 2.0, 5.0]]]> : tensor<1x1x3xf32>
  %table = arith.constant dense<[[[0.0, 1.0]]]> : tensor<1x1x2xf32>
  %y = qwen35.rope %x, %table : tensor<1x1x3xf32>, tensor<1x1x2xf32>
  %back = qwen35.rope %y, %table <{inverse = true}> : tensor<1x1x3xf32>, tensor<1x1x2xf32>
  return %y, %back : tensor<1x1x3xf32>, tensor<1x1x3xf32>
}
