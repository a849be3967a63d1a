// Every op of the chapter through text and bytecode; result types are inferred.
// RUN: qwen35-opt %s | qwen35-opt | FileCheck %s
// RUN: qwen35-opt %s --emit-bytecode | qwen35-opt | FileCheck %s

// CHECK-LABEL: func @param(
// CHECK:         qwen35.param "model.norm.weight" <{decay = false, file_dtype = "bf16", init = "zeros"}> : tensor<64xf32>
func.func @param() -> tensor<64xf32> {
  %w = qwen35.param "model.norm.weight" <{init = "zeros", decay = false, file_dtype = "bf16"}> : tensor<64xf32>
  return %w : tensor<64xf32>
}

// CHECK-LABEL: func @linear(
// CHECK:         qwen35.linear %{{.*}}, %{{.*}}  : tensor<64x32xf32>, tensor<96x32xf32>
func.func @linear(%x: tensor<64x32xf32>, %w: tensor<96x32xf32>) -> tensor<64x96xf32> {
  %y = qwen35.linear %x, %w : tensor<64x32xf32>, tensor<96x32xf32>
  return %y : tensor<64x96xf32>
}

// CHECK-LABEL: func @matmul(
// CHECK:         qwen35.matmul %{{.*}}, %{{.*}} <{transpose_a = true}> : tensor<64x96xf32>, tensor<64x32xf32>
func.func @matmul(%dy: tensor<64x96xf32>, %x: tensor<64x32xf32>) -> tensor<96x32xf32> {
  %dw = qwen35.matmul %dy, %x <{transpose_a = true}> : tensor<64x96xf32>, tensor<64x32xf32>
  return %dw : tensor<96x32xf32>
}

// CHECK-LABEL: func @swiglu(
// CHECK:         qwen35.swiglu %{{.*}}, %{{.*}}  : tensor<64x96xf32>, tensor<64x96xf32>
func.func @swiglu(%gate: tensor<64x96xf32>, %up: tensor<64x96xf32>) -> tensor<64x96xf32> {
  %y = qwen35.swiglu %gate, %up : tensor<64x96xf32>, tensor<64x96xf32>
  return %y : tensor<64x96xf32>
}

// CHECK-LABEL: func @swiglu_bwd(
// CHECK:         qwen35.swiglu_bwd %{{.*}}, %{{.*}}, %{{.*}}  : tensor<64x96xf32>, tensor<64x96xf32>, tensor<64x96xf32>
func.func @swiglu_bwd(%dy: tensor<64x96xf32>, %gate: tensor<64x96xf32>, %up: tensor<64x96xf32>)
    -> (tensor<64x96xf32>, tensor<64x96xf32>) {
  %dgate, %dup = qwen35.swiglu_bwd %dy, %gate, %up : tensor<64x96xf32>, tensor<64x96xf32>, tensor<64x96xf32>
  return %dgate, %dup : tensor<64x96xf32>, tensor<64x96xf32>
}

// CHECK-LABEL: func @add(
// CHECK:         qwen35.add %{{.*}}, %{{.*}}  : tensor<64x32xf32>, tensor<64x32xf32>
func.func @add(%x: tensor<64x32xf32>, %d: tensor<64x32xf32>) -> tensor<64x32xf32> {
  %h = qwen35.add %x, %d : tensor<64x32xf32>, tensor<64x32xf32>
  return %h : tensor<64x32xf32>
}

// CHECK-LABEL: func @scale(
// CHECK:         qwen35.scale %{{.*}} <{factor = 5.000000e-01 : f64}> : tensor<f32>
func.func @scale(%x: tensor<f32>) -> tensor<f32> {
  %y = qwen35.scale %x <{factor = 0.5}> : tensor<f32>
  return %y : tensor<f32>
}

// CHECK-LABEL: func @mul_scalar(
// CHECK:         qwen35.mul_scalar %{{.*}}, %{{.*}}  : tensor<64x32xf32>, tensor<f32>
func.func @mul_scalar(%x: tensor<64x32xf32>, %s: tensor<f32>) -> tensor<64x32xf32> {
  %y = qwen35.mul_scalar %x, %s : tensor<64x32xf32>, tensor<f32>
  return %y : tensor<64x32xf32>
}

