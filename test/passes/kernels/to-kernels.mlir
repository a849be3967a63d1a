// RUN: qwen35-opt %s --qwen35-to-kernels --split-input-file --verify-diagnostics | FileCheck %s

// Slices and splits of dimensions are views of what they slice; merging
// dimensions that a slice has torn apart needs a copy.
// CHECK-LABEL: func @views(
// CHECK:         %[[V:.*]] = qkern.view %arg0 <{offset = 8 : i64, strides = array<i64: 16, 1>}> : tensor<4x16xf32> to tensor<4x8xf32>
// CHECK:         %[[H:.*]] = qkern.view %arg0 <{offset = 8 : i64, strides = array<i64: 16, 4, 1>}> : tensor<4x16xf32> to tensor<4x2x4xf32>
// CHECK:         qkern.dispatch "scale"(%[[H]])
// CHECK:         %[[C:.*]] = qkern.dispatch "copy"(%[[V]])
// CHECK:         qkern.view %[[C]] <{offset = 0 : i64, strides = array<i64: 1>}> : tensor<4x8xf32> to tensor<32xf32>
func.func @views(%x: tensor<4x16xf32>) -> (tensor<4x2x4xf32>, tensor<32xf32>) {
  %s = qwen35.slice %x <{axis = 1, start = 8, size = 8}> : tensor<4x16xf32>
  %h = qwen35.reshape %s : tensor<4x8xf32> to tensor<4x2x4xf32>
  %a = qwen35.scale %h <{factor = 2.0}> : tensor<4x2x4xf32>
  %f = qwen35.reshape %s : tensor<4x8xf32> to tensor<32xf32>
  %b = qwen35.scale %f <{factor = 2.0}> : tensor<32xf32>
  return %a, %b : tensor<4x2x4xf32>, tensor<32xf32>
}

// -----

// The document table is an int32 tensor: 8 words, 2 x (3 + 1) for documents,
// 3 x (16/64 + 3) for chunks, 2 x 16 for tokens.
// CHECK-LABEL: func @documents(
// CHECK-SAME:    tensor<57xi32>
// CHECK:         qkern.dispatch "causal_conv"(%arg0, %arg1, %arg2) <{{.*}}config = {max_docs = 3 : i64, tokens = 16 : i64}
func.func @documents(%x: tensor<16x4xf32>, %w: tensor<4x1x4xf32>, %seq: !qwen35.seq<16, 3>) -> tensor<16x4xf32> {
  %y = qwen35.causal_conv %x, %w, %seq : tensor<16x4xf32>, tensor<4x1x4xf32>, !qwen35.seq<16, 3>
  return %y : tensor<16x4xf32>
}

// -----

// A sum that overwrites its argument is made in place; a product that only
// feeds it accumulates into the argument itself.
// CHECK-LABEL: func @state(
// CHECK:         %[[G:.*]] = qkern.dispatch "matmul"(%arg2, %arg3, %arg0) <{aliases = array<i64: 2>, config = {accumulate = true, transpose_a = true{{.*}}}
// CHECK:         %[[B:.*]] = qkern.dispatch "add"(%arg1, %arg4) <{aliases = array<i64: 0>
// CHECK:         return %[[G]], %[[B]]
func.func @state(%g: tensor<4x6xf32>, %b: tensor<6xf32>, %dy: tensor<8x4xf32>, %x: tensor<8x6xf32>, %db: tensor<6xf32>)
    -> (tensor<4x6xf32> {qwen35.alias = 0 : i64}, tensor<6xf32> {qwen35.alias = 1 : i64}) {
  %dw = qwen35.matmul %dy, %x <{transpose_a = true}> : tensor<8x4xf32>, tensor<8x6xf32>
  %sum = qwen35.add %g, %dw : tensor<4x6xf32>, tensor<4x6xf32>
  %sb = qwen35.add %b, %db : tensor<6xf32>, tensor<6xf32>
  return %sum, %sb : tensor<4x6xf32>, tensor<6xf32>
}

// -----

// Where gradients meet, the later product adds itself to the earlier; a value
// that something else reads stays as it is.
// CHECK-LABEL: func @fan_in(
// CHECK:         %[[A:.*]] = qkern.dispatch "matmul"(%arg0, %arg2)
// CHECK:         %[[S:.*]] = qkern.dispatch "matmul"(%arg1, %arg2, %[[A]]) <{aliases = array<i64: 2>, config = {accumulate = true
// CHECK:         %[[T:.*]] = qkern.dispatch "add"(%[[S]], %arg3)
// CHECK:         return %[[S]], %[[T]]
func.func @fan_in(%x: tensor<8x4xf32>, %y: tensor<8x4xf32>, %w: tensor<4x6xf32>, %r: tensor<8x6xf32>) -> (tensor<8x6xf32>, tensor<8x6xf32>) {
  %a = qwen35.matmul %x, %w : tensor<8x4xf32>, tensor<4x6xf32>
  %b = qwen35.matmul %y, %w : tensor<8x4xf32>, tensor<4x6xf32>
  %s = qwen35.add %b, %a : tensor<8x6xf32>, tensor<8x6xf32>
  %t = qwen35.add %s, %r : tensor<8x6xf32>, tensor<8x6xf32>
  return %s, %t : tensor<8x6xf32>, tensor<8x6xf32>
}

