// RUN: qwen35-opt %s --pass-pipeline="builtin.module(func.func(qwen35-to-kernels),qwen35-verify-s5)" --split-input-file \
// RUN:     --verify-diagnostics | FileCheck %s --check-prefix=KERNELS
// RUN: qwen35-opt %s --pass-pipeline="builtin.module(func.func(qwen35-to-kernels),qwen35-plan-memory,qwen35-verify-s6)" \
// RUN:     | FileCheck %s

// A collective that is in flight while two scales run: neither takes the storage of what is sent (its last reader is the wait), nor
// of what is received or of the stage. The gradient is reduced where it is, though the wait stands between.
module attributes {qdist.mesh = #qdist.mesh<dps = 2>} {
  // KERNELS-LABEL: func @finish(
  // KERNELS: %[[X:.*]] = qkern.dispatch "scale"(%arg0)
  // KERNELS: %[[G:.*]] = qkern.collective "all_gather"(%[[X]]) over ["dps"] <{aliases = array<i64: -1>, async,
  // KERNELS: %[[A:.*]] = qkern.dispatch "scale"(%[[X]]) <{aliases = array<i64: -1>
  // KERNELS: %[[B:.*]] = qkern.dispatch "scale"(%[[A]]) <{aliases = array<i64: 0>
  // KERNELS: %[[W:.*]] = qkern.wait %[[G]] : (tensor<16xf32>) -> tensor<16xf32>
  // KERNELS: %[[S:.*]] = qkern.dispatch "add"(%arg3, %{{.*}}) <{aliases = array<i64: 0>
  // KERNELS: %[[R:.*]] = qkern.collective "all_reduce"(%[[S]]) over ["dps"] <{aliases = array<i64: 0>, async,
  // KERNELS: qkern.wait %[[R]]
  // CHECK: qplan.buffer @finish.0 in @act at [[X:[0-9]+]] : tensor<8xf32>
  // CHECK: qplan.program @finish {
  // CHECK:      qplan.launch @scale_f32_8 stage 0 grid 1 buffers [@"weight:w", @finish.0]
  // CHECK-NEXT: qplan.collective "all_gather" 0 over ["dps"] buffers [@finish.0, @finish.1] <{async,
  // CHECK-NEXT: qplan.launch @scale_f32_8 stage 0 grid 1 buffers [@finish.0, @finish.2]
  // CHECK-NEXT: qplan.launch @scale_f32_8 stage 0 grid 1 buffers [@finish.2, @finish.2]
  // CHECK-NEXT: qplan.wait 0
  // CHECK:      qplan.collective "all_reduce" 1 over ["dps"] buffers [@"grad:w", @"grad:w"] <{async,
  // CHECK:      qplan.wait 1
  func.func @finish(%w: tensor<8xf32> {qwen35.role = "weight", qwen35.name = "w", qwen35.decay = true, qwen35.init = "ones", qwen35.file_dtype = "f32"},
      %m: tensor<8xf32> {qwen35.role = "m", qwen35.name = "w"}, %v: tensor<8xf32> {qwen35.role = "v", qwen35.name = "w"},
      %grad: tensor<8xf32> {qwen35.role = "grad", qwen35.name = "w"})
      -> (tensor<8xf32> {qwen35.alias = 3 : i64}, tensor<16xf32> {qwen35.name = "out"}) {
    %x = qwen35.scale %w <{factor = 2.0}> : tensor<8xf32>
    %g = qdist.all_gather %x over ["dps"] <{async, dim = 0}> : (tensor<8xf32>) -> tensor<16xf32>
    %a = qwen35.scale %x <{factor = 2.0}> : tensor<8xf32>
    %b = qwen35.scale %a <{factor = 2.0}> : tensor<8xf32>
    %e = qdist.wait %g : (tensor<16xf32>) -> tensor<16xf32>
    %s = qwen35.add %grad, %b : tensor<8xf32>, tensor<8xf32>
    %r = qdist.all_reduce %s over ["dps"] <{async}> : (tensor<8xf32>) -> tensor<8xf32>
    %o = qwen35.scale %e <{factor = 2.0}> : tensor<16xf32>
    %t = qdist.wait %r : (tensor<8xf32>) -> tensor<8xf32>
    return %t, %o : tensor<8xf32>, tensor<16xf32>
  }
}
