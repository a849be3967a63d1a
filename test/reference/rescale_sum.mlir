// RUN: qwen35-interpret %s | FileCheck %s

// 3 exp(1 - 1) and 3 exp(ln 2 - 2 ln 2); a rank whose maximum is far below adds nothing.
// CHECK: y = [3, 1.4999999{{[0-9]*}}, 0]
func.func @model() -> (tensor<3xf32> {qwen35.name = "y"}) {
  %s = arith.constant dense<[3.0, 3.0, 3.0]> : tensor<3xf32>
  %from = arith.constant dense<[1.0, 0.69314718, -2000.0]> : tensor<3xf32>
  %to = arith.constant dense<[1.0, 1.38629437, 0.0]> : tensor<3xf32>
  %y = qwen35.rescale_sum %s, %from, %to : tensor<3xf32>, tensor<3xf32>, tensor<3xf32>
  return %y : tensor<3xf32>
}
