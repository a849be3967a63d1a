// RUN: qwen35-import debug --tokens=128 --max-docs=9 | qwen35-opt --qwen35-pipeline-autodiff -o %t
// RUN: qwen35-opt %t --qwen35-shard-seed="mesh=dps=2,tp=2 zero=1" | FileCheck %s
// RUN: qwen35-opt %t --qwen35-shard-seed="mesh=cp=2" | FileCheck %s --check-prefix=STRIPES
// RUN: qwen35-opt %t --qwen35-shard-seed="mesh=cp=32" 2>&1 | FileCheck %s --check-prefix=SHORT
// RUN: qwen35-import debug-moe --tokens=128 --max-docs=9 --aux=pooled | qwen35-opt --qwen35-pipeline-autodiff \
// RUN:     --qwen35-shard-seed="mesh=cp=2" 2>&1 | FileCheck %s --check-prefix=AUX
// RUN: not qwen35-opt %t --qwen35-shard-seed="mesh=dps=2,tp=4" 2>&1 | FileCheck %s --check-prefix=HEADS
// RUN: not qwen35-opt %t --qwen35-shard-seed="mesh=pp=2" 2>&1 | FileCheck %s --check-prefix=STAGES
// RUN: not qwen35-opt %t --qwen35-shard-seed="mesh=dps=3" 2>&1 | FileCheck %s --check-prefix=ROWS
// RUN: not qwen35-opt %t --qwen35-shard-seed="mesh=dps2" 2>&1 | FileCheck %s --check-prefix=TEXT
// RUN: not qwen35-opt %t --qwen35-shard-seed="mesh=dps=2,ep=2" 2>&1 | FileCheck %s --check-prefix=DENSE
// RUN: not qwen35-opt %t --qwen35-shard-seed="mesh=dps=2 zero=4" 2>&1 | FileCheck %s --check-prefix=ZERO
// RUN: not qwen35-opt %t --qwen35-shard-propagate 2>&1 | FileCheck %s --check-prefix=UNSEEDED
// RUN: not qwen35-opt %t --qwen35-partition 2>&1 | FileCheck %s --check-prefix=UNSEEDED

// CHECK: qdist.mesh = #qdist.mesh<dps = 2, tp = 2>
// CHECK-LABEL: func @finish(
// Vocabulary, heads, and q, k, v each on their own.
// CHECK-SAME: %{{[^:]*}}: tensor<256x64xf32> {qdist.sharding = #qdist.sharding<[{tp}, {}]>, {{[^}]*}}qwen35.name = "model.embed_tokens.weight", qwen35.role = "weight"}
// CHECK-SAME: #qdist.sharding<[{tp : 64, 64, 128}, {}, {}]>, {{[^}]*}}qwen35.name = "model.layers.0.linear_attn.conv1d.weight", qwen35.role = "weight"}
// CHECK-SAME: #qdist.sharding<[{}, {tp}]>, {{[^}]*}}qwen35.name = "model.layers.0.linear_attn.out_proj.weight", qwen35.role = "weight"}
// CHECK-SAME: #qdist.sharding<[{tp : 64, 64, 128}, {}]>, {{[^}]*}}qwen35.name = "model.layers.0.linear_attn.in_proj_qkv.weight", qwen35.role = "weight"}
// CHECK-SAME: #qdist.sharding<[{}]>, {{[^}]*}}qwen35.name = "model.norm.weight", qwen35.role = "weight"}
// Moments are split over data ranks as well.
// CHECK-SAME: #qdist.sharding<[{tp}, {dps}]>, qwen35.name = "model.embed_tokens.weight", qwen35.role = "m"}
// Rows of the batch.
// CHECK-SAME: tensor<128xi32> {qdist.sharding = #qdist.sharding<[{dps}]>, qwen35.name = "ids"
// CHECK-SAME: !qwen35.seq<128, 10> {qdist.sharding = #qdist.sharding<[{dps}]>, qwen35.name = "seq"
// Between blocks tokens are split over everything.
// CHECK: %[[E:.*]] = qwen35.embed
// CHECK: %[[S:.*]] = qdist.shard_constraint %[[E]] <{sharding = #qdist.sharding<[{dps, tp}, {}]>}>
// CHECK: qwen35.rms_norm %[[S]]
// Norm and update read the part of a gradient that the update needs.
// CHECK: %[[G:.*]] = qwen35.add %{{.*}}, %{{.*}} : tensor<192x64xf32>
// CHECK: %[[P:.*]] = qdist.shard_constraint %[[G]] <{sharding = #qdist.sharding<[{tp}, {dps}]>}>
// CHECK: qwen35.norm_sq %[[P]]

