// RUN: qwen35-opt %s --qwen35-autodiff --qwen35-optimizer="weight-decay=0.25 grad-clip=2" --split-input-file \
// RUN:     --verify-diagnostics | FileCheck %s

// Parameters become arguments; sums and updates say which argument they
// overwrite. A gradient joins its sum where it is computed; the norm is a chain
// over the parameters; only "w" decays.
// CHECK-LABEL: func.func @eval(
// CHECK-SAME:    %[[W:[a-z0-9]+]]: tensor<4xf32> {qwen35.decay = true, qwen35.file_dtype = "f32", qwen35.init = "ones", qwen35.name = "w", qwen35.role = "weight"}
// CHECK-SAME:    %[[SUM:[a-z0-9]+]]: tensor<f32> {qwen35.name = "loss", qwen35.role = "sum"}
// CHECK-SAME:    -> (tensor<f32> {qwen35.alias = 2 : i64})
// CHECK:         qwen35.add %[[SUM]],

// CHECK-LABEL: func.func @accumulate(
// CHECK-SAME:    %{{.*}}: tensor<4xf32> {qwen35.name = "w", qwen35.role = "grad"}
// CHECK-SAME:    -> (tensor<4xf32> {qwen35.alias = 2 : i64}, tensor<f32> {qwen35.alias = 3 : i64}, tensor<f32> {qwen35.alias = 4 : i64})
// CHECK-NOT:     qwen35.adamw

// CHECK-LABEL: func.func @finish(
// CHECK-SAME:    %{{.*}}: tensor<f32> {qwen35.name = "bias_correction2", qwen35.role = "scalar"}
// CHECK-SAME:    tensor<f32> {qwen35.name = "grad_norm"}, tensor<f32> {qwen35.name = "commit"})
// CHECK:         %[[G:.*]] = qwen35.add %{{.*}} : tensor<4xf32>, tensor<4xf32>
// CHECK:         %[[Z:.*]] = qwen35.zeros : tensor<f64>
// CHECK:         %[[N1:.*]] = qwen35.norm_sq %[[G]], %[[Z]]
// CHECK:         %[[N2:.*]] = qwen35.norm_sq %{{.*}}, %[[N1]]
// CHECK:         %[[NORM:.*]], %[[FACTOR:.*]], %[[COMMIT:.*]] = qwen35.clip_factor %[[N2]] <{max_norm = 2.000000e+00 : f64}>
// CHECK:         qwen35.adamw %{{.*}}, %[[FACTOR]], %{{.*}}, %{{.*}}, %[[COMMIT]] <{{.*}}weight_decay = 2.500000e-01
// CHECK:         qwen35.adamw %{{.*}} <{{.*}}weight_decay = 0.000000e+00
func.func @model(%labels: tensor<2xi32> {qwen35.name = "labels"}, %inv_count: tensor<f32> {qwen35.name = "inv_count"})
    -> (tensor<f32> {qwen35.name = "loss"}) {
  %w = qwen35.param "w" <{init = "ones", decay = true, file_dtype = "f32"}> : tensor<4xf32>
  %b = qwen35.param "b" <{init = "zeros", decay = false, file_dtype = "bf16"}> : tensor<f32>
  %h = qwen35.reshape %w : tensor<4xf32> to tensor<2x2xf32>
  %lm = qwen35.lm_loss %h, %h, %labels, %inv_count : tensor<2x2xf32>, tensor<2x2xf32>, tensor<2xi32>, tensor<f32>
  %loss = qwen35.add %lm, %b : tensor<f32>, tensor<f32>
  return %loss : tensor<f32>
}

// -----

// A parameter that is cast has its cast as state beside it: no function of a
// step casts it, the update writes both, and @refresh makes the copy alone.
// CHECK-LABEL: func.func @eval(
// CHECK-SAME:    %{{[a-z0-9]+}}: tensor<4x2xf32> {{{[^}]*}}qwen35.name = "w", qwen35.role = "weight"}, %{{[a-z0-9]+}}: tensor<f32> {{{[^}]*}}qwen35.name = "b", qwen35.role = "weight"}
// CHECK-SAME:    %[[W16:[a-z0-9]+]]: tensor<4x2xbf16> {qwen35.name = "w", qwen35.role = "work"}, %{{[a-z0-9]+}}: tensor<f32> {qwen35.name = "loss", qwen35.role = "sum"}
// CHECK-NOT:     qwen35.cast
// CHECK:         qwen35.embed %{{.*}}, %[[W16]]

// CHECK-LABEL: func.func @refresh(
// CHECK-SAME:    %[[W:[a-z0-9]+]]: tensor<4x2xf32> {{{[^}]*}}qwen35.name = "w", qwen35.role = "weight"}, %{{[a-z0-9]+}}: tensor<4x2xbf16> {qwen35.name = "w", qwen35.role = "work"}) -> (tensor<4x2xbf16> {qwen35.alias = 1 : i64})
// CHECK-NEXT:    %[[C:.*]] = qwen35.cast %[[W]]
// CHECK-NEXT:    return %[[C]]

// CHECK-LABEL: func.func @accumulate(
// CHECK-NOT:     qwen35.cast
// CHECK-LABEL: func.func @finish(
// CHECK-SAME:    -> (tensor<4x2xf32> {qwen35.alias = 0 : i64}, tensor<f32> {qwen35.alias = 1 : i64}, tensor<4x2xbf16> {qwen35.alias = 2 : i64}, tensor<4x2xf32> {qwen35.alias = 3 : i64}
// CHECK-NOT:     qwen35.cast
// CHECK:         %[[P:.*]], %[[M:.*]], %{{.*}}, %[[P16:.*]] = qwen35.adamw {{.*}}work_type = bf16
// CHECK:         %[[B:.*]], %{{.*}}, %{{[^,]*}} = qwen35.adamw
// CHECK-NOT:     work_type
// CHECK:         return %[[P]], %[[B]], %[[P16]], %[[M]]
func.func @model(%ids: tensor<2xi32> {qwen35.name = "ids"}, %labels: tensor<2xi32> {qwen35.name = "labels"}, %inv_count: tensor<f32> {qwen35.name = "inv_count"})
    -> (tensor<f32> {qwen35.name = "loss"}) {
  %w = qwen35.param "w" <{init = "ones", decay = true, file_dtype = "f32"}> : tensor<4x2xf32>
  %w16 = qwen35.cast %w : tensor<4x2xf32> to tensor<4x2xbf16>
  %b = qwen35.param "b" <{init = "zeros", decay = false, file_dtype = "bf16"}> : tensor<f32>
  %h = qwen35.embed %ids, %w16 : tensor<2xi32>, tensor<4x2xbf16>
  %lm = qwen35.lm_loss %h, %w16, %labels, %inv_count : tensor<2x2xbf16>, tensor<4x2xbf16>, tensor<2xi32>, tensor<f32>
  %loss = qwen35.add %lm, %b : tensor<f32>, tensor<f32>
  return %loss : tensor<f32>
}
