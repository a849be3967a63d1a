// Every op of the chapter through text and bytecode; result types are inferred.
// RUN: qwen35-opt %s | qwen35-opt | FileCheck %s
// RUN: qwen35-opt %s --emit-bytecode | qwen35-opt | FileCheck %s

// CHECK-LABEL: func @norm_sq(
// CHECK:         qwen35.norm_sq %{{.*}}, %{{.*}}  : tensor<64x32xf32>, tensor<f64>
func.func @norm_sq(%g: tensor<64x32xf32>, %acc: tensor<f64>) -> tensor<f64> {
  %n = qwen35.norm_sq %g, %acc : tensor<64x32xf32>, tensor<f64>
  return %n : tensor<f64>
}

// CHECK-LABEL: func @clip_factor(
// CHECK:         qwen35.clip_factor %{{.*}} <{max_norm = 1.000000e+00 : f64}> : tensor<f64>
func.func @clip_factor(%n: tensor<f64>) -> (tensor<f32>, tensor<f32>, tensor<f32>) {
  %norm, %factor, %commit = qwen35.clip_factor %n <{max_norm = 1.0}> : tensor<f64>
  return %norm, %factor, %commit : tensor<f32>, tensor<f32>, tensor<f32>
}

// CHECK-LABEL: func @adamw(
// CHECK:         qwen35.adamw %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} <{beta1 = 7.500000e-01 : f64, beta2 = 5.000000e-01 : f64, eps = 5.000000e-01 : f64, weight_decay = 1.250000e-01 : f64}> : tensor<64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>
func.func @adamw(%p: tensor<64xf32>, %m: tensor<64xf32>, %v: tensor<64xf32>, %g: tensor<64xf32>, %lr: tensor<f32>,
                 %factor: tensor<f32>, %bc1: tensor<f32>, %bc2: tensor<f32>, %commit: tensor<f32>)
    -> (tensor<64xf32>, tensor<64xf32>, tensor<64xf32>) {
  %p1, %m1, %v1 = qwen35.adamw %p, %m, %v, %g, %lr, %factor, %bc1, %bc2, %commit
      <{beta1 = 0.75, beta2 = 0.5, eps = 0.5, weight_decay = 0.125}>
      : tensor<64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<f32>, tensor<f32>, tensor<f32>,
        tensor<f32>, tensor<f32>
  return %p1, %m1, %v1 : tensor<64xf32>, tensor<64xf32>, tensor<64xf32>
}

// With a type for it, the copy that products read is a fourth result.
// CHECK-LABEL: func @adamw_work(
// CHECK:         %{{.*}}, %{{.*}}, %{{.*}}, %[[W:.*]] = qwen35.adamw {{.*}}work_type = bf16}>
// CHECK:         return %[[W]] : tensor<64xbf16>
func.func @adamw_work(%p: tensor<64xf32>, %s: tensor<f32>) -> tensor<64xbf16> {
  %0:4 = qwen35.adamw %p, %p, %p, %p, %s, %s, %s, %s, %s
      <{beta1 = 0.75, beta2 = 0.5, eps = 0.5, weight_decay = 0.125, work_type = bf16}>
      : tensor<64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<f32>, tensor<f32>, tensor<f32>,
        tensor<f32>, tensor<f32>
  return %0#3 : tensor<64xbf16>
}
