// RUN: qwen35-interpret %s | FileCheck %s

// Two tokens, so that the sums over tokens show; sigmoid(64) is 1, sigmoid(0) is 1/2, sigmoid'(1024) is 0.
// CHECK:      da = {{\[\[}}-1, -2], [-0.5, -1]]
// CHECK-NEXT: db = {{\[\[}}1, 0], [2, 0]]
// CHECK-NEXT: da_log = [-64.693147180559{{[0-9]*}}, -257.386294361119{{[0-9]*}}]
// CHECK-NEXT: ddt_bias = [-1.5, -3]
func.func @model() -> (tensor<2x2xf32> {qwen35.name = "da"}, tensor<2x2xf32> {qwen35.name = "db"},
                       tensor<2xf32> {qwen35.name = "da_log"}, tensor<2xf32> {qwen35.name = "ddt_bias"}) {
  %dg = arith.constant dense<[[1.0, 2.0], [1.0, 2.0]]> : tensor<2x2xf32>
  %dbeta = arith.constant dense<[[4.0, 4.0], [8.0, 8.0]]> : tensor<2x2xf32>
  %a = arith.constant dense<[[64.0, 128.0], [0.0, 0.0]]> : tensor<2x2xf32>
  %b = arith.constant dense<[[0.0, 1024.0], [0.0, 1024.0]]> : tensor<2x2xf32>
  %zero = arith.constant dense<0.0> : tensor<2xf32>
  %da, %db, %da_log, %ddt = qwen35.gdn_gates_bwd %dg, %dbeta, %a, %b, %zero, %zero
      : tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>
  return %da, %db, %da_log, %ddt : tensor<2x2xf32>, tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>
}
