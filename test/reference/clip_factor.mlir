// RUN: qwen35-interpret %s | FileCheck %s

// 6 is clipped to 3 (the factor is 3 / 6.000001); 0 clips nothing; infinity commits nothing.
// CHECK:      result0 = 6
// CHECK-NEXT: result1 = 0.4999999166666{{[0-9]*$}}
// CHECK-NEXT: result2 = 1
// CHECK-NEXT: result3 = 1
// CHECK-NEXT: result4 = inf
// CHECK-NEXT: result5 = 0
func.func @model() -> (tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) {
  %n = arith.constant dense<36.0> : tensor<f64>
  %inf = arith.constant dense<0x7FF0000000000000> : tensor<f64>
  %norm, %factor, %commit = qwen35.clip_factor %n <{max_norm = 3.0}> : tensor<f64>
  %norm1, %factor1, %commit1 = qwen35.clip_factor %n <{max_norm = 0.0}> : tensor<f64>
  %norm2, %factor2, %commit2 = qwen35.clip_factor %inf <{max_norm = 3.0}> : tensor<f64>
  return %norm, %factor, %commit, %factor1, %norm2, %commit2
      : tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>
}
