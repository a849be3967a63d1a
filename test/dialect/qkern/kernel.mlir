// Every op of the chapter through text and bytecode; result types are inferred.
// RUN: qwen35-opt %s | qwen35-opt | FileCheck %s
// RUN: qwen35-opt %s --emit-bytecode | qwen35-opt | FileCheck %s

// CHECK-LABEL: func @view(
// CHECK:         qkern.view %{{.*}} <{offset = 0 : i64, strides = array<i64: 128, 16, 1>}> : tensor<64x128xf32> to tensor<64x2x16xf32>
func.func @view(%x: tensor<64x128xf32>) -> tensor<64x2x16xf32> {
  %q = qkern.view %x <{offset = 0, strides = array<i64: 128, 16, 1>}> : tensor<64x128xf32> to tensor<64x2x16xf32>
  return %q : tensor<64x2x16xf32>
}

// CHECK-LABEL: func @dispatch(
// CHECK:         qkern.dispatch "rms_norm"(%{{.*}}, %{{.*}}) <{aliases = array<i64: -1, -1>, config = {eps = 5.000000e-01 : f64, offset = 1.000000e+00 : f64}, grids = array<i64: 4>, workspace = 0 : i64}> : (tensor<64x128xf32>, tensor<128xf32>) -> (tensor<64x128xf32>, tensor<64xf32>)
func.func @dispatch(%x: tensor<64x128xf32>, %w: tensor<128xf32>) -> (tensor<64x128xf32>, tensor<64xf32>) {
  %y, %r = qkern.dispatch "rms_norm"(%x, %w)
      <{aliases = array<i64: -1, -1>, config = {eps = 0.5, offset = 1.0}, grids = array<i64: 4>, workspace = 0 : i64}>
      : (tensor<64x128xf32>, tensor<128xf32>) -> (tensor<64x128xf32>, tensor<64xf32>)
  return %y, %r : tensor<64x128xf32>, tensor<64xf32>
}

// CHECK-LABEL: func @join(
// CHECK:         qkern.join %[[A:.*]]#0, %[[A]]#1 <{offsets = array<i64: 0, 4>, strides = [array<i64: 8, 1>, array<i64: 8, 1>]}> : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x8xf32>
func.func @join(%x: tensor<2x4xf32>) -> tensor<2x8xf32> {
  %a, %b = qkern.dispatch "k"(%x) <{aliases = array<i64: -1, -1>, config = {}, grids = array<i64: 1>, workspace = 0 : i64}>
      : (tensor<2x4xf32>) -> (tensor<2x4xf32>, tensor<2x4xf32>)
  %j = qkern.join %a, %b <{offsets = array<i64: 0, 4>, strides = [array<i64: 8, 1>, array<i64: 8, 1>]}>
      : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x8xf32>
  return %j : tensor<2x8xf32>
}

// CHECK-LABEL: func @group(
// CHECK-NEXT:    %[[G:.*]]:2 = qkern.group {
// CHECK-NEXT:      %[[S:.*]] = qwen35.add
// CHECK-NEXT:      %[[Y:.*]], %{{.*}} = qwen35.rms_norm %[[S]],
// CHECK-NEXT:      qkern.yield %[[S]], %[[Y]] : tensor<64x32xf32>, tensor<64x32xf32>
// CHECK-NEXT:    } : tensor<64x32xf32>, tensor<64x32xf32>
// CHECK-NEXT:    return %[[G]]#0, %[[G]]#1
func.func @group(%h: tensor<64x32xf32>, %d: tensor<64x32xf32>, %w: tensor<32xf32>)
    -> (tensor<64x32xf32>, tensor<64x32xf32>) {
  %s, %y = qkern.group {
    %0 = qwen35.add %h, %d : tensor<64x32xf32>, tensor<64x32xf32>
    %1, %r = qwen35.rms_norm %0, %w <{eps = 0.5, offset = 1.0}> : tensor<64x32xf32>, tensor<32xf32>
    qkern.yield %0, %1 : tensor<64x32xf32>, tensor<64x32xf32>
  } : tensor<64x32xf32>, tensor<64x32xf32>
  return %s, %y : tensor<64x32xf32>, tensor<64x32xf32>
}

// CHECK-LABEL: func @collective(
// CHECK:         qkern.collective "all_reduce"(%{{.*}}) over ["dps", "tp"] <{accumulate = f32, aliases = array<i64: 0>, counts = array<i64: 8>, ranks = 4 : i64, receiveOuter = array<i64: 1>, reduction = "max", sendOuter = array<i64: 1>, wire = bf16, workspace = 0 : i64}> : (tensor<2x4xf32>) -> tensor<2x4xf32>
func.func @collective(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %y = qkern.collective "all_reduce"(%x) over ["dps", "tp"]
      <{accumulate = f32, aliases = array<i64: 0>, counts = array<i64: 8>, ranks = 4, receiveOuter = array<i64: 1>, reduction = "max",
        sendOuter = array<i64: 1>, wire = bf16, workspace = 0}> : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %y : tensor<2x4xf32>
}
