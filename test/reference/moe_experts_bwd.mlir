// RUN: qwen35-interpret %s | FileCheck %s

// The experts of moe_experts.mlir. Expert 0: dgate = 128, dup = 64; expert 1: dgate = 64, dup = 0; expert 2: exactly 0.
// CHECK:      dx = {{\[\[}}256]]
// CHECK-NEXT: dweights = {{\[\[}}16384, 0]]
// CHECK-NEXT: dw_gate_up = {{\[\[\[}}8192], [4096]], {{\[\[}}4096], [0]], {{\[\[}}0], [0]]]
// CHECK-NEXT: dw_down = {{\[\[\[}}4096]], {{\[\[}}0]], {{\[\[}}0]]]
func.func @model() -> (tensor<1x1xf32> {qwen35.name = "dx"}, tensor<1x2xf32> {qwen35.name = "dweights"},
                       tensor<3x2x1xf32> {qwen35.name = "dw_gate_up"}, tensor<3x1x1xf32> {qwen35.name = "dw_down"}) {
  %dy = arith.constant dense<1.0> : tensor<1x1xf32>
  %x = arith.constant dense<64.0> : tensor<1x1xf32>
  %w = arith.constant dense<0.5> : tensor<1x2xf32>
  %idx = arith.constant dense<[[0, 1]]> : tensor<1x2xi32>
  %gu = arith.constant dense<[[[1.0], [2.0]], [[0.0], [1.0]], [[1.0], [1.0]]]> : tensor<3x2x1xf32>
  %dn = arith.constant dense<[[[2.0]], [[4.0]], [[8.0]]]> : tensor<3x1x1xf32>
  %dx, %dw, %dgu, %ddn = qwen35.moe_experts_bwd %dy, %x, %w, %idx, %gu, %dn
      : tensor<1x1xf32>, tensor<1x1xf32>, tensor<1x2xf32>, tensor<1x2xi32>, tensor<3x2x1xf32>, tensor<3x1x1xf32>
  return %dx, %dw, %dgu, %ddn : tensor<1x1xf32>, tensor<1x2xf32>, tensor<3x2x1xf32>, tensor<3x1x1xf32>
}
