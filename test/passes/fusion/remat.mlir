// RUN: qwen35-opt %s --qwen35-remat=policy=selective --canonicalize | FileCheck %s --check-prefix=SELECTIVE
// RUN: qwen35-opt %s --qwen35-remat=policy=full --canonicalize --mlir-print-debuginfo | FileCheck %s --check-prefix=FULL
// RUN: qwen35-opt %s --qwen35-remat=policy=none | FileCheck %s --check-prefix=NONE
// RUN: not qwen35-opt %s --qwen35-remat=policy=some 2>&1 | FileCheck %s --check-prefix=UNKNOWN

// selective: the norm's output and the activation are made again from kept
// products and statistics, once, before their first reader in backward.
// SELECTIVE:      %[[Y:.*]], %[[R:.*]] = qwen35.rms_norm %arg0
// SELECTIVE:      %[[G:.*]] = qwen35.linear %[[Y]], %arg2
// SELECTIVE:      qwen35.swiglu %[[G]], %[[G]]
// SELECTIVE:      %{{.*}}, %[[DH:.*]], %{{.*}} = qwen35.lm_loss_grad
// SELECTIVE-NEXT: qwen35.matmul %[[DH]], %arg3
// SELECTIVE-NEXT: %[[A:.*]] = qwen35.swiglu %[[G]], %[[G]] {{ *}}{qwen35.recompute}
// SELECTIVE-NEXT: qwen35.matmul %[[DH]], %[[A]]
// SELECTIVE-NEXT: qwen35.swiglu_bwd %{{.*}}, %[[G]], %[[G]]
// SELECTIVE:      %[[Y2:.*]], %{{.*}} = qwen35.rms_norm %arg0, %arg1 <{{.*}}> {qwen35.recompute}
// SELECTIVE-NEXT: qwen35.matmul %{{.*}}, %[[Y2]] <{transpose_a = true}>
// SELECTIVE:      qwen35.rms_norm_bwd %{{.*}}, %arg0, %arg1, %[[R]]

// full: nothing inside the layer is kept, not even the product.
// FULL:      qwen35.lm_loss_grad
// FULL:      qwen35.rms_norm %arg0{{.*}}qwen35.recompute
// FULL-NEXT: qwen35.linear{{.*}}qwen35.recompute
// FULL-NEXT: qwen35.swiglu{{.*}}qwen35.recompute
// FULL-NOT:  qwen35.recompute

// NONE-NOT: qwen35.recompute

// UNKNOWN: unknown remat policy "some", expected none, selective or full
func.func @accumulate(%x: tensor<8x4xf32>, %n: tensor<4xf32>, %wg: tensor<4x4xf32>, %wd: tensor<4x4xf32>,
    %head: tensor<16x4xf32>, %labels: tensor<8xi32>, %inv_count: tensor<f32>)
    -> (tensor<f32>, tensor<8x4xf32>, tensor<4xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {
  %y, %r = qwen35.rms_norm %x, %n <{eps = 0.5}> : tensor<8x4xf32>, tensor<4xf32> loc("layers.0.mlp")
  %g = qwen35.linear %y, %wg : tensor<8x4xf32>, tensor<4x4xf32> loc("layers.0.mlp")
  %a = qwen35.swiglu %g, %g : tensor<8x4xf32>, tensor<8x4xf32> loc("layers.0.mlp")
  %h = qwen35.linear %a, %wd : tensor<8x4xf32>, tensor<4x4xf32> loc("layers.0.mlp")
  %loss, %dh, %dhead = qwen35.lm_loss_grad %h, %head, %labels, %inv_count : tensor<8x4xf32>, tensor<16x4xf32>, tensor<8xi32>, tensor<f32> loc("lm_head")
  %da = qwen35.matmul %dh, %wd : tensor<8x4xf32>, tensor<4x4xf32> loc("layers.0.mlp")
  %dwd = qwen35.matmul %dh, %a <{transpose_a = true}> : tensor<8x4xf32>, tensor<8x4xf32> loc("layers.0.mlp")
  %dg, %du = qwen35.swiglu_bwd %da, %g, %g : tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf32> loc("layers.0.mlp")
  %dgu = qwen35.add %dg, %du : tensor<8x4xf32>, tensor<8x4xf32> loc("layers.0.mlp")
  %dwg = qwen35.matmul %dgu, %y <{transpose_a = true}> : tensor<8x4xf32>, tensor<8x4xf32> loc("layers.0.mlp")
  %dy = qwen35.matmul %dgu, %wg : tensor<8x4xf32>, tensor<4x4xf32> loc("layers.0.mlp")
  %dx, %dn = qwen35.rms_norm_bwd %dy, %x, %n, %r : tensor<8x4xf32>, tensor<8x4xf32>, tensor<4xf32>, tensor<8xf32> loc("layers.0.mlp")
  return %loss, %dx, %dn, %dwg, %dwd : tensor<f32>, tensor<8x4xf32>, tensor<4xf32>, tensor<4x4xf32>, tensor<4x4xf32>
}
