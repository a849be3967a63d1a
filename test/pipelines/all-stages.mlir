// The debug models through every stage, each output valid input of the next.
// RUN: qwen35-import debug --tokens 80 --max-docs 2 -o %t.s0.mlir
// RUN: qwen35-opt %t.s0.mlir --qwen35-pipeline-model --qwen35-pipeline-autodiff -o %t.s1.mlir
// RUN: qwen35-opt %t.s1.mlir --qwen35-pipeline-schedule=remat=selective -o %t.s4.mlir
// RUN: qwen35-opt %t.s4.mlir --qwen35-pipeline-kernels=target=cpu -o %t.s5.mlir
// RUN: qwen35-opt %t.s5.mlir --qwen35-pipeline-plan | FileCheck %s
// RUN: qwen35-import debug-moe --tokens 77 --max-docs 1 --aux per_layer | qwen35-opt --qwen35-pipeline=remat=full | FileCheck %s
// RUN: qwen35-import debug --tokens 77 --max-docs 1 | not qwen35-opt --qwen35-pipeline=target=abacus 2>&1 | FileCheck %s --check-prefix=TARGET

// CHECK:     qplan.arena @act
// CHECK:     qplan.arena @io
// CHECK:     qplan.arena @state
// CHECK-DAG: qplan.program @begin
// CHECK-DAG: qplan.program @eval
// CHECK-DAG: qplan.program @accumulate
// CHECK-DAG: qplan.program @finish
// CHECK-DAG: qplan.kernel @gdn_scan
// TARGET: unknown target "abacus", expected cpu or a GPU as sm_90a
