// RUN: qwen35-interpret %s | FileCheck %s

// Expert 0: silu(64) * 128 = 8192, half of it, times 2. Expert 1 has a closed gate, expert 2 no token.
// CHECK: result0 = {{\[\[}}8192]]
func.func @model() -> tensor<1x1xf32> {
  %x = arith.constant dense<64.0> : tensor<1x1xf32>
  %w = arith.constant dense<0.5> : tensor<1x2xf32>
  %idx = arith.constant dense<[[0, 1]]> : tensor<1x2xi32>
  %gu = arith.constant dense<[[[1.0], [2.0]], [[0.0], [1.0]], [[1.0], [1.0]]]> : tensor<3x2x1xf32>
  %dn = arith.constant dense<[[[2.0]], [[4.0]], [[8.0]]]> : tensor<3x1x1xf32>
  %y = qwen35.moe_experts %x, %w, %idx, %gu, %dn
      : tensor<1x1xf32>, tensor<1x2xf32>, tensor<1x2xi32>, tensor<3x2x1xf32>, tensor<3x1x1xf32>
  return %y : tensor<1x1xf32>
}
