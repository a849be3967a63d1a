// RUN: qwen35-opt %s --qwen35-mixed-precision=compute=bf16 --split-input-file --verify-diagnostics | FileCheck %s
// RUN: qwen35-opt %s --qwen35-mixed-precision=compute=fp32 --split-input-file | FileCheck %s --check-prefix=FP32
// RUN: qwen35-opt %s --qwen35-mixed-precision --qwen35-autodiff --split-input-file | FileCheck %s --check-prefix=GRADIENT
// RUN: not qwen35-opt %s --qwen35-mixed-precision=compute=fp8 --split-input-file 2>&1 | FileCheck %s --check-prefix=BAD
// BAD: cannot compute in "fp8", expected fp32 or bf16

// Matrices are cast once, whatever number of products reads them; norm weights
// stay; a router's logits leave their product in f32, and with them all that
// follows from probabilities. The loss is f32 as ever.
// CHECK-LABEL: func.func @model(
// CHECK-SAME:    -> (tensor<f32> {qwen35.name = "loss"})
// CHECK:         %[[E:.*]] = qwen35.param "e"
// CHECK:         %[[E16:.*]] = qwen35.cast %[[E]] : tensor<32x8xf32> to tensor<32x8xbf16>
// CHECK-NOT:     qwen35.cast %[[E]]
// CHECK:         %[[N:.*]] = qwen35.param "n"
// CHECK-NOT:     qwen35.cast %[[N]]
// CHECK:         %[[R:.*]] = qwen35.param "r"
// CHECK:         %[[R16:.*]] = qwen35.cast %[[R]] : tensor<4x8xf32> to tensor<4x8xbf16>
// CHECK:         qwen35.embed %{{.*}}, %[[E16]] : tensor<16xi32>, tensor<32x8xbf16>
// CHECK:         %[[Y:.*]], %{{.*}} = qwen35.rms_norm %{{.*}}, %[[N]] {{.*}} : tensor<16x8xbf16>, tensor<8xf32>
// CHECK:         %[[LOGITS:.*]] = qwen35.linear %[[Y]], %[[R16]] <{out_type = f32}> : tensor<16x8xbf16>, tensor<4x8xbf16>
// CHECK:         qwen35.router %[[LOGITS]] {{.*}} : tensor<16x4xf32>
// CHECK:         qwen35.moe_experts {{.*}} : tensor<16x8xbf16>, tensor<16x2xf32>, tensor<16x2xi32>, tensor<4x12x8xbf16>, tensor<4x8x6xbf16>
// CHECK:         qwen35.reshape %{{.*}} : tensor<16x8xbf16> to tensor<16x1x8xbf16>
// CHECK:         qwen35.lm_loss %{{.*}}, %[[E16]], {{.*}} : tensor<16x8xbf16>, tensor<32x8xbf16>, tensor<16xi32>, tensor<f32>

// FP32-NOT:      bf16
// FP32-NOT:      qwen35.cast

// No gradient of a parameter is rounded to bf16, and none is cast: products and
// sums leave it in f32. The router's cotangent is f32 until a product reads it.
// GRADIENT-LABEL: func.func @gradients(
// GRADIENT-SAME:    tensor<32x8xf32> {qwen35.gradient = "e"}, tensor<8xf32> {qwen35.gradient = "n"}, tensor<4x8xf32> {qwen35.gradient = "r"}, tensor<4x12x8xf32> {qwen35.gradient = "gu"}, tensor<4x8x6xf32> {qwen35.gradient = "dn"})
// GRADIENT:         %[[LOSS:.*]], %[[DH:.*]], %[[DHEAD:.*]] = qwen35.lm_loss_grad
// GRADIENT:         %{{.*}}, %{{.*}}, %[[DGU:.*]], %[[DDN:.*]] = qwen35.moe_experts_bwd
// GRADIENT:         %[[DLOGITS:.*]] = qwen35.router_bwd
// GRADIENT:         %[[D16:.*]] = qwen35.cast %[[DLOGITS]] : tensor<16x4xf32> to tensor<16x4xbf16>
// GRADIENT:         %[[DX:.*]] = qwen35.matmul %[[D16]], %{{.*}} : tensor<16x4xbf16>, tensor<4x8xbf16>
// GRADIENT:         %[[DR:.*]] = qwen35.matmul %[[D16]], %{{.*}} <{out_type = f32, transpose_a = true}>
// GRADIENT:         qwen35.add %{{.*}}, %{{.*}} : tensor<16x8xbf16>, tensor<16x8xbf16>
// GRADIENT:         %{{.*}}, %[[DN:.*]] = qwen35.rms_norm_bwd
// GRADIENT:         %[[DROWS:.*]] = qwen35.embed_bwd
// GRADIENT:         %[[DE:.*]] = qwen35.add %[[DHEAD]], %[[DROWS]] : tensor<32x8xf32>, tensor<32x8xf32>
// GRADIENT-NOT:     qwen35.cast
// GRADIENT:         return %[[LOSS]], %[[DE]], %[[DN]], %[[DR]], %[[DGU]], %[[DDN]]
func.func @model(%ids: tensor<16xi32>, %labels: tensor<16xi32>, %seq: !qwen35.seq<16, 3>, %inv_count: tensor<f32>,
    %aux_scale: tensor<f32>) -> (tensor<f32> {qwen35.name = "loss"}) {
  %e = qwen35.param "e" <{init = "zeros", decay = true, file_dtype = "f32"}> : tensor<32x8xf32>
  %n = qwen35.param "n" <{init = "zeros", decay = false, file_dtype = "f32"}> : tensor<8xf32>
  %r = qwen35.param "r" <{init = "zeros", decay = true, file_dtype = "f32"}> : tensor<4x8xf32>
  %gu = qwen35.param "gu" <{init = "zeros", decay = true, file_dtype = "f32"}> : tensor<4x12x8xf32>
  %dn = qwen35.param "dn" <{init = "zeros", decay = true, file_dtype = "f32"}> : tensor<4x8x6xf32>
  %x = qwen35.embed %ids, %e : tensor<16xi32>, tensor<32x8xf32>
  %y, %rstd = qwen35.rms_norm %x, %n <{eps = 0.5, offset = 1.0}> : tensor<16x8xf32>, tensor<8xf32>
  %logits = qwen35.linear %y, %r : tensor<16x8xf32>, tensor<4x8xf32>
  %w, %idx, %probs = qwen35.router %logits <{top_k = 2}> : tensor<16x4xf32>
  %m = qwen35.moe_experts %y, %w, %idx, %gu, %dn : tensor<16x8xf32>, tensor<16x2xf32>, tensor<16x2xi32>, tensor<4x12x8xf32>, tensor<4x8x6xf32>
  %m3 = qwen35.reshape %m : tensor<16x8xf32> to tensor<16x1x8xf32>
  %s = qwen35.mul_scalar %m3, %aux_scale : tensor<16x1x8xf32>, tensor<f32>
  %h = qwen35.reshape %s : tensor<16x1x8xf32> to tensor<16x8xf32>
  %loss = qwen35.lm_loss %h, %e, %labels, %inv_count : tensor<16x8xf32>, tensor<32x8xf32>, tensor<16xi32>, tensor<f32>
  return %loss : tensor<f32>
}

