// RUN: qwen35-opt %s --qwen35-to-kernels=target=emulated | FileCheck %s
// RUN: qwen35-opt %s --qwen35-to-kernels=target=emulated --qwen35-plan-memory --qwen35-verify-s6 | FileCheck %s --check-prefix=PLAN

// The end of a step in bf16. The gradient's product takes bf16 operands and adds
// its f32 sum to the gradient so far in place: no rounding, no pass of its own.
// Types are in the signature, not among the constants. AdamW overwrites weight
// and moments and has the working copy as a fourth result.
// CHECK-LABEL: func.func @finish(
// CHECK:         %[[Y:.*]] = qkern.dispatch "linear"(%arg5, %arg1) <{{.*}}config = {}, {{.*}} : (tensor<64x32xbf16>, tensor<96x32xbf16>) -> tensor<64x96xbf16>
// CHECK:         %[[G:.*]] = qkern.dispatch "matmul"(%[[Y]], %arg5, %arg4) <{aliases = array<i64: 2>, config = {accumulate = true, transpose_a = true, transpose_b = false}, {{.*}} : (tensor<64x96xbf16>, tensor<64x32xbf16>, tensor<96x32xf32>) -> tensor<96x32xf32>
// CHECK-NOT:     "add"
// CHECK:         %[[A:.*]]:4 = qkern.dispatch "adamw"(%arg0, %arg2, %arg3, %[[G]], {{.*}} <{aliases = array<i64: 0, 1, 2, -1>, config = {beta1 = 5.000000e-01 : f64, beta2 = 5.000000e-01 : f64, eps = 5.000000e-01 : f64, weight_decay = 5.000000e-01 : f64}, {{.*}} -> (tensor<96x32xf32>, tensor<96x32xf32>, tensor<96x32xf32>, tensor<96x32xbf16>)
// CHECK:         return %[[A]]#0, %[[A]]#3, %[[A]]#1, %[[A]]#2, %[[G]]

// Logits in f32 from bf16, and cotangents that meet in bf16: the later product
// adds itself to the earlier one.
// CHECK-LABEL: func.func @products(
// CHECK:         qkern.dispatch "linear"(%arg0, %arg1) <{{.*}}config = {}, {{.*}} : (tensor<64x32xbf16>, tensor<96x32xbf16>) -> tensor<64x96xf32>
// CHECK:         qkern.dispatch "cast"(%{{.*}}) {{.*}} : (tensor<64x96xf32>) -> tensor<64x96xbf16>
// CHECK:         %[[D:.*]] = qkern.dispatch "matmul"(%{{.*}}, %arg1)
// CHECK:         qkern.dispatch "matmul"(%{{.*}}, %arg1, %[[D]]) <{aliases = array<i64: 2>, config = {accumulate = true{{.*}} : (tensor<64x96xbf16>, tensor<96x32xbf16>, tensor<64x32xbf16>) -> tensor<64x32xbf16>

// PLAN:        qplan.param "w" {{.*}} work @"work:w"
// PLAN:        qplan.buffer @"work:w" in @state at {{[0-9]+}} : tensor<96x32xbf16> as "weights"
// PLAN:        qplan.program @finish {
// PLAN:          qplan.launch @adamw{{.*}} buffers [@"weight:w", @"m:w", @"v:w", @"grad:w", {{.*}} @"weight:w", @"m:w", @"v:w", @"work:w"]
// PLAN:        qplan.program @refresh {
// PLAN-NEXT:     qplan.launch @cast{{.*}} buffers [@"weight:w", @"work:w"]
func.func @finish(%w: tensor<96x32xf32> {qwen35.role = "weight", qwen35.name = "w", qwen35.decay = true, qwen35.init = "ones", qwen35.file_dtype = "f32"},
    %w16: tensor<96x32xbf16> {qwen35.role = "work", qwen35.name = "w"}, %m: tensor<96x32xf32> {qwen35.role = "m", qwen35.name = "w"},
    %v: tensor<96x32xf32> {qwen35.role = "v", qwen35.name = "w"}, %g: tensor<96x32xf32> {qwen35.role = "grad", qwen35.name = "w"},
    %x: tensor<64x32xbf16> {qwen35.role = "input", qwen35.name = "x"}, %lr: tensor<f32> {qwen35.role = "scalar", qwen35.name = "lr"})
    -> (tensor<96x32xf32> {qwen35.alias = 0 : i64}, tensor<96x32xbf16> {qwen35.alias = 1 : i64}, tensor<96x32xf32> {qwen35.alias = 2 : i64},
        tensor<96x32xf32> {qwen35.alias = 3 : i64}, tensor<96x32xf32> {qwen35.alias = 4 : i64}) {
  %y = qwen35.linear %x, %w16 : tensor<64x32xbf16>, tensor<96x32xbf16>
  %dw = qwen35.matmul %y, %x <{out_type = f32, transpose_a = true}> : tensor<64x96xbf16>, tensor<64x32xbf16>
  %sum = qwen35.add %g, %dw : tensor<96x32xf32>, tensor<96x32xf32>
  %0:4 = qwen35.adamw %w, %m, %v, %sum, %lr, %lr, %lr, %lr, %lr
      <{beta1 = 0.5, beta2 = 0.5, eps = 0.5, weight_decay = 0.5, work_type = bf16}>
      : tensor<96x32xf32>, tensor<96x32xf32>, tensor<96x32xf32>, tensor<96x32xf32>, tensor<f32>, tensor<f32>, tensor<f32>,
        tensor<f32>, tensor<f32>
  return %0#0, %0#3, %0#1, %0#2, %sum : tensor<96x32xf32>, tensor<96x32xbf16>, tensor<96x32xf32>, tensor<96x32xf32>, tensor<96x32xf32>
}

func.func @refresh(%w: tensor<96x32xf32> {qwen35.role = "weight", qwen35.name = "w"}, %w16: tensor<96x32xbf16> {qwen35.role = "work", qwen35.name = "w"})
    -> (tensor<96x32xbf16> {qwen35.alias = 1 : i64}) {
  %c = qwen35.cast %w : tensor<96x32xf32> to tensor<96x32xbf16>
  return %c : tensor<96x32xbf16>
}

func.func @products(%x: tensor<64x32xbf16> {qwen35.role = "input", qwen35.name = "x"}, %w: tensor<96x32xbf16> {qwen35.role = "work", qwen35.name = "w"})
    -> (tensor<64x32xbf16> {qwen35.alias = 0 : i64}) {
  %logits = qwen35.linear %x, %w <{out_type = f32}> : tensor<64x32xbf16>, tensor<96x32xbf16>
  %d = qwen35.cast %logits : tensor<64x96xf32> to tensor<64x96xbf16>
  %z = qwen35.linear %x, %w : tensor<64x32xbf16>, tensor<96x32xbf16>
  %a = qwen35.matmul %d, %w : tensor<64x96xbf16>, tensor<96x32xbf16>
  %b = qwen35.matmul %z, %w : tensor<64x96xbf16>, tensor<96x32xbf16>
  %sum = qwen35.add %a, %b : tensor<64x32xbf16>, tensor<64x32xbf16>
  %out = qwen35.swiglu %sum, %sum : tensor<64x32xbf16>, tensor<64x32xbf16>
  return %out : tensor<64x32xbf16>
}