// With zero=3 weights are kept in parts and made whole where a layer starts; sums are scattered where they are made.
// RUN: qwen35-opt %t --qwen35-shard-seed="mesh=dps=2,tp=2 zero=3" | FileCheck %s --check-prefix=FSDP
// FSDP-LABEL: func @accumulate(
// FSDP-SAME: %[[TABLE:[^:]*]]: tensor<256x64xf32> {qdist.sharding = #qdist.sharding<[{tp}, {dps}]>, {{[^}]*}}qwen35.name = "model.embed_tokens.weight", qwen35.role = "weight"}
// FSDP: %[[W:.*]] = qdist.shard_constraint %[[TABLE]] <{sharding = #qdist.sharding<[{tp}, {}]>}> : tensor<256x64xf32>
// FSDP-NEXT: qwen35.embed %{{.*}}, %[[W]]
// FSDP-COUNT-13: qdist.shard_constraint %arg{{[0-9]+}} <{sharding
// FSDP: qwen35.rms_norm
// FSDP: qwen35.lm_loss_grad
// FSDP: qdist.shard_constraint %arg{{[0-9]+}} <{sharding = {{.*}}}> {qwen35.recompute}
// FSDP: %[[G:.*]] = qwen35.matmul %{{.*}} <{transpose_a = true}> : tensor<128x64xf32>, tensor<128x192xf32>
// FSDP: %[[P:.*]] = qdist.shard_constraint %[[G]] <{keep_partial, sharding = #qdist.sharding<[{dps}, {tp}]>}>
// FSDP: qwen35.add %{{.*}}, %[[P]]

// Ranks of cp hold stripes: the tables of all ranks, one after the other, behind the table of documents; what results overwrite
// is counted with it.
// STRIPES-LABEL: func @first(
// STRIPES-SAME: tensor<128xi32> {qdist.sharding = #qdist.sharding<[{cp}]>, qwen35.name = "ids"
// STRIPES-SAME: !qwen35.seq<128, 10> {qdist.sharding = #qdist.sharding<[{cp}]>, qwen35.name = "seq", qwen35.role = "input"}, %{{[^:]*}}: tensor<40xi32> {qdist.sharding = #qdist.sharding<[{cp}]>, qwen35.name = "stripes", qwen35.role = "input"}

// Stripes of 2 tokens are shorter than what a convolution reads back.
// SHORT: remark: with cp=32 the tokens of a row are gathered for attention, convolutions and the delta rule: a convolution of 4 taps reads further back than the 2 tokens of a stripe
// SHORT-NOT: "stripes"
// AUX-NOT: remark

// HEADS: error: the model cannot be split so: tp=4 does not divide the 2 key heads of the delta rule; nearest meshes of as many ranks: pp=1,dpr=2,dps=2,cp=1,tp=2,ep=1;
// STAGES: error: pp=2: pipeline stages are not built, expected pp=1
// ROWS: error: has a batch of 128 tokens and 10 documents for 3 data ranks (dpr x dps), expected as many rows of equal size
// TEXT: error: mesh has "dps2", expected AXIS=SIZE with an axis of pp, dpr, dps, cp, tp, ep
// DENSE: error: the model cannot be split so: ep=2 for a dense model, which has no experts; expected ep=1
// ZERO: error: zero is 4, expected 0, 1, 2 or 3
// UNSEEDED: error: has no 'qdist.mesh'; run --qwen35-shard-seed first
