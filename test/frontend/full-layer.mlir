// RUN: qwen35-import %S/Inputs/one_full.json --tokens 96 --max-docs 2 \
// RUN:   | qwen35-opt --verify-roundtrip | FileCheck %s

// One dense layer with full attention: two query heads per key/value head, half
// of each head rotated, an untied head, a float32 checkpoint.

// CHECK-LABEL: func.func @model(
// CHECK-SAME:    %[[IDS:[^:]*]]: tensor<96xi32>
// CHECK-SAME:    %[[LABELS:[^:]*]]: tensor<96xi32>
// CHECK-SAME:    %[[SEQ:[^:]*]]: !qwen35.seq<96, 3>
// CHECK:      %[[QW:.*]] = qwen35.param "model.layers.0.self_attn.q_proj.weight" <{decay = true, file_dtype = "f32", init = "normal(0.02)"}> : tensor<512x48xf32>
// CHECK-NEXT: %[[KW:.*]] = qwen35.param "model.layers.0.self_attn.k_proj.weight" {{.*}} : tensor<128x48xf32>
// CHECK-NEXT: %[[VW:.*]] = qwen35.param "model.layers.0.self_attn.v_proj.weight" {{.*}} : tensor<128x48xf32>
// CHECK-NEXT: %[[OW:.*]] = qwen35.param "model.layers.0.self_attn.o_proj.weight" {{.*}} : tensor<48x256xf32>
// CHECK-NEXT: %[[QN:.*]] = qwen35.param "model.layers.0.self_attn.q_norm.weight" <{decay = false, file_dtype = "f32", init = "zeros"}> : tensor<64xf32>
// CHECK-NEXT: %[[KN:.*]] = qwen35.param "model.layers.0.self_attn.k_norm.weight"
// CHECK:      %[[HEAD:.*]] = qwen35.param "lm_head.weight" {{.*}} : tensor<200x48xf32>

// CHECK-NEXT: %[[TABLE:.*]] = qwen35.rope_table %[[SEQ]] <{rotary_dim = 32 : i64, theta = 1.024000e+03 : f64}>
// CHECK-NEXT: %[[X:.*]] = qwen35.embed %[[IDS]]
// CHECK-NEXT: %[[XN:.*]], %{{.*}} = qwen35.rms_norm %[[X]]

// Query and gate alternate head by head, not half by half.
// CHECK-NEXT: %[[QG:.*]] = qwen35.linear %[[XN]], %[[QW]]
// CHECK-NEXT: %[[QGH:.*]] = qwen35.reshape %[[QG]] : tensor<96x512xf32> to tensor<96x4x128xf32>
// CHECK-NEXT: %[[QUERY:.*]] = qwen35.slice %[[QGH]] <{axis = 2 : i64, size = 64 : i64, start = 0 : i64}>
// CHECK-NEXT: %[[GATE:.*]] = qwen35.slice %[[QGH]] <{axis = 2 : i64, size = 64 : i64, start = 64 : i64}>
// CHECK-NEXT: %[[KX:.*]] = qwen35.linear %[[XN]], %[[KW]]
// CHECK-NEXT: %[[KH:.*]] = qwen35.reshape %[[KX]] : tensor<96x128xf32> to tensor<96x2x64xf32>
// CHECK-NEXT: %[[VX:.*]] = qwen35.linear %[[XN]], %[[VW]]
// CHECK-NEXT: %[[VH:.*]] = qwen35.reshape %[[VX]] : tensor<96x128xf32> to tensor<96x2x64xf32>

// Norm before rotation; neither for values and gate.
// CHECK-NEXT: %[[QNORM:.*]], %{{.*}} = qwen35.rms_norm %[[QUERY]], %[[QN]] <{eps = 5.000000e-01 : f64, offset = 1.000000e+00 : f64}>
// CHECK-NEXT: %[[Q:.*]] = qwen35.rope %[[QNORM]], %[[TABLE]]
// CHECK-NEXT: %[[KNORM:.*]], %{{.*}} = qwen35.rms_norm %[[KH]], %[[KN]]
// CHECK-NEXT: %[[K:.*]] = qwen35.rope %[[KNORM]], %[[TABLE]]
// CHECK-NEXT: %[[O:.*]], %{{.*}} = qwen35.attention %[[Q]], %[[K]], %[[VH]], %[[SEQ]] <{scale = 1.250000e-01 : f64}>
// CHECK-NEXT: %[[GATED:.*]] = qwen35.mul_sigmoid %[[O]], %[[GATE]]
// CHECK-NEXT: %[[FLAT:.*]] = qwen35.reshape %[[GATED]] : tensor<96x4x64xf32> to tensor<96x256xf32>
// CHECK-NEXT: %[[MIX:.*]] = qwen35.linear %[[FLAT]], %[[OW]]
// CHECK-NEXT: qwen35.add %[[X]], %[[MIX]]

// CHECK:      qwen35.lm_loss %{{.*}}, %[[HEAD]], %[[LABELS]],
