// Every op of the chapter through text and bytecode; result types are inferred.
// RUN: qwen35-opt %s | qwen35-opt | FileCheck %s
// RUN: qwen35-opt %s --emit-bytecode | qwen35-opt | FileCheck %s

// CHECK-LABEL: func @rope_table(
// CHECK:         qwen35.rope_table %{{.*}} <{rotary_dim = 8 : i64, theta = 1.000000e+07 : f64}> : !qwen35.seq<64, 3>
func.func @rope_table(%seq: !qwen35.seq<64, 3>) -> tensor<64x4x2xf32> {
  %table = qwen35.rope_table %seq <{theta = 1.0e7, rotary_dim = 8}> : !qwen35.seq<64, 3>
  return %table : tensor<64x4x2xf32>
}

// CHECK-LABEL: func @rope(
// CHECK:         qwen35.rope %{{.*}}, %{{.*}}  : tensor<64x4x32xf32>, tensor<64x4x2xf32>
func.func @rope(%x: tensor<64x4x32xf32>, %table: tensor<64x4x2xf32>) -> tensor<64x4x32xf32> {
  %y = qwen35.rope %x, %table : tensor<64x4x32xf32>, tensor<64x4x2xf32>
  return %y : tensor<64x4x32xf32>
}

// CHECK-LABEL: func @attention(
// CHECK:         qwen35.attention %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} <{scale = 1.250000e-01 : f64}> : tensor<64x4x64xf32>, tensor<64x2x64xf32>, tensor<64x2x64xf32>, !qwen35.seq<64, 3>
func.func @attention(%q: tensor<64x4x64xf32>, %k: tensor<64x2x64xf32>, %v: tensor<64x2x64xf32>,
                     %seq: !qwen35.seq<64, 3>) -> (tensor<64x4x64xf32>, tensor<64x4xf32>) {
  %o, %lse = qwen35.attention %q, %k, %v, %seq <{scale = 0.125}>
      : tensor<64x4x64xf32>, tensor<64x2x64xf32>, tensor<64x2x64xf32>, !qwen35.seq<64, 3>
  return %o, %lse : tensor<64x4x64xf32>, tensor<64x4xf32>
}

// CHECK-LABEL: func @attention_bwd(
// CHECK:         qwen35.attention_bwd %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} <{scale = 1.250000e-01 : f64}> : tensor<64x4x64xf32>, tensor<64x4x64xf32>, tensor<64x2x64xf32>, tensor<64x2x64xf32>, tensor<64x4x64xf32>, tensor<64x4xf32>, !qwen35.seq<64, 3>
func.func @attention_bwd(%do: tensor<64x4x64xf32>, %q: tensor<64x4x64xf32>, %k: tensor<64x2x64xf32>,
                         %v: tensor<64x2x64xf32>, %o: tensor<64x4x64xf32>, %lse: tensor<64x4xf32>,
                         %seq: !qwen35.seq<64, 3>)
    -> (tensor<64x4x64xf32>, tensor<64x2x64xf32>, tensor<64x2x64xf32>) {
  %dq, %dk, %dv = qwen35.attention_bwd %do, %q, %k, %v, %o, %lse, %seq <{scale = 0.125}>
      : tensor<64x4x64xf32>, tensor<64x4x64xf32>, tensor<64x2x64xf32>, tensor<64x2x64xf32>, tensor<64x4x64xf32>,
        tensor<64x4xf32>, !qwen35.seq<64, 3>
  return %dq, %dk, %dv : tensor<64x4x64xf32>, tensor<64x2x64xf32>, tensor<64x2x64xf32>
}

// CHECK-LABEL: func @mul_sigmoid(
// CHECK:         qwen35.mul_sigmoid %{{.*}}, %{{.*}}  : tensor<64x4x32xf32>, tensor<64x4x32xf32>
func.func @mul_sigmoid(%x: tensor<64x4x32xf32>, %gate: tensor<64x4x32xf32>) -> tensor<64x4x32xf32> {
  %y = qwen35.mul_sigmoid %x, %gate : tensor<64x4x32xf32>, tensor<64x4x32xf32>
  return %y : tensor<64x4x32xf32>
}

// CHECK-LABEL: func @mul_sigmoid_bwd(
// CHECK:         qwen35.mul_sigmoid_bwd %{{.*}}, %{{.*}}, %{{.*}}  : tensor<64x32xf32>, tensor<64x32xf32>, tensor<64x1xf32>
func.func @mul_sigmoid_bwd(%dy: tensor<64x32xf32>, %x: tensor<64x32xf32>, %gate: tensor<64x1xf32>)
    -> (tensor<64x32xf32>, tensor<64x1xf32>) {
  %dx, %dgate = qwen35.mul_sigmoid_bwd %dy, %x, %gate : tensor<64x32xf32>, tensor<64x32xf32>, tensor<64x1xf32>
  return %dx, %dgate : tensor<64x32xf32>, tensor<64x1xf32>
}
