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
