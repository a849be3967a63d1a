// Every op of the chapter through text and bytecode; result types are inferred.
// RUN: qwen35-opt %s | qwen35-opt | FileCheck %s
// RUN: qwen35-opt %s --emit-bytecode | qwen35-opt | FileCheck %s

// CHECK-LABEL: func @lm_loss(
// CHECK:         qwen35.lm_loss %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}  : tensor<64x32xf32>, tensor<256x32xf32>, tensor<64xi32>, tensor<f32>
func.func @lm_loss(%h: tensor<64x32xf32>, %w: tensor<256x32xf32>, %labels: tensor<64xi32>, %inv_count: tensor<f32>)
    -> tensor<f32> {
  %loss = qwen35.lm_loss %h, %w, %labels, %inv_count : tensor<64x32xf32>, tensor<256x32xf32>, tensor<64xi32>, tensor<f32>
  return %loss : tensor<f32>
}

// CHECK-LABEL: func @lm_loss_grad(
// CHECK:         qwen35.lm_loss_grad %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}  : tensor<64x32xf32>, tensor<256x32xf32>, tensor<64xi32>, tensor<f32>
func.func @lm_loss_grad(%h: tensor<64x32xf32>, %w: tensor<256x32xf32>, %labels: tensor<64xi32>,
                        %inv_count: tensor<f32>) -> (tensor<f32>, tensor<64x32xf32>, tensor<256x32xf32>) {
  %loss, %dh, %dw = qwen35.lm_loss_grad %h, %w, %labels, %inv_count
      : tensor<64x32xf32>, tensor<256x32xf32>, tensor<64xi32>, tensor<f32>
  return %loss, %dh, %dw : tensor<f32>, tensor<64x32xf32>, tensor<256x32xf32>
}

// CHECK-LABEL: func @embed(
// CHECK:         qwen35.embed %{{.*}}, %{{.*}}  : tensor<64xi32>, tensor<256x32xf32>
func.func @embed(%ids: tensor<64xi32>, %table: tensor<256x32xf32>) -> tensor<64x32xf32> {
  %y = qwen35.embed %ids, %table : tensor<64xi32>, tensor<256x32xf32>
  return %y : tensor<64x32xf32>
}

// CHECK-LABEL: func @embed_bwd(
// CHECK:         qwen35.embed_bwd %{{.*}}, %{{.*}} <{vocab = 256 : i64}> : tensor<64x32xf32>, tensor<64xi32>
func.func @embed_bwd(%dy: tensor<64x32xf32>, %ids: tensor<64xi32>) -> tensor<256x32xf32> {
  %dtable = qwen35.embed_bwd %dy, %ids <{vocab = 256}> : tensor<64x32xf32>, tensor<64xi32>
  return %dtable : tensor<256x32xf32>
}

// CHECK-LABEL: func @split_head(
// CHECK:         qwen35.lm_stats %{{.*}} : tensor<64x32xbf16>, tensor<128x32xbf16>, tensor<64xi32>
// CHECK:         qwen35.rescale_sum %{{.*}} : tensor<64xf32>, tensor<64xf32>, tensor<64xf32>
// CHECK:         qwen35.lm_stats_loss %{{.*}} : tensor<64xi32>, tensor<f32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>
// CHECK:         qwen35.lm_stats_grad
func.func @split_head(%h: tensor<64x32xbf16>, %w: tensor<128x32xbf16>, %labels: tensor<64xi32>, %n: tensor<f32>)
    -> (tensor<f32>, tensor<64x32xbf16>, tensor<128x32xf32>) {
  %highest, %sum, %target = qwen35.lm_stats %h, %w, %labels : tensor<64x32xbf16>, tensor<128x32xbf16>, tensor<64xi32>
  %s = qwen35.rescale_sum %sum, %highest, %highest : tensor<64xf32>, tensor<64xf32>, tensor<64xf32>
  %loss = qwen35.lm_stats_loss %labels, %n, %highest, %s, %target
      : tensor<64xi32>, tensor<f32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>
  %dh, %dw = qwen35.lm_stats_grad %h, %w, %labels, %n, %highest, %s
      : tensor<64x32xbf16>, tensor<128x32xbf16>, tensor<64xi32>, tensor<f32>, tensor<64xf32>, tensor<64xf32>
  return %loss, %dh, %dw : tensor<f32>, tensor<64x32xbf16>, tensor<128x32xf32>
}

// CHECK-LABEL: func @split_tables(
// CHECK:         qwen35.embed %{{.*}} <{shard}>
// CHECK:         qwen35.embed_bwd %{{.*}} <{shard, vocab = 128 : i64}>
func.func @split_tables(%ids: tensor<64xi32>, %t: tensor<128x32xf32>) -> tensor<128x32xf32> {
  %y = qwen35.embed %ids, %t <{shard}> : tensor<64xi32>, tensor<128x32xf32>
  %d = qwen35.embed_bwd %y, %ids <{vocab = 128, shard}> : tensor<64x32xf32>, tensor<64xi32>
  return %d : tensor<128x32xf32>
}
