// RUN: qwen35-import %S/Inputs/moe.json --tokens 96 --max-docs 2 --aux pooled \
// RUN:   | qwen35-opt --verify-roundtrip | FileCheck %s
// RUN: qwen35-import %S/Inputs/moe.json --tokens 96 --aux per_layer --aux-coef 0.5 \
// RUN:   | FileCheck %s --check-prefix=LAYER
// RUN: qwen35-import %S/Inputs/moe.json --tokens 96 \
// RUN:   | FileCheck %s --check-prefix=NONE

// CHECK-LABEL: func.func @model(
// CHECK-SAME:    %[[SEQ:[^:]*]]: !qwen35.seq<96, 3>
// CHECK-SAME:    %[[SCALE:[^:]*]]: tensor<f32> {qwen35.name = "aux_scale"})
// CHECK-SAME:    -> (tensor<f32> {qwen35.name = "loss"}, tensor<f32> {qwen35.name = "lm_loss"}, tensor<f32> {qwen35.name = "aux_loss"})
// CHECK:      %[[GATE:.*]] = qwen35.param "model.layers.0.mlp.gate.weight" {{.*}} : tensor<8x48xf32>
// CHECK-NEXT: %[[GU:.*]] = qwen35.param "model.layers.0.mlp.experts.gate_up_proj" <{decay = true, file_dtype = "bf16", init = "normal(0.02)"}> : tensor<8x48x48xf32>
// CHECK-NEXT: %[[DOWN:.*]] = qwen35.param "model.layers.0.mlp.experts.down_proj" {{.*}} : tensor<8x48x24xf32>
// CHECK-NEXT: %[[SG:.*]] = qwen35.param "model.layers.0.mlp.shared_expert.gate_proj.weight" {{.*}} : tensor<40x48xf32>
// CHECK-NEXT: %[[SU:.*]] = qwen35.param "model.layers.0.mlp.shared_expert.up_proj.weight"
// CHECK-NEXT: %[[SD:.*]] = qwen35.param "model.layers.0.mlp.shared_expert.down_proj.weight" {{.*}} : tensor<48x40xf32>
// CHECK-NEXT: %[[SEG:.*]] = qwen35.param "model.layers.0.mlp.shared_expert_gate.weight" {{.*}} : tensor<1x48xf32>

// CHECK:      %[[L:.*]] = qwen35.linear %[[X:.*]], %[[GATE]]
// CHECK-NEXT: %[[W:.*]], %[[I0:.*]], %[[P0:.*]] = qwen35.router %[[L]] <{top_k = 2 : i64}>
// CHECK-NEXT: %[[ROUTED:.*]] = qwen35.moe_experts %[[X]], %[[W]], %[[I0]], %[[GU]], %[[DOWN]]
// CHECK-NEXT: %[[SGX:.*]] = qwen35.linear %[[X]], %[[SG]]
// CHECK-NEXT: %[[SUX:.*]] = qwen35.linear %[[X]], %[[SU]]
// CHECK-NEXT: %[[SW:.*]] = qwen35.swiglu %[[SGX]], %[[SUX]]
// CHECK-NEXT: %[[SHARED:.*]] = qwen35.linear %[[SW]], %[[SD]]
// CHECK-NEXT: %[[OPEN:.*]] = qwen35.linear %[[X]], %[[SEG]] {{.*}}
// CHECK-NEXT: %[[GATED:.*]] = qwen35.mul_sigmoid %[[SHARED]], %[[OPEN]]
// CHECK-NEXT: qwen35.add %[[ROUTED]], %[[GATED]]
// CHECK:      %{{.*}}, %[[I1:.*]], %[[P1:.*]] = qwen35.router

// Both layers enter the loss; the coefficient is the config's.
// CHECK:      %[[LM:.*]] = qwen35.lm_loss
// CHECK-NEXT: %[[AUX:.*]] = qwen35.router_aux(%[[P0]], %[[P1]]) (%[[I0]], %[[I1]]) %[[SEQ]] <{scope = "pooled"}>
// CHECK-NEXT: %[[MEAN:.*]] = qwen35.mul_scalar %[[AUX]], %[[SCALE]]
// CHECK-NEXT: %[[PART:.*]] = qwen35.scale %[[MEAN]] <{factor = 2.500000e-01 : f64}>
// CHECK-NEXT: %[[LOSS:.*]] = qwen35.add %[[LM]], %[[PART]]
// CHECK-NEXT: return %[[LOSS]], %[[LM]], %[[MEAN]]

// LAYER: qwen35.router_aux{{.*}} <{scope = "per_layer"}>
// LAYER: qwen35.scale {{.*}} <{factor = 5.000000e-01 : f64}>

// NONE:      -> (tensor<f32> {qwen35.name = "loss"}) {
// NONE-NOT:  qwen35.router_aux
// NONE:      return %{{[^,]*}} : tensor<f32>
