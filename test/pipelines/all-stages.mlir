// The debug models through every stage, each output valid input of the next.
// RUN: qwen35-import debug --tokens 80 --max-docs 2 -o %t.s0.mlir
// RUN: qwen35-opt %t.s0.mlir --qwen35-pipeline-model --qwen35-pipeline-autodiff -o %t.s1.mlir
// RUN: qwen35-opt %t.s1.mlir --qwen35-pipeline-schedule=remat=selective -o %t.s4.mlir
// RUN: qwen35-opt %t.s4.mlir --qwen35-pipeline-kernels=target=cpu -o %t.s5.mlir
// RUN: qwen35-opt %t.s5.mlir --qwen35-pipeline-plan | FileCheck %s
// RUN: qwen35-import debug-moe --tokens 77 --max-docs 1 --aux per_layer | qwen35-opt --qwen35-pipeline=remat=full | FileCheck %s
// RUN: qwen35-import debug --tokens 77 --max-docs 1 | not qwen35-opt --qwen35-pipeline=target=abacus 2>&1 | FileCheck %s --check-prefix=TARGET
// RUN: qwen35-import debug-moe --tokens 80 --max-docs 2 --aux pooled | qwen35-opt --qwen35-pipeline-model=compute=bf16 --qwen35-pipeline-autodiff -o %t.bf16.mlir
// RUN: qwen35-opt %t.bf16.mlir --qwen35-pipeline-schedule=remat=full --qwen35-lower-gdn | FileCheck %s --check-prefix=BF16
// RUN: qwen35-opt %t.bf16.mlir --qwen35-pipeline-schedule=remat=selective | FileCheck %s --check-prefix=BF16
// RUN: qwen35-import 0.8b --tokens 128 --max-docs 2 | qwen35-opt --qwen35-pipeline-model=compute=bf16 --qwen35-pipeline-autodiff --qwen35-pipeline-schedule | FileCheck %s --check-prefix=BF16

// CHECK:     qplan.arena @act
// CHECK:     qplan.arena @io
// CHECK:     qplan.arena @state
// CHECK-DAG: qplan.program @begin
// CHECK-DAG: qplan.program @eval
// CHECK-DAG: qplan.program @accumulate
// CHECK-DAG: qplan.program @finish
// CHECK-DAG: qplan.kernel @gdn_scan
// TARGET: unknown target "abacus", expected cpu or a GPU as sm_90a

// In bf16 all sums of two tensors are of activations, or of gradients and
// losses; only cotangents of routers are cast in a step.
// BF16-LABEL: func.func @refresh(
// BF16:         qwen35.cast %arg0 : tensor<[[$V:[0-9]+]]x[[$D:[0-9]+]]xf32> to tensor<[[$V]]x[[$D]]xbf16>
// BF16-LABEL: func.func @accumulate(
// BF16-NOT:     qwen35.cast %arg
// BF16-LABEL: func.func @finish(
// BF16-NOT:     qwen35.cast %arg
// BF16:         qwen35.lm_loss_grad {{.*}} : tensor<{{[0-9]+}}x[[$D]]xbf16>, tensor<[[$V]]x[[$D]]xbf16>, tensor<{{[0-9]+}}xi32>, tensor<f32>
// BF16:         qwen35.adamw {{.*}}work_type = bf16
