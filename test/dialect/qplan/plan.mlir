// RUN: qwen35-opt %s --verify-roundtrip | FileCheck %s
// RUN: qwen35-opt %s --emit-bytecode | qwen35-opt | FileCheck %s

// CHECK:      qplan.arena @act bytes 4096 align 256
// CHECK-NEXT: qplan.buffer @a in @act at 256 : tensor<8x4xf32> as "activations"
// CHECK-NEXT: qplan.buffer @ws in @act at 512 : tensor<64xi8> as "workspace"
// CHECK-NEXT: qplan.kernel @k "rms_norm" {eps = 5.000000e-01 : f64} stages 2 (memref<8x4xf32, strided<[16, 1]>>, memref<4xf32>) to (memref<8x4xf32>) workspace
// CHECK-NEXT: qplan.kernel @z "zeros" {} stages 1 () to (memref<f32>)
// CHECK-NEXT: qplan.param "model.norm.weight" weight @a m @a v @a grad @a {decay = false, file_dtype = "bf16", init = "zeros"}
// CHECK-NEXT: qplan.param "lm_head.weight" weight @a m @a v @a grad @a work @ws {decay = true, file_dtype = "bf16", init = "zeros"}
// CHECK-NEXT: qplan.io "scalar" "lr" @a
// CHECK-NEXT: qplan.program @finish {
// CHECK-NEXT:   qplan.memset @a value 0
// CHECK-NEXT:   qplan.launch @k stage 1 grid 4 buffers [@a, @ws] offsets [0, 16] bytes [128, 32] writes [false, true] tag "layers.0"
// CHECK-NEXT:   qplan.collective "shift" 7 over ["cp"] buffers [@a, @a] <{counts = array<i64: 8>, dtype = f32, offset = -1 : i64, offsets = array<i64: 0, 32>, ranks = 2 : i64, receiveOuter = array<i64: 1>, receiveStage = -1 : i64, sendOuter = array<i64: 1>, sendStage = -1 : i64}> tag "layers.0"
// CHECK-NEXT: }
// CHECK-NEXT: qplan.rank_var @r over ["cp", "tp"]
qplan.arena @act bytes 4096 align 256
qplan.buffer @a in @act at 256 : tensor<8x4xf32> as "activations"
qplan.buffer @ws in @act at 512 : tensor<64xi8> as "workspace"
qplan.kernel @k "rms_norm" {eps = 0.5} stages 2 (memref<8x4xf32, strided<[16, 1]>>, memref<4xf32>) to (memref<8x4xf32>) workspace
qplan.kernel @z "zeros" {} stages 1 () to (memref<f32>)
qplan.param "model.norm.weight" weight @a m @a v @a grad @a {init = "zeros", decay = false, file_dtype = "bf16"}
qplan.param "lm_head.weight" weight @a m @a v @a grad @a work @ws {init = "zeros", decay = true, file_dtype = "bf16"}
qplan.io "scalar" "lr" @a
qplan.program @finish {
  qplan.memset @a value 0
  qplan.launch @k stage 1 grid 4 buffers [@a, @ws] offsets [0, 16] bytes [128, 32] writes [false, true] tag "layers.0"
  qplan.collective "shift" 7 over ["cp"] buffers [@a, @a] <{counts = array<i64: 8>, dtype = f32, offset = -1, offsets = array<i64: 0, 32>, ranks = 2,
      receiveOuter = array<i64: 1>, receiveStage = -1, sendOuter = array<i64: 1>, sendStage = -1}> tag "layers.0"
}
qplan.rank_var @r over ["cp", "tp"]
