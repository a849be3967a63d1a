// RUN: qwen35-opt %s --split-input-file --verify-diagnostics

func.func @clip_factor_c1(%n: tensor<f64>) {
  // expected-error @below {{max_norm must not be negative, got -1.0}}
  %norm, %factor, %commit = qwen35.clip_factor %n <{max_norm = -1.0}> : tensor<f64>
  return
}

// -----

func.func @adamw_c1(%p: tensor<8xf32>, %g: tensor<4xf32>, %s: tensor<f32>) {
  // expected-error @below {{grad is 'tensor<4xf32>', expected shape 'tensor<8xf32>'}}
  %p1, %m1, %v1 = qwen35.adamw %p, %p, %p, %g, %s, %s, %s, %s, %s
      <{beta1 = 0.5, beta2 = 0.5, eps = 0.5, weight_decay = 0.5}>
      : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<4xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>,
        tensor<f32>
  return
}

// -----

func.func @norm_sq_c1(%x: tensor<4xbf16>, %acc: tensor<f64>) {
  // expected-error @below {{x is 'tensor<4xbf16>', expected elements of f32}}
  %n = qwen35.norm_sq %x, %acc : tensor<4xbf16>, tensor<f64>
  return
}

// -----

func.func @adamw_c2(%p: tensor<4xf32>, %m: tensor<4xbf16>, %s: tensor<f32>) {
  // expected-error @below {{m is 'tensor<4xbf16>', expected elements of f32}}
  %0:3 = qwen35.adamw %p, %m, %p, %p, %s, %s, %s, %s, %s <{beta1 = 0.75, beta2 = 0.5, eps = 0.5, weight_decay = 0.125}>
      : tensor<4xf32>, tensor<4xbf16>, tensor<4xf32>, tensor<4xf32>, tensor<f32>, tensor<f32>, tensor<f32>,
        tensor<f32>, tensor<f32>
  return
}

// -----

func.func @adamw_c4(%p: tensor<4xf32>, %s: tensor<f32>) {
  // expected-error @below {{work_type is 'f32', expected 'bf16'}}
  %0:4 = qwen35.adamw %p, %p, %p, %p, %s, %s, %s, %s, %s
      <{beta1 = 0.75, beta2 = 0.5, eps = 0.5, weight_decay = 0.125, work_type = f32}>
      : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<f32>, tensor<f32>, tensor<f32>,
        tensor<f32>, tensor<f32>
  return
}
