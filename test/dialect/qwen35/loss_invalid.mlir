// RUN: qwen35-opt %s --split-input-file --verify-diagnostics

func.func @lm_loss_c1(%h: tensor<4x8xf32>, %w: tensor<16x4xf32>, %l: tensor<4xi32>, %n: tensor<f32>) {
  // expected-error @below {{weight is 'tensor<16x4xf32>' but the rows of h have 8 columns}}
  %loss = qwen35.lm_loss %h, %w, %l, %n : tensor<4x8xf32>, tensor<16x4xf32>, tensor<4xi32>, tensor<f32>
  return
}

// -----

func.func @lm_loss_c2(%h: tensor<4x8xf32>, %w: tensor<16x8xf32>, %l: tensor<3xi32>, %n: tensor<f32>) {
  // expected-error @below {{labels is 'tensor<3xi32>', expected shape 'tensor<4xi32>'}}
  %loss = qwen35.lm_loss %h, %w, %l, %n : tensor<4x8xf32>, tensor<16x8xf32>, tensor<3xi32>, tensor<f32>
  return
}

// -----

func.func @lm_loss_grad_labels(%h: tensor<4x8xf32>, %w: tensor<16x8xf32>, %l: tensor<3xi32>, %n: tensor<f32>) {
  // expected-error @below {{labels is 'tensor<3xi32>', expected shape 'tensor<4xi32>'}}
  %loss, %dh, %dw = qwen35.lm_loss_grad %h, %w, %l, %n : tensor<4x8xf32>, tensor<16x8xf32>, tensor<3xi32>, tensor<f32>
  return
}

// -----

func.func @embed_ids(%ids: tensor<4x1xi32>, %table: tensor<16x8xf32>) {
  // expected-error @below {{ids must be a vector, got 'tensor<4x1xi32>'}}
  %y = qwen35.embed %ids, %table : tensor<4x1xi32>, tensor<16x8xf32>
  return
}

// -----

func.func @embed_bwd_ids(%dy: tensor<4x8xf32>, %ids: tensor<3xi32>) {
  // expected-error @below {{ids is 'tensor<3xi32>', expected shape 'tensor<4xi32>'}}
  %d = qwen35.embed_bwd %dy, %ids <{vocab = 16}> : tensor<4x8xf32>, tensor<3xi32>
  return
}

// -----

func.func @embed_bwd_vocab(%dy: tensor<4x8xf32>, %ids: tensor<4xi32>) {
  // expected-error @below {{vocab must be positive, got 0}}
  %d = qwen35.embed_bwd %dy, %ids <{vocab = 0}> : tensor<4x8xf32>, tensor<4xi32>
  return
}

// -----

func.func @lm_loss_c1_type(%h: tensor<4x8xbf16>, %w: tensor<16x8xf32>, %l: tensor<4xi32>, %n: tensor<f32>) {
  // expected-error @below {{weight is 'tensor<16x8xf32>', expected elements of 'bf16' where h is 'tensor<4x8xbf16>'}}
  %loss = qwen35.lm_loss %h, %w, %l, %n : tensor<4x8xbf16>, tensor<16x8xf32>, tensor<4xi32>, tensor<f32>
  return
}

// -----

func.func @lm_loss_c3(%h: tensor<4x8xbf16>, %w: tensor<16x8xbf16>, %l: tensor<4xi32>, %n: tensor<bf16>) {
  // expected-error @below {{inv_count is 'tensor<bf16>', expected elements of 'f32' where h is 'tensor<4x8xbf16>'}}
  %loss = qwen35.lm_loss %h, %w, %l, %n : tensor<4x8xbf16>, tensor<16x8xbf16>, tensor<4xi32>, tensor<bf16>
  return
}

// -----

func.func @lm_stats_c1(%h: tensor<4x8xf32>, %w: tensor<16x4xf32>, %l: tensor<4xi32>) {
  // expected-error @below {{weight is 'tensor<16x4xf32>' but the rows of h have 8 columns}}
  %a, %b, %c = qwen35.lm_stats %h, %w, %l : tensor<4x8xf32>, tensor<16x4xf32>, tensor<4xi32>
  return
}

// -----

func.func @lm_stats_c2(%h: tensor<4x8xf32>, %w: tensor<16x8xf32>, %l: tensor<3xi32>) {
  // expected-error @below {{labels is 'tensor<3xi32>', expected shape 'tensor<4xi32>'}}
  %a, %b, %c = qwen35.lm_stats %h, %w, %l : tensor<4x8xf32>, tensor<16x8xf32>, tensor<3xi32>
  return
}

// -----

func.func @rescale_sum_c1(%s: tensor<4xf32>, %f: tensor<3xf32>) {
  // expected-error @below {{from is 'tensor<3xf32>' but sum is 'tensor<4xf32>'}}
  %r = qwen35.rescale_sum %s, %f, %s : tensor<4xf32>, tensor<3xf32>, tensor<4xf32>
  return
}

// -----

func.func @lm_stats_loss_c1(%l: tensor<3xi32>, %n: tensor<f32>, %s: tensor<4xf32>) {
  // expected-error @below {{labels is 'tensor<3xi32>', expected shape 'tensor<4xi32>'}}
  %r = qwen35.lm_stats_loss %l, %n, %s, %s, %s : tensor<3xi32>, tensor<f32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
  return
}

// -----

func.func @lm_stats_grad_c3(%h: tensor<4x8xbf16>, %w: tensor<16x8xbf16>, %l: tensor<4xi32>, %n: tensor<f32>, %s: tensor<4xbf16>) {
  // expected-error @below {{highest is 'tensor<4xbf16>', expected elements of 'f32' where h is 'tensor<4x8xbf16>'}}
  %a, %b = qwen35.lm_stats_grad %h, %w, %l, %n, %s, %s
      : tensor<4x8xbf16>, tensor<16x8xbf16>, tensor<4xi32>, tensor<f32>, tensor<4xbf16>, tensor<4xbf16>
  return
}
