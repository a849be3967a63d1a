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
