// RUN: qwen35-opt %s --qwen35-autodiff --split-input-file --verify-diagnostics | FileCheck %s

// Gradients follow the results, one per parameter, in order. The head's
// gradient op takes over the loss; a parameter used twice (embedding and head)
// gets the sum; cotangents of the slices of one tensor are joined by a concat,
// whose gap is zeros.
// CHECK-LABEL: func.func @gradients(
// CHECK-SAME:    -> (tensor<f32> {qwen35.name = "loss"}, tensor<32x8xf32> {qwen35.gradient = "e"}, tensor<16x8xf32> {qwen35.gradient = "w"})
// CHECK-DAG:     %[[E:.*]] = qwen35.param "e"
// CHECK-DAG:     %[[W:.*]] = qwen35.param "w"
// CHECK:         %[[X:.*]] = qwen35.embed %arg0, %[[E]]
// CHECK:         %[[L:.*]] = qwen35.linear %[[X]], %[[W]]
// CHECK:         %[[A:.*]] = qwen35.slice %[[L]] <{axis = 1 : i64, size = 8 : i64, start = 0 : i64}>
// CHECK:         %[[B:.*]] = qwen35.slice %[[L]] <{axis = 1 : i64, size = 4 : i64, start = 12 : i64}>
// CHECK-NOT:     qwen35.lm_loss %
// CHECK:         %[[LOSS:.*]], %[[DH:.*]], %[[DHEAD:.*]] = qwen35.lm_loss_grad %{{.*}}, %[[E]], %arg1, %arg3
// CHECK:         %[[Z:.*]] = qwen35.zeros : tensor<16x4xf32>
// CHECK:         %[[DL:.*]] = qwen35.concat %{{.*}}, %[[Z]], %{{.*}} <{axis = 1 : i64}>
// CHECK:         %[[DX:.*]] = qwen35.matmul %[[DL]], %[[W]] {{ *}}: tensor<16x16xf32>, tensor<16x8xf32>
// CHECK:         %[[DW:.*]] = qwen35.matmul %[[DL]], %[[X]] <{transpose_a = true}>
// CHECK:         %[[DE:.*]] = qwen35.embed_bwd
// CHECK:         %[[SUM:.*]] = qwen35.add %[[DHEAD]], %[[DE]]
// CHECK:         return %{{.*}}, %[[SUM]], %[[DW]]
func.func @model(%ids: tensor<16xi32>, %labels: tensor<16xi32>, %seq: !qwen35.seq<16, 3>, %inv_count: tensor<f32>,
    %aux_scale: tensor<f32>) -> (tensor<f32> {qwen35.name = "loss"}) {
  %e = qwen35.param "e" <{init = "zeros", decay = true, file_dtype = "f32"}> : tensor<32x8xf32>
  %w = qwen35.param "w" <{init = "zeros", decay = true, file_dtype = "f32"}> : tensor<16x8xf32>
  %x = qwen35.embed %ids, %e : tensor<16xi32>, tensor<32x8xf32>
  %l = qwen35.linear %x, %w : tensor<16x8xf32>, tensor<16x8xf32>
  %a = qwen35.slice %l <{axis = 1, start = 0, size = 8}> : tensor<16x16xf32>
  %b = qwen35.slice %l <{axis = 1, start = 12, size = 4}> : tensor<16x16xf32>
  %loss = qwen35.lm_loss %a, %e, %labels, %inv_count : tensor<16x8xf32>, tensor<32x8xf32>, tensor<16xi32>, tensor<f32>
  %b8 = qwen35.slice %b <{axis = 0, start = 0, size = 1}> : tensor<16x4xf32>
  %b1 = qwen35.slice %b8 <{axis = 1, start = 0, size = 1}> : tensor<1x4xf32>
  %b0 = qwen35.reshape %b1 : tensor<1x1xf32> to tensor<f32>
  %total = qwen35.add %loss, %b0 : tensor<f32>, tensor<f32>
  return %total : tensor<f32>
}

// -----

// Without lm_loss there is nothing to merge; a parameter that does not reach
// the loss gets zeros.
// CHECK-LABEL: func.func @gradients(
// CHECK:         %[[Z:.*]] = qwen35.zeros : tensor<4xf32>
// CHECK:         return %{{.*}}, %{{.*}}, %[[Z]]
func.func @model(%x: tensor<f32>) -> (tensor<f32> {qwen35.name = "loss"}) {
  %p = qwen35.param "p" <{init = "zeros", decay = false, file_dtype = "f32"}> : tensor<f32>
  %q = qwen35.param "q" <{init = "zeros", decay = false, file_dtype = "f32"}> : tensor<4xf32>
  %y = qwen35.mul_scalar %p, %x : tensor<f32>, tensor<f32>
  return %y : tensor<f32>
}

// -----

// expected-error @below {{the loss does not depend on any parameter}}
func.func @model(%x: tensor<f32>) -> (tensor<f32> {qwen35.name = "loss"}) {
  return %x : tensor<f32>
}

// -----

func.func @model() -> (tensor<f32> {qwen35.name = "loss"}) {
  %p = qwen35.param "p" <{init = "zeros", decay = false, file_dtype = "f32"}> : tensor<f32>
  // expected-error @below {{parameter "p" appears twice, expected one op with several uses}}
  %q = qwen35.param "p" <{init = "zeros", decay = false, file_dtype = "f32"}> : tensor<f32>
  %y = qwen35.add %p, %q : tensor<f32>, tensor<f32>
  return %y : tensor<f32>
}

// -----

func.func @model() -> (tensor<4xf32> {qwen35.name = "loss"}) {
  %p = qwen35.param "p" <{init = "zeros", decay = false, file_dtype = "f32"}> : tensor<2xf32>
  // expected-error @below {{lies between parameters and the loss but has no gradient}}
  %y = qwen35.concat %p, %p <{axis = 0}> : tensor<2xf32>, tensor<2xf32>
  return %y : tensor<4xf32>
}