// -----

// The other kernels that add to what is there: rows of an embedding, the head,
// and experts, both of whose gradients are sums.
// CHECK-LABEL: func @sums(
// CHECK:         qkern.dispatch "embed_bwd"(%arg4, %arg5, %arg0) <{aliases = array<i64: 2>, config = {accumulate = true, vocab = 6 : i64}
// CHECK:         qkern.dispatch "lm_loss_grad"(%arg4, %arg6, %arg5, %arg7, %arg1) <{aliases = array<i64: -1, -1, 4>, config = {accumulate = true}
// CHECK:         qkern.dispatch "moe_experts_bwd"(%arg4, %arg4, %arg8, %arg9, %arg10, %arg11, %arg2, %arg3) <{aliases = array<i64: -1, -1, 6, 7>, config = {accumulate = true}
// CHECK-NOT:     "add"
func.func @sums(%ge: tensor<6x4xf32>, %gh: tensor<6x4xf32>, %gu: tensor<3x4x4xf32>, %gd: tensor<3x4x2xf32>,
                %x: tensor<8x4xf32>, %ids: tensor<8xi32>, %w: tensor<6x4xf32>, %inv: tensor<f32>,
                %p: tensor<8x2xf32>, %idx: tensor<8x2xi32>, %wu: tensor<3x4x4xf32>, %wd: tensor<3x4x2xf32>)
    -> (tensor<6x4xf32> {qwen35.alias = 0 : i64}, tensor<6x4xf32> {qwen35.alias = 1 : i64},
        tensor<3x4x4xf32> {qwen35.alias = 2 : i64}, tensor<3x4x2xf32> {qwen35.alias = 3 : i64}) {
  %de = qwen35.embed_bwd %x, %ids <{vocab = 6}> : tensor<8x4xf32>, tensor<8xi32>
  %loss, %dh, %dw = qwen35.lm_loss_grad %x, %w, %ids, %inv : tensor<8x4xf32>, tensor<6x4xf32>, tensor<8xi32>, tensor<f32>
  %dx, %dp, %du, %dd = qwen35.moe_experts_bwd %x, %x, %p, %idx, %wu, %wd
      : tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x2xf32>, tensor<8x2xi32>, tensor<3x4x4xf32>, tensor<3x4x2xf32>
  %0 = qwen35.add %ge, %de : tensor<6x4xf32>, tensor<6x4xf32>
  %1 = qwen35.add %gh, %dw : tensor<6x4xf32>, tensor<6x4xf32>
  %2 = qwen35.add %gu, %du : tensor<3x4x4xf32>, tensor<3x4x4xf32>
  %3 = qwen35.add %gd, %dd : tensor<3x4x2xf32>, tensor<3x4x2xf32>
  return %0, %1, %2, %3 : tensor<6x4xf32>, tensor<6x4xf32>, tensor<3x4x4xf32>, tensor<3x4x2xf32>
}

// -----

// A tied embedding: the two gradients are added to the sum one by one.
// CHECK-LABEL: func @tied(
// CHECK:         %[[H:.*]]:3 = qkern.dispatch "lm_loss_grad"(%arg1, %arg3, %arg2, %arg4, %arg0) <{aliases = array<i64: -1, -1, 4>
// CHECK:         %[[E:.*]] = qkern.dispatch "embed_bwd"(%[[H]]#1, %arg2, %[[H]]#2) <{aliases = array<i64: 2>
// CHECK-NOT:     "add"
// CHECK:         return %[[E]]
func.func @tied(%g: tensor<6x4xf32>, %x: tensor<8x4xf32>, %ids: tensor<8xi32>, %w: tensor<6x4xf32>, %inv: tensor<f32>)
    -> (tensor<6x4xf32> {qwen35.alias = 0 : i64}) {
  %loss, %dh, %dw = qwen35.lm_loss_grad %x, %w, %ids, %inv : tensor<8x4xf32>, tensor<6x4xf32>, tensor<8xi32>, tensor<f32>
  %de = qwen35.embed_bwd %dh, %ids <{vocab = 6}> : tensor<8x4xf32>, tensor<8xi32>
  %d = qwen35.add %de, %dw : tensor<6x4xf32>, tensor<6x4xf32>
  %0 = qwen35.add %g, %d : tensor<6x4xf32>, tensor<6x4xf32>
  return %0 : tensor<6x4xf32>
}

