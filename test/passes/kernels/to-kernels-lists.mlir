// RUN: qwen35-opt %s --qwen35-to-kernels=target=sm_90a --split-input-file | FileCheck %s
// RUN: qwen35-opt %s --qwen35-to-kernels --split-input-file | FileCheck %s --check-prefix=CPU

// The squares of all gradients are one kernel, and AdamW of all parameters with
// the same constants and results is one, where the last of them was: all p, all
// m, all v, all g. Kernels for the CPU take one tensor each.
// CHECK-LABEL: func @finish(
// CHECK:         %[[Z:.*]] = qkern.dispatch "zeros"()
// CHECK-NEXT:    %[[N:.*]] = qkern.dispatch "norm_sq"(%arg3, %arg7, %arg11, %[[Z]]) <{aliases = array<i64: 3>
// CHECK-NEXT:    %[[C:.*]]:3 = qkern.dispatch "clip_factor"(%[[N]])
// CHECK-NEXT:    %[[B:.*]]:3 = qkern.dispatch "adamw"(%arg4, %arg5, %arg6, %arg7, %arg12, %[[C]]#1, %arg12, %arg12, %[[C]]#2) <{aliases = array<i64: 0, 1, 2>, config = {{{.*}}weight_decay = 0.000000e+00
// CHECK-NEXT:    %[[A:.*]]:6 = qkern.dispatch "adamw"(%arg0, %arg8, %arg1, %arg9, %arg2, %arg10, %arg3, %arg11, %arg12, %[[C]]#1, %arg12, %arg12, %[[C]]#2) <{aliases = array<i64: 0, 1, 2, 3, 4, 5>
// CHECK-NEXT:    return %[[A]]#0, %[[A]]#2, %[[A]]#4, %[[B]]#0, %[[B]]#1, %[[B]]#2, %[[A]]#1, %[[A]]#3, %[[A]]#5, %[[C]]#0
// CPU-LABEL:   func @finish(
// CPU-COUNT-3:   qkern.dispatch "norm_sq"
// CPU-COUNT-3:   qkern.dispatch "adamw"
func.func @finish(%p0: tensor<8xf32>, %m0: tensor<8xf32>, %v0: tensor<8xf32>, %g0: tensor<8xf32>,
                  %p1: tensor<4x6xf32>, %m1: tensor<4x6xf32>, %v1: tensor<4x6xf32>, %g1: tensor<4x6xf32>,
                  %p2: tensor<6xf32>, %m2: tensor<6xf32>, %v2: tensor<6xf32>, %g2: tensor<6xf32>, %s: tensor<f32>)
    -> (tensor<8xf32> {qwen35.alias = 0 : i64}, tensor<8xf32> {qwen35.alias = 1 : i64}, tensor<8xf32> {qwen35.alias = 2 : i64},
        tensor<4x6xf32> {qwen35.alias = 4 : i64}, tensor<4x6xf32> {qwen35.alias = 5 : i64}, tensor<4x6xf32> {qwen35.alias = 6 : i64},
        tensor<6xf32> {qwen35.alias = 8 : i64}, tensor<6xf32> {qwen35.alias = 9 : i64}, tensor<6xf32> {qwen35.alias = 10 : i64},
        tensor<f32> {qwen35.name = "grad_norm"}) {
  %z = qwen35.zeros : tensor<f64>
  %n0 = qwen35.norm_sq %g0, %z : tensor<8xf32>, tensor<f64>
  %n1 = qwen35.norm_sq %g1, %n0 : tensor<4x6xf32>, tensor<f64>
  %n2 = qwen35.norm_sq %g2, %n1 : tensor<6xf32>, tensor<f64>
  %norm, %factor, %commit = qwen35.clip_factor %n2 <{max_norm = 1.0}> : tensor<f64>
  %a:3 = qwen35.adamw %p0, %m0, %v0, %g0, %s, %factor, %s, %s, %commit <{beta1 = 0.5, beta2 = 0.5, eps = 0.5, weight_decay = 0.5}>
      : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>
  %b:3 = qwen35.adamw %p1, %m1, %v1, %g1, %s, %factor, %s, %s, %commit <{beta1 = 0.5, beta2 = 0.5, eps = 0.5, weight_decay = 0.0}>
      : tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x6xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>
  %c:3 = qwen35.adamw %p2, %m2, %v2, %g2, %s, %factor, %s, %s, %commit <{beta1 = 0.5, beta2 = 0.5, eps = 0.5, weight_decay = 0.5}>
      : tensor<6xf32>, tensor<6xf32>, tensor<6xf32>, tensor<6xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>
  return %a#0, %a#1, %a#2, %b#0, %b#1, %b#2, %c#0, %c#1, %c#2, %norm
      : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x6xf32>,
        tensor<6xf32>, tensor<6xf32>, tensor<6xf32>, tensor<f32>
}