// CHECK-LABEL: func @reshape(
// CHECK:         qwen35.reshape %{{.*}} : tensor<64x64xf32> to tensor<64x4x16xf32>
func.func @reshape(%x: tensor<64x64xf32>) -> tensor<64x4x16xf32> {
  %y = qwen35.reshape %x : tensor<64x64xf32> to tensor<64x4x16xf32>
  return %y : tensor<64x4x16xf32>
}

// CHECK-LABEL: func @cast(
// CHECK:         qwen35.cast %{{.*}} : tensor<96x32xf32> to tensor<96x32xbf16>
func.func @cast(%x: tensor<96x32xf32>) -> tensor<96x32xbf16> {
  %y = qwen35.cast %x : tensor<96x32xf32> to tensor<96x32xbf16>
  return %y : tensor<96x32xbf16>
}

// A product of bf16 operands may leave its sum in f32.
// CHECK-LABEL: func @wide_products(
// CHECK:         qwen35.linear %{{.*}}, %{{.*}} <{out_type = f32}> : tensor<64x32xbf16>, tensor<8x32xbf16>
// CHECK:         qwen35.matmul %{{.*}}, %{{.*}} <{out_type = f32, transpose_a = true}> : tensor<64x96xbf16>, tensor<64x32xbf16>
// CHECK:         return %{{.*}}, %{{.*}} : tensor<64x8xf32>, tensor<96x32xf32>
func.func @wide_products(%x: tensor<64x32xbf16>, %w: tensor<8x32xbf16>, %dy: tensor<64x96xbf16>)
    -> (tensor<64x8xf32>, tensor<96x32xf32>) {
  %y = qwen35.linear %x, %w <{out_type = f32}> : tensor<64x32xbf16>, tensor<8x32xbf16>
  %dw = qwen35.matmul %dy, %x <{out_type = f32, transpose_a = true}> : tensor<64x96xbf16>, tensor<64x32xbf16>
  return %y, %dw : tensor<64x8xf32>, tensor<96x32xf32>
}

// CHECK-LABEL: func @slice(
// CHECK:         qwen35.slice %{{.*}} <{axis = 2 : i64, size = 16 : i64, start = 0 : i64}> : tensor<64x4x32xf32>
func.func @slice(%x: tensor<64x4x32xf32>) -> tensor<64x4x16xf32> {
  %q = qwen35.slice %x <{axis = 2, start = 0, size = 16}> : tensor<64x4x32xf32>
  return %q : tensor<64x4x16xf32>
}

// CHECK-LABEL: func @concat(
// CHECK:         qwen35.concat %{{.*}}, %{{.*}} <{axis = 1 : i64}> : tensor<64x32xf32>, tensor<64x32xf32>
func.func @concat(%a: tensor<64x32xf32>, %b: tensor<64x32xf32>) -> tensor<64x64xf32> {
  %y = qwen35.concat %a, %b <{axis = 1}> : tensor<64x32xf32>, tensor<64x32xf32>
  return %y : tensor<64x64xf32>
}

// CHECK-LABEL: func @zeros(
// CHECK:         qwen35.zeros : tensor<f64>
func.func @zeros() -> tensor<f64> {
  %z = qwen35.zeros : tensor<f64>
  return %z : tensor<f64>
}

// CHECK-LABEL: func @ones(
// CHECK:         qwen35.ones : tensor<f32>
func.func @ones() -> tensor<f32> {
  %one = qwen35.ones : tensor<f32>
  return %one : tensor<f32>
}

// What may be left out is false.
// CHECK-LABEL: func @matmul_defaults(
// CHECK:         qwen35.matmul %{{.*}}, %{{.*}} : tensor<4x8xf32>, tensor<8x2xf32>
func.func @matmul_defaults(%a: tensor<4x8xf32>, %b: tensor<8x2xf32>) -> tensor<4x2xf32> {
  %c = qwen35.matmul %a, %b : tensor<4x8xf32>, tensor<8x2xf32>
  return %c : tensor<4x2xf32>
}
