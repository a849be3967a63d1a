// RUN: qwen35-import %S/Inputs/one_linear.json --tokens 96 --max-docs 2 \
// RUN:   | qwen35-opt --verify-roundtrip | FileCheck %s

// One dense layer with a linear mixer: two value heads per key head, a tied
// head. --max-docs 2 is the user's limit; padding makes it 3.

// CHECK-LABEL: func.func @model(
// CHECK-SAME:    %[[IDS:[^:]*]]: tensor<96xi32> {qwen35.name = "ids"},
// CHECK-SAME:    %[[LABELS:[^:]*]]: tensor<96xi32> {qwen35.name = "labels"},
// CHECK-SAME:    %[[SEQ:[^:]*]]: !qwen35.seq<96, 3> {qwen35.name = "seq"},
// CHECK-SAME:    %[[COUNT:[^:]*]]: tensor<f32> {qwen35.name = "inv_count"},
// CHECK-SAME:    %{{[^:]*}}: tensor<f32> {qwen35.name = "aux_scale"})
// CHECK-SAME:    -> (tensor<f32> {qwen35.name = "loss"})

// Parameters first, in the order of the reference's modules.
// CHECK-NEXT: %[[EMBED:.*]] = qwen35.param "model.embed_tokens.weight" <{decay = true, file_dtype = "bf16", init = "normal(0.02)"}> : tensor<200x48xf32>
// CHECK-NEXT: %[[DT:.*]] = qwen35.param "model.layers.0.linear_attn.dt_bias" <{decay = false, file_dtype = "bf16", init = "ones"}> : tensor<4xf32>
// CHECK-NEXT: %[[A_LOG:.*]] = qwen35.param "model.layers.0.linear_attn.A_log" <{decay = false, file_dtype = "f32", init = "log_uniform(0.01,16)"}> : tensor<4xf32>
// CHECK-NEXT: %[[CONV:.*]] = qwen35.param "model.layers.0.linear_attn.conv1d.weight" <{decay = true, file_dtype = "bf16", init = "normal(0.02)"}> : tensor<192x1x4xf32>
// CHECK-NEXT: %[[GN:.*]] = qwen35.param "model.layers.0.linear_attn.norm.weight" <{decay = false, file_dtype = "f32", init = "ones"}> : tensor<32xf32>
// CHECK-NEXT: %[[OUT:.*]] = qwen35.param "model.layers.0.linear_attn.out_proj.weight"
// CHECK-NEXT: %[[QKV:.*]] = qwen35.param "model.layers.0.linear_attn.in_proj_qkv.weight"
// CHECK-NEXT: %[[Z:.*]] = qwen35.param "model.layers.0.linear_attn.in_proj_z.weight"
// CHECK-NEXT: %[[B:.*]] = qwen35.param "model.layers.0.linear_attn.in_proj_b.weight"
// CHECK-NEXT: %[[A:.*]] = qwen35.param "model.layers.0.linear_attn.in_proj_a.weight"
// CHECK-NEXT: %[[GATE:.*]] = qwen35.param "model.layers.0.mlp.gate_proj.weight"
// CHECK-NEXT: %[[UP:.*]] = qwen35.param "model.layers.0.mlp.up_proj.weight"
// CHECK-NEXT: %[[DOWN:.*]] = qwen35.param "model.layers.0.mlp.down_proj.weight"
// CHECK-NEXT: %[[N1:.*]] = qwen35.param "model.layers.0.input_layernorm.weight" <{decay = false, file_dtype = "bf16", init = "zeros"}> : tensor<48xf32>
// CHECK-NEXT: %[[N2:.*]] = qwen35.param "model.layers.0.post_attention_layernorm.weight"
// CHECK-NEXT: %[[NF:.*]] = qwen35.param "model.norm.weight"

// No rotary table: nothing would read it.
// CHECK-NEXT: %[[X:.*]] = qwen35.embed %[[IDS]], %[[EMBED]]
// CHECK-NEXT: %[[XN:.*]], %{{.*}} = qwen35.rms_norm %[[X]], %[[N1]] <{eps = 5.000000e-01 : f64, offset = 1.000000e+00 : f64}>

