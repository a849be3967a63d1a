// RUN: qwen35-interpret %s | FileCheck %s

// CHECK: result0 = {{\[\[}}0.25, 0, -0.25, 0]]
func.func @model() -> tensor<1x4xf32> {
  %dw = arith.constant dense<[[1.0, 0.0]]> : tensor<1x2xf32>
  %w = arith.constant dense<[[0.5, 0.5]]> : tensor<1x2xf32>
  %idx = arith.constant dense<[[0, 2]]> : tensor<1x2xi32>
  %d = qwen35.router_bwd %dw, %w, %idx <{experts = 4}> : tensor<1x2xf32>, tensor<1x2xf32>, tensor<1x2xi32>
  return %d : tensor<1x4xf32>
}
