// RUN: qwen35-opt %s --qwen35-to-kernels=target=sm_90a --split-input-file | FileCheck %s

// The halves of a gradient are written where they lie in the whole: no kernel
// copies them, and the one that could work in place does not.
// CHECK-LABEL: func @halves(
// CHECK:         %[[G:.*]]:2 = qkern.dispatch "mul_sigmoid_bwd"(%arg0, %arg1, %arg2)
// CHECK:         %[[S:.*]] = qkern.dispatch "scale"
// CHECK:         %[[N:.*]]:2 = qkern.dispatch "rms_norm_bwd"(%[[S]], %arg1, %arg3, %arg4) <{aliases = array<i64: -1, -1>
// CHECK:         %[[J:.*]] = qkern.join %[[N]]#0, %[[G]]#1 <{offsets = array<i64: 0, 16>, strides = [array<i64: 64, 32, 1>, array<i64: 64, 32, 1>]}> : (tensor<8x2x16xbf16>, tensor<8x2x16xbf16>) -> tensor<8x2x32xbf16>
// CHECK:         qkern.view %[[J]]
// CHECK-NOT:     "concat"
func.func @halves(%dy: tensor<8x2x16xbf16>, %x: tensor<8x2x16xbf16>, %gate: tensor<8x2x16xbf16>, %w: tensor<16xf32>, %rstd: tensor<8x2xf32>)
    -> (tensor<8x64xbf16>, tensor<8x2x16xbf16>, tensor<16xf32>) {
  %dx, %dgate = qwen35.mul_sigmoid_bwd %dy, %x, %gate : tensor<8x2x16xbf16>, tensor<8x2x16xbf16>, tensor<8x2x16xbf16>
  %s = qwen35.scale %dy <{factor = 2.0}> : tensor<8x2x16xbf16>
  %dn, %dw = qwen35.rms_norm_bwd %s, %x, %w, %rstd <{offset = 1.0}> : tensor<8x2x16xbf16>, tensor<8x2x16xbf16>, tensor<16xf32>, tensor<8x2xf32>
  %c = qwen35.concat %dn, %dgate <{axis = 2}> : tensor<8x2x16xbf16>, tensor<8x2x16xbf16>
  %f = qwen35.reshape %c : tensor<8x2x32xbf16> to tensor<8x64xbf16>
  %a = qwen35.scale %f <{factor = 2.0}> : tensor<8x64xbf16>
  return %a, %dx, %dw : tensor<8x64xbf16>, tensor<8x2x16xbf16>, tensor<16xf32>
}

// -----

// A part that something else reads, one that an argument is, and one that would
// start between vectors are copied.
// CHECK-LABEL: func @copied(
// CHECK-COUNT-3: qkern.dispatch "concat"
// CHECK-NOT:     qkern.join
func.func @copied(%dy: tensor<8x16xbf16>, %x: tensor<8x16xbf16>, %gate: tensor<8x16xbf16>, %odd: tensor<8x4xbf16>)
    -> (tensor<8x32xbf16>, tensor<8x32xbf16>, tensor<8x12xbf16>, tensor<8x16xbf16>) {
  %dx, %dgate = qwen35.mul_sigmoid_bwd %dy, %x, %gate : tensor<8x16xbf16>, tensor<8x16xbf16>, tensor<8x16xbf16>
  %0 = qwen35.concat %dx, %dgate <{axis = 1}> : tensor<8x16xbf16>, tensor<8x16xbf16>
  %dx1, %dgate1 = qwen35.mul_sigmoid_bwd %dy, %x, %gate : tensor<8x16xbf16>, tensor<8x16xbf16>, tensor<8x16xbf16>
  %1 = qwen35.concat %dx1, %x <{axis = 1}> : tensor<8x16xbf16>, tensor<8x16xbf16>
  %dx2, %dgate2 = qwen35.mul_sigmoid_bwd %odd, %odd, %odd : tensor<8x4xbf16>, tensor<8x4xbf16>, tensor<8x4xbf16>
  %dx3, %dgate3 = qwen35.mul_sigmoid_bwd %odd, %odd, %odd : tensor<8x4xbf16>, tensor<8x4xbf16>, tensor<8x4xbf16>
  %2 = qwen35.concat %dx2, %dgate2, %dx3 <{axis = 1}> : tensor<8x4xbf16>, tensor<8x4xbf16>, tensor<8x4xbf16>
  return %0, %1, %2, %dx : tensor<8x32xbf16>, tensor<8x32xbf16>, tensor<8x12xbf16>, tensor<8x16xbf16>
}
