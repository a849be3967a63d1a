// RUN: qwen35-interpret %s --documents 2,1 | FileCheck %s

// y[t] = 2 x[t-1] + x[t] inside a document (silu is the identity at 64 and above, in double).
// CHECK: result0 = {{\[\[}}64], [256], [256]]
func.func @model(%seq: !qwen35.seq<3, 2>) -> tensor<3x1xf32> {
  %x = arith.constant dense<[[64.0], [128.0], [256.0]]> : tensor<3x1xf32>
  %w = arith.constant dense<[[[2.0, 1.0]]]> : tensor<1x1x2xf32>
  %y = qwen35.causal_conv %x, %w, %seq : tensor<3x1xf32>, tensor<1x1x2xf32>, !qwen35.seq<3, 2>
  return %y : tensor<3x1xf32>
}