// -----

// The first microbatch: the head sets the gradient, the embedding adds to it.
// Terms that no kernel adds to anything are added in place.
// CHECK-LABEL: func @tied_first(
// CHECK:         %[[H:.*]]:3 = qkern.dispatch "lm_loss_grad"(%arg2, %arg4, %arg3, %arg5) <{aliases = array<i64: -1, -1, -1>
// CHECK:         %[[E:.*]] = qkern.dispatch "embed_bwd"(%[[H]]#1, %arg3, %[[H]]#2) <{aliases = array<i64: 2>
// CHECK:         %[[B:.*]] = qkern.dispatch "scale"(%arg6)
// CHECK:         %[[S:.*]] = qkern.dispatch "add"(%arg1, %[[B]]) <{aliases = array<i64: 0>
// CHECK:         %[[P:.*]] = qkern.dispatch "matmul"(%arg7, %arg2, %[[S]]) <{aliases = array<i64: 2>
// CHECK:         return %[[E]], %[[P]]
func.func @tied_first(%g: tensor<6x4xf32>, %gp: tensor<2x4xf32>, %x: tensor<8x4xf32>, %ids: tensor<8xi32>, %w: tensor<6x4xf32>,
                      %inv: tensor<f32>, %b: tensor<2x4xf32>, %y: tensor<2x8xf32>)
    -> (tensor<6x4xf32> {qwen35.alias = 0 : i64}, tensor<2x4xf32> {qwen35.alias = 1 : i64}) {
  %loss, %dh, %dw = qwen35.lm_loss_grad %x, %w, %ids, %inv : tensor<8x4xf32>, tensor<6x4xf32>, tensor<8xi32>, tensor<f32>
  %de = qwen35.embed_bwd %dh, %ids <{vocab = 6}> : tensor<8x4xf32>, tensor<8xi32>
  %d = qwen35.add %dw, %de : tensor<6x4xf32>, tensor<6x4xf32>
  %s = qwen35.scale %b <{factor = 2.0}> : tensor<2x4xf32>
  %p = qwen35.matmul %y, %x : tensor<2x8xf32>, tensor<8x4xf32>
  %sp = qwen35.add %p, %s : tensor<2x4xf32>, tensor<2x4xf32>
  %t = qwen35.add %gp, %sp : tensor<2x4xf32>, tensor<2x4xf32>
  return %d, %t : tensor<6x4xf32>, tensor<2x4xf32>
}

// -----

// An elementwise result takes over the storage of an operand that ends there,
// never that of an argument.
// CHECK-LABEL: func @reuse(
// CHECK:         %[[A:.*]] = qkern.dispatch "scale"(%arg0) <{aliases = array<i64: -1>
// CHECK:         qkern.dispatch "scale"(%[[A]]) <{aliases = array<i64: 0>
func.func @reuse(%x: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %a = qwen35.scale %x <{factor = 2.0}> : tensor<4x6xf32>
  %b = qwen35.scale %a <{factor = 3.0}> : tensor<4x6xf32>
  return %b : tensor<4x6xf32>
}

// -----

// A group is the kernel named by its parts.
// CHECK-LABEL: func @group(
// CHECK:         qkern.dispatch "add_rms_norm"(%arg0, %arg1, %arg2) <{{.*}}config = {eps = 5.000000e-01 : f64, offset = 1.000000e+00 : f64}
func.func @group(%h: tensor<4x6xf32>, %d: tensor<4x6xf32>, %w: tensor<6xf32>) -> tensor<4x6xf32> {
  %s, %y, %r = qkern.group {
    %0 = qwen35.add %h, %d : tensor<4x6xf32>, tensor<4x6xf32>
    %1, %2 = qwen35.rms_norm %0, %w <{eps = 0.5, offset = 1.0}> : tensor<4x6xf32>, tensor<6xf32>
    qkern.yield %0, %1, %2 : tensor<4x6xf32>, tensor<4x6xf32>, tensor<4xf32>
  } : tensor<4x6xf32>, tensor<4x6xf32>, tensor<4xf32>
  return %y : tensor<4x6xf32>
}

// -----

// Nothing falls back: an op that the target has no kernel for is an error.
func.func @no_kernel(%x: tensor<4x6xf64>) -> tensor<4x6xf64> {
  // expected-error @below {{swiglu: gate is}}
  %y = qwen35.swiglu %x, %x : tensor<4x6xf64>, tensor<4x6xf64>
  return %y : tensor<4x6xf64>
}
