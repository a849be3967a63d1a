// RUN: qwen35-opt %s --qwen35-remat=policy=selective --canonicalize | FileCheck %s

// The convolution of a rank's stripes is made again like that of whole documents, from tails that stay.
// CHECK:      qwen35.cp_causal_conv %arg0, %arg1, %arg2, %arg3, %arg4
// CHECK:      qwen35.lm_loss_grad
// CHECK:      %[[Y:.*]] = qwen35.cp_causal_conv %arg0, %arg1, %arg2, %arg3, %arg4 {{ *}}{qwen35.recompute}
// CHECK-NEXT: qwen35.mul_sigmoid_bwd %{{.*}}, %[[Y]], %[[Y]]
func.func @accumulate(%x: tensor<8x4xf32>, %t: tensor<4x1x4xf32>, %w: tensor<4x1x2xf32>, %seq: !qwen35.seq<8, 2>,
    %stripes: tensor<20xi32>, %head: tensor<16x4xf32>, %labels: tensor<8xi32>, %inv_count: tensor<f32>)
    -> (tensor<f32>, tensor<8x4xf32>, tensor<8x4xf32>) {
  %y = qwen35.cp_causal_conv %x, %t, %w, %seq, %stripes
      : tensor<8x4xf32>, tensor<4x1x4xf32>, tensor<4x1x2xf32>, !qwen35.seq<8, 2>, tensor<20xi32> loc("layers.0.linear_attn")
  %h = qwen35.mul_sigmoid %y, %y : tensor<8x4xf32>, tensor<8x4xf32> loc("layers.0.linear_attn")
  %loss, %dh, %dhead = qwen35.lm_loss_grad %h, %head, %labels, %inv_count
      : tensor<8x4xf32>, tensor<16x4xf32>, tensor<8xi32>, tensor<f32> loc("lm_head")
  %dy, %dg = qwen35.mul_sigmoid_bwd %dh, %y, %y
      : tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf32> loc("layers.0.linear_attn")
  return %loss, %dy, %dg : tensor<f32>, tensor<8x4xf32>, tensor<8x4xf32>
}