// -----

// Logits that something else reads too, and a result that would be bf16, are
// cast where f32 is needed; an activation used as a weight gets its cotangent in
// its own type.
// CHECK-LABEL: func.func @model(
// CHECK:         %[[L:.*]] = qwen35.linear %{{.*}}, %{{.*}} : tensor<2x8xbf16>, tensor<4x8xbf16>
// CHECK:         %[[WIDE:.*]] = qwen35.cast %[[L]] : tensor<2x4xbf16> to tensor<2x4xf32>
// CHECK:         qwen35.router %[[WIDE]]
// CHECK:         %[[GRAM:.*]] = qwen35.linear %[[L]], %[[L]] : tensor<2x4xbf16>, tensor<2x4xbf16>
// CHECK:         %[[S:.*]] = qwen35.reshape %{{.*}} : tensor<1x1xbf16> to tensor<bf16>
// CHECK:         %[[LOSS:.*]] = qwen35.cast %[[S]] : tensor<bf16> to tensor<f32>
// CHECK:         return %[[LOSS]]
// FP32-LABEL:    func.func @model(

// GRADIENT-LABEL: func.func @gradients(
// GRADIENT:         %[[DA:.*]] = qwen35.matmul %[[DG:.*]], %[[L:.*]] : tensor<2x2xbf16>, tensor<2x4xbf16>
// GRADIENT:         %[[DB:.*]] = qwen35.matmul %[[DG]], %[[L]] <{out_type = f32, transpose_a = true}>
// GRADIENT:         %[[DB16:.*]] = qwen35.cast %[[DB]] : tensor<2x4xf32> to tensor<2x4xbf16>
// GRADIENT:         qwen35.add %[[DA]], %[[DB16]] : tensor<2x4xbf16>, tensor<2x4xbf16>
func.func @model(%ids: tensor<2xi32>) -> (tensor<f32> {qwen35.name = "loss"}) {
  %e = qwen35.param "e" <{init = "zeros", decay = true, file_dtype = "f32"}> : tensor<32x8xf32>
  %r = qwen35.param "r" <{init = "zeros", decay = true, file_dtype = "f32"}> : tensor<4x8xf32>
  %x = qwen35.embed %ids, %e : tensor<2xi32>, tensor<32x8xf32>
  %l = qwen35.linear %x, %r : tensor<2x8xf32>, tensor<4x8xf32>
  %w, %idx, %probs = qwen35.router %l <{top_k = 2}> : tensor<2x4xf32>
  %gram = qwen35.linear %l, %l : tensor<2x4xf32>, tensor<2x4xf32>
  %row = qwen35.slice %gram <{axis = 0, start = 0, size = 1}> : tensor<2x2xf32>
  %one = qwen35.slice %row <{axis = 1, start = 0, size = 1}> : tensor<1x2xf32>
  %loss = qwen35.reshape %one : tensor<1x1xf32> to tensor<f32>
  return %loss : tensor<f32>
}
