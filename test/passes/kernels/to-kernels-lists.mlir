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

// -----

// Experts give the sum of the squares of their gradients, which norm_sq takes
// behind its tensors: of what they store in a step of one microbatch,
// CHECK-LABEL: func @only(
// CHECK:         %[[A:.*]]:5 = qkern.dispatch "moe_experts_bwd"({{.*}}config = {squares = true}{{.*}} -> (tensor<8x4xf32>, tensor<8x2xf32>, tensor<3x4x4xf32>, tensor<3x4x2xf32>, tensor<f64>)
// CHECK:         %[[B:.*]]:5 = qkern.dispatch "moe_experts_bwd"(%[[A]]#0, {{.*}}config = {squares = true}
// CHECK:         %[[Z:.*]] = qkern.dispatch "zeros"()
// CHECK-NEXT:    qkern.dispatch "norm_sq"(%[[B]]#0, %[[B]]#4, %[[A]]#4, %[[Z]]) <{aliases = array<i64: 3>
// CHECK:         return %[[A]]#2, %[[A]]#3, %[[B]]#2, %[[B]]#3, %[[B]]#0
// CPU-LABEL:   func @only(
// CPU-NOT:       squares
// CPU-COUNT-5:   "norm_sq"
func.func @only(%gu: tensor<3x4x4xf32>, %gd: tensor<3x4x2xf32>, %hu: tensor<3x4x4xf32>, %hd: tensor<3x4x2xf32>, %gx: tensor<8x4xf32>,
                %x: tensor<8x4xf32>, %p: tensor<8x2xf32>, %idx: tensor<8x2xi32>, %wu: tensor<3x4x4xf32>, %wd: tensor<3x4x2xf32>)
    -> (tensor<3x4x4xf32> {qwen35.alias = 0 : i64}, tensor<3x4x2xf32> {qwen35.alias = 1 : i64},
        tensor<3x4x4xf32> {qwen35.alias = 2 : i64}, tensor<3x4x2xf32> {qwen35.alias = 3 : i64},
        tensor<8x4xf32> {qwen35.alias = 4 : i64}, tensor<f32> {qwen35.name = "grad_norm"}) {
  %ax, %ap, %au, %ad = qwen35.moe_experts_bwd %x, %x, %p, %idx, %wu, %wd
      : tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x2xf32>, tensor<8x2xi32>, tensor<3x4x4xf32>, tensor<3x4x2xf32>
  %bx, %bp, %bu, %bd = qwen35.moe_experts_bwd %ax, %x, %p, %idx, %wu, %wd
      : tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x2xf32>, tensor<8x2xi32>, tensor<3x4x4xf32>, tensor<3x4x2xf32>
  %z = qwen35.zeros : tensor<f64>
  %n0 = qwen35.norm_sq %bd, %z : tensor<3x4x2xf32>, tensor<f64>
  %n1 = qwen35.norm_sq %au, %n0 : tensor<3x4x4xf32>, tensor<f64>
  %n2 = qwen35.norm_sq %bx, %n1 : tensor<8x4xf32>, tensor<f64>
  %n3 = qwen35.norm_sq %ad, %n2 : tensor<3x4x2xf32>, tensor<f64>
  %n4 = qwen35.norm_sq %bu, %n3 : tensor<3x4x4xf32>, tensor<f64>
  %norm, %factor, %commit = qwen35.clip_factor %n4 <{max_norm = 1.0}> : tensor<f64>
  return %au, %ad, %bu, %bd, %bx, %norm : tensor<3x4x4xf32>, tensor<3x4x2xf32>, tensor<3x4x4xf32>, tensor<3x4x2xf32>, tensor<8x4xf32>, tensor<f32>
}

// -----

