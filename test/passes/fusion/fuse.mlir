// RUN: qwen35-opt %s --qwen35-fuse=max-row=128 --split-input-file --remarks-filter-missed=fusion --verify-diagnostics | FileCheck %s

// The sum leaves the group for the next residual, the norm for its reader.
// CHECK-LABEL: func @add_then_norm(
// CHECK-NEXT:    %[[G:.*]]:3 = qkern.group {
// CHECK-NEXT:      %[[S:.*]] = qwen35.add %arg0, %arg1
// CHECK-NEXT:      %[[Y:.*]], %[[R:.*]] = qwen35.rms_norm %[[S]], %arg2
// CHECK-NEXT:      qkern.yield %[[S]], %[[Y]], %[[R]]
// CHECK:         return %[[G]]#0, %[[G]]#1
func.func @add_then_norm(%h: tensor<8x128xf32>, %d: tensor<8x128xf32>, %w: tensor<128xf32>)
    -> (tensor<8x128xf32>, tensor<8x128xf32>) {
  %s = qwen35.add %h, %d : tensor<8x128xf32>, tensor<8x128xf32>
  %y, %r = qwen35.rms_norm %s, %w <{eps = 0.5}> : tensor<8x128xf32>, tensor<128xf32>
  return %s, %y : tensor<8x128xf32>, tensor<8x128xf32>
}

// -----

// %t needs the sum before the norm runs, so the sum cannot move down to it.
// CHECK-LABEL: func @sum_read_early(
// CHECK-NOT:     qkern.group
func.func @sum_read_early(%h: tensor<8x128xf32>, %w: tensor<128xf32>) -> (tensor<8x128xf32>, tensor<8x128xf32>) {
  %s = qwen35.add %h, %h : tensor<8x128xf32>, tensor<8x128xf32>
  %t = qwen35.scale %s <{factor = 2.0}> : tensor<8x128xf32>
  // expected-remark @below {{the sum is read ahead of the norm}}
  %y, %r = qwen35.rms_norm %s, %w <{eps = 0.5}> : tensor<8x128xf32>, tensor<128xf32>
  return %t, %y : tensor<8x128xf32>, tensor<8x128xf32>
}

// -----

// CHECK-LABEL: func @long_row(
// CHECK-NOT:     qkern.group
func.func @long_row(%h: tensor<2x256xf32>, %w: tensor<256xf32>) -> tensor<2x256xf32> {
  %s = qwen35.add %h, %h : tensor<2x256xf32>, tensor<2x256xf32>
  // expected-remark @below {{row of 256 exceeds max-row=128}}
  %y, %r = qwen35.rms_norm %s, %w <{eps = 0.5}> : tensor<2x256xf32>, tensor<256xf32>
  return %y : tensor<2x256xf32>
}

// -----

// The gradient of the norm never reaches memory without the residual's.
// CHECK-LABEL: func @norm_gradient(
// CHECK-NEXT:    %[[G:.*]]:2 = qkern.group {
// CHECK-NEXT:      %[[DX:.*]], %[[DW:.*]] = qwen35.rms_norm_bwd %arg0, %arg1, %arg2, %arg3
// CHECK-NEXT:      %[[S:.*]] = qwen35.add %arg4, %[[DX]]
// CHECK-NEXT:      qkern.yield %[[S]], %[[DW]]
// CHECK:         return %[[G]]#0, %[[G]]#1
func.func @norm_gradient(%dy: tensor<8x4xf32>, %x: tensor<8x4xf32>, %w: tensor<4xf32>, %r: tensor<8xf32>, %res: tensor<8x4xf32>)
    -> (tensor<8x4xf32>, tensor<4xf32>) {
  %dx, %dw = qwen35.rms_norm_bwd %dy, %x, %w, %r : tensor<8x4xf32>, tensor<8x4xf32>, tensor<4xf32>, tensor<8xf32>
  %g = qwen35.add %res, %dx : tensor<8x4xf32>, tensor<8x4xf32>
  return %g, %dw : tensor<8x4xf32>, tensor<4xf32>
}

// -----

// CHECK-LABEL: func @residual_comes_later(
// CHECK-NOT:     qkern.group
func.func @residual_comes_later(%dy: tensor<8x4xf32>, %x: tensor<8x4xf32>, %w: tensor<4xf32>, %r: tensor<8xf32>)
    -> (tensor<8x4xf32>, tensor<4xf32>) {
  // expected-remark @below {{the residual gradient comes later}}
  %dx, %dw = qwen35.rms_norm_bwd %dy, %x, %w, %r : tensor<8x4xf32>, tensor<8x4xf32>, tensor<4xf32>, tensor<8xf32>
  %res = qwen35.scale %dy <{factor = 2.0}> : tensor<8x4xf32>
  %g = qwen35.add %res, %dx : tensor<8x4xf32>, tensor<8x4xf32>
  return %g, %dw : tensor<8x4xf32>, tensor<4xf32>
}

// -----

// CHECK-LABEL: func @norm_then_rope(
// CHECK-NEXT:    %[[G:.*]]:2 = qkern.group {
// CHECK-NEXT:      %[[Y:.*]], %[[R:.*]] = qwen35.rms_norm %arg0, %arg1
// CHECK-NEXT:      %[[Z:.*]] = qwen35.rope %[[Y]], %arg2
// CHECK-NEXT:      qkern.yield %[[Z]], %[[R]]
// CHECK:         return %[[G]]#0, %[[G]]#1
func.func @norm_then_rope(%x: tensor<8x2x4xf32>, %w: tensor<4xf32>, %table: tensor<8x1x2xf32>)
    -> (tensor<8x2x4xf32>, tensor<8x2xf32>) {
  %y, %r = qwen35.rms_norm %x, %w <{eps = 0.5}> : tensor<8x2x4xf32>, tensor<4xf32>
  %z = qwen35.rope %y, %table : tensor<8x2x4xf32>, tensor<8x1x2xf32>
  return %z, %r : tensor<8x2x4xf32>, tensor<8x2xf32>
}

// -----

// CHECK-LABEL: func @gate(
func.func @gate(%q: tensor<8x1x4xf32>, %seq: !qwen35.seq<8, 2>) -> tensor<8x1x4xf32> {
  %o, %lse = qwen35.attention %q, %q, %q, %seq <{scale = 0.5}> : tensor<8x1x4xf32>, tensor<8x1x4xf32>, tensor<8x1x4xf32>, !qwen35.seq<8, 2>
  // expected-remark @below {{attention keeps its ungated output for backward}}
  %y = qwen35.mul_sigmoid %o, %q : tensor<8x1x4xf32>, tensor<8x1x4xf32>
  return %y : tensor<8x1x4xf32>
}