// q, k and v are contiguous sections of the convolved channels.
// CHECK-NEXT: %[[U:.*]] = qwen35.linear %[[XN]], %[[QKV]]
// CHECK-NEXT: %[[M:.*]] = qwen35.causal_conv %[[U]], %[[CONV]], %[[SEQ]]
// CHECK-NEXT: %[[QS:.*]] = qwen35.slice %[[M]] <{axis = 1 : i64, size = 32 : i64, start = 0 : i64}>
// CHECK-NEXT: %[[QH:.*]] = qwen35.reshape %[[QS]] : tensor<96x32xf32> to tensor<96x2x16xf32>
// CHECK-NEXT: %[[KS:.*]] = qwen35.slice %[[M]] <{axis = 1 : i64, size = 32 : i64, start = 32 : i64}>
// CHECK-NEXT: %[[KH:.*]] = qwen35.reshape %[[KS]] : tensor<96x32xf32> to tensor<96x2x16xf32>
// CHECK-NEXT: %[[VS:.*]] = qwen35.slice %[[M]] <{axis = 1 : i64, size = 128 : i64, start = 64 : i64}>
// CHECK-NEXT: %[[VH:.*]] = qwen35.reshape %[[VS]] : tensor<96x128xf32> to tensor<96x4x32xf32>

// CHECK-NEXT: %[[AX:.*]] = qwen35.linear %[[XN]], %[[A]]
// CHECK-NEXT: %[[BX:.*]] = qwen35.linear %[[XN]], %[[B]]
// CHECK-NEXT: %[[G:.*]], %[[BETA:.*]] = qwen35.gdn_gates %[[AX]], %[[BX]], %[[A_LOG]], %[[DT]]
// The scale is the key head's; the eps is the rule's own, not rms_norm_eps.
// CHECK-NEXT: %[[O:.*]] = qwen35.gated_delta_rule %[[QH]], %[[KH]], %[[VH]], %[[G]], %[[BETA]], %[[SEQ]] <{eps = 9.9999999999999995E-7 : f64, scale = 2.500000e-01 : f64}>

// CHECK-NEXT: %[[ZX:.*]] = qwen35.linear %[[XN]], %[[Z]]
// CHECK-NEXT: %[[ZH:.*]] = qwen35.reshape %[[ZX]] : tensor<96x128xf32> to tensor<96x4x32xf32>
// CHECK-NEXT: %[[Y:.*]], %{{.*}} = qwen35.gated_rms_norm %[[O]], %[[ZH]], %[[GN]] <{eps = 5.000000e-01 : f64}>
// CHECK-NEXT: %[[YF:.*]] = qwen35.reshape %[[Y]] : tensor<96x4x32xf32> to tensor<96x128xf32>
// CHECK-NEXT: %[[MIX:.*]] = qwen35.linear %[[YF]], %[[OUT]]
// CHECK-NEXT: %[[H:.*]] = qwen35.add %[[X]], %[[MIX]]

// CHECK-NEXT: %[[HN:.*]], %{{.*}} = qwen35.rms_norm %[[H]], %[[N2]]
// CHECK-NEXT: %[[GX:.*]] = qwen35.linear %[[HN]], %[[GATE]]
// CHECK-NEXT: %[[UX:.*]] = qwen35.linear %[[HN]], %[[UP]]
// CHECK-NEXT: %[[SW:.*]] = qwen35.swiglu %[[GX]], %[[UX]]
// CHECK-NEXT: %[[FF:.*]] = qwen35.linear %[[SW]], %[[DOWN]]
// CHECK-NEXT: %[[H2:.*]] = qwen35.add %[[H]], %[[FF]]

// The tied head is a second use of the embedding.
// CHECK-NEXT: %[[LAST:.*]], %{{.*}} = qwen35.rms_norm %[[H2]], %[[NF]]
// CHECK-NEXT: %[[LOSS:.*]] = qwen35.lm_loss %[[LAST]], %[[EMBED]], %[[LABELS]], %[[COUNT]]
// CHECK-NEXT: return %[[LOSS]] : tensor<f32>