// and of the sums that the last of several leaves. The first ones have no norm.
// CHECK-LABEL: func @finish(
// CHECK:         %[[A:.*]]:5 = qkern.dispatch "moe_experts_bwd"(%arg3, %arg3, %arg4, %arg5, %arg6, %arg7, %arg0, %arg1) <{aliases = array<i64: -1, -1, 6, 7, -1>, config = {accumulate = true, squares = true}
// CHECK:         qkern.dispatch "norm_sq"(%[[A]]#0, %[[A]]#4, %{{.*}}) <{aliases = array<i64: 2>
// CHECK-LABEL: func @accumulate(
// CHECK:         qkern.dispatch "moe_experts_bwd"{{.*}}config = {accumulate = true},
func.func @finish(%gu: tensor<3x4x4xf32>, %gd: tensor<3x4x2xf32>, %gx: tensor<8x4xf32>,
                  %x: tensor<8x4xf32>, %p: tensor<8x2xf32>, %idx: tensor<8x2xi32>, %wu: tensor<3x4x4xf32>, %wd: tensor<3x4x2xf32>)
    -> (tensor<3x4x4xf32> {qwen35.alias = 0 : i64}, tensor<3x4x2xf32> {qwen35.alias = 1 : i64},
        tensor<8x4xf32> {qwen35.alias = 2 : i64}, tensor<f32> {qwen35.name = "grad_norm"}) {
  %dx, %dp, %du, %dd = qwen35.moe_experts_bwd %x, %x, %p, %idx, %wu, %wd
      : tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x2xf32>, tensor<8x2xi32>, tensor<3x4x4xf32>, tensor<3x4x2xf32>
  %0 = qwen35.add %gu, %du : tensor<3x4x4xf32>, tensor<3x4x4xf32>
  %1 = qwen35.add %gd, %dd : tensor<3x4x2xf32>, tensor<3x4x2xf32>
  %z = qwen35.zeros : tensor<f64>
  %n0 = qwen35.norm_sq %0, %z : tensor<3x4x4xf32>, tensor<f64>
  %n1 = qwen35.norm_sq %1, %n0 : tensor<3x4x2xf32>, tensor<f64>
  %n2 = qwen35.norm_sq %dx, %n1 : tensor<8x4xf32>, tensor<f64>
  %norm, %factor, %commit = qwen35.clip_factor %n2 <{max_norm = 1.0}> : tensor<f64>
  return %0, %1, %dx, %norm : tensor<3x4x4xf32>, tensor<3x4x2xf32>, tensor<8x4xf32>, tensor<f32>
}
func.func @accumulate(%gu: tensor<3x4x4xf32>, %gd: tensor<3x4x2xf32>,
                      %x: tensor<8x4xf32>, %p: tensor<8x2xf32>, %idx: tensor<8x2xi32>, %wu: tensor<3x4x4xf32>, %wd: tensor<3x4x2xf32>)
    -> (tensor<3x4x4xf32> {qwen35.alias = 0 : i64}, tensor<3x4x2xf32> {qwen35.alias = 1 : i64}) {
  %dx, %dp, %du, %dd = qwen35.moe_experts_bwd %x, %x, %p, %idx, %wu, %wd
      : tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x2xf32>, tensor<8x2xi32>, tensor<3x4x4xf32>, tensor<3x4x2xf32>
  %0 = qwen35.add %gu, %du : tensor<3x4x4xf32>, tensor<3x4x4xf32>
  %1 = qwen35.add %gd, %dd : tensor<3x4x2xf32>, tensor<3x4x2xf32>
  return %0, %1 : tensor<3x4x4xf32>, tensor<3x4x2xf32>
}

// -----

// Not where the norm is of something else than what the kernel stores, of one of
// its gradients alone, or twice of one; nor where no tensor would be left.
// CHECK-LABEL: func @others(
// CHECK-NOT:     squares
// CHECK:         "norm_sq"(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}})
// CHECK-LABEL: func @alone(
// CHECK-NOT:     squares
// CHECK:         return
func.func @others(%x: tensor<8x4xf32>, %p: tensor<8x2xf32>, %idx: tensor<8x2xi32>, %wu: tensor<3x4x4xf32>, %wd: tensor<3x4x2xf32>)
    -> (tensor<f32> {qwen35.name = "grad_norm"}) {
  %ax, %ap, %au, %ad = qwen35.moe_experts_bwd %x, %x, %p, %idx, %wu, %wd
      : tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x2xf32>, tensor<8x2xi32>, tensor<3x4x4xf32>, tensor<3x4x2xf32>
  %bx, %bp, %bu, %bd = qwen35.moe_experts_bwd %ax, %x, %p, %idx, %wu, %wd
      : tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x2xf32>, tensor<8x2xi32>, tensor<3x4x4xf32>, tensor<3x4x2xf32>
  %cx, %cp, %cu, %cd = qwen35.moe_experts_bwd %bx, %x, %p, %idx, %wu, %wd
      : tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x2xf32>, tensor<8x2xi32>, tensor<3x4x4xf32>, tensor<3x4x2xf32>
  %s = qwen35.add %ad, %ad : tensor<3x4x2xf32>, tensor<3x4x2xf32>
  %z = qwen35.zeros : tensor<f64>
  %n0 = qwen35.norm_sq %au, %z : tensor<3x4x4xf32>, tensor<f64>
  %n1 = qwen35.norm_sq %s, %n0 : tensor<3x4x2xf32>, tensor<f64>
  %n2 = qwen35.norm_sq %bd, %n1 : tensor<3x4x2xf32>, tensor<f64>
  %n3 = qwen35.norm_sq %cu, %n2 : tensor<3x4x4xf32>, tensor<f64>
  %n4 = qwen35.norm_sq %cd, %n3 : tensor<3x4x2xf32>, tensor<f64>
  %n5 = qwen35.norm_sq %cd, %n4 : tensor<3x4x2xf32>, tensor<f64>
  %norm, %factor, %commit = qwen35.clip_factor %n5 <{max_norm = 1.0}> : tensor<f64>
  return %norm : tensor<f32>
}
func.func @alone(%x: tensor<8x4xf32>, %p: tensor<8x2xf32>, %idx: tensor<8x2xi32>, %wu: tensor<3x4x4xf32>, %wd: tensor<3x4x2xf32>)
    -> (tensor<f32> {qwen35.name = "grad_norm"}) {
  %ax, %ap, %au, %ad = qwen35.moe_experts_bwd %x, %x, %p, %idx, %wu, %wd
      : tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x2xf32>, tensor<8x2xi32>, tensor<3x4x4xf32>, tensor<3x4x2xf32>
  %z = qwen35.zeros : tensor<f64>
  %n0 = qwen35.norm_sq %au, %z : tensor<3x4x4xf32>, tensor<f64>
  %n1 = qwen35.norm_sq %ad, %n0 : tensor<3x4x2xf32>, tensor<f64>
  %norm, %factor, %commit = qwen35.clip_factor %n1 <{max_norm = 1.0}> : tensor<f64>
  return %norm : tensor<f32>
}
