// RUN: qwen35-opt %s --qwen35-plan-memory --qwen35-verify-s6 --split-input-file --verify-diagnostics | FileCheck %s

// Collectives are numbered in the one order of the programs. Their outputs are
// buffers of their own unless they reduce in place, their stages live for one of
// them. A coordinate is a buffer of io, one for all functions.
module attributes {qdist.mesh = #qdist.mesh<dps = 2, tp = 2>} {
  // CHECK:      qplan.arena @io bytes 512 align 256
  // CHECK:      qplan.buffer @"rank:tp" in @io at 256 : tensor<i32> as "io"
  // CHECK-NEXT: qplan.rank_var @"rank:tp" over ["tp"]
  // CHECK:      qplan.program @eval {
  // CHECK-NEXT:   qplan.launch @use_f32_8 {{.*}}buffers [@"weight:w", @"rank:tp", @eval.0]
  // CHECK-NEXT:   qplan.collective "all_gather" 0 over ["tp"] buffers [@eval.0, @eval.1] <{counts = array<i64: 4>, dtype = f32, offsets = array<i64: 16, 0>, ranks = 2 : i64, receiveOuter = array<i64: 2>, receiveStage = 0 : i64, sendOuter = array<i64: 1>, sendStage = -1 : i64, stage = @eval.2}> tag "layers.0"
  // CHECK-NEXT:   qplan.launch @sum_f32
  // CHECK-NEXT:   qplan.collective "all_reduce" 1 over ["dps", "tp"] buffers [@"sum:loss", @"sum:loss"] <{counts = array<i64: 1>
  // CHECK-NOT:  qplan.rank_var
  // CHECK:      qplan.program @finish {
  // CHECK-NEXT:   qplan.launch
  // CHECK-NEXT:   qplan.collective "all_reduce" 2 over ["dps"] buffers [@"grad:w", @"grad:w", @finish.0, @finish.0]
  // CHECK-SAME:   accumulate = f32, counts = array<i64: 8, 8>, dtype = f32, offsets = array<i64: 0, 0, 0, 0>, ranks = 2 : i64, receiveOuter = array<i64: 1, 1>, receiveStage = 0 : i64, sendOuter = array<i64: 1, 1>, sendStage = 0 : i64, stage = @finish.1, wire = bf16
  func.func @eval(%w: tensor<8xf32> {qwen35.role = "weight", qwen35.name = "w"}, %sum: tensor<f32> {qwen35.role = "sum", qwen35.name = "loss"})
      -> (tensor<f32> {qwen35.alias = 1 : i64}) {
    %c = qdist.rank_var over ["tp"] : tensor<i32>
    %a = qkern.dispatch "use"(%w, %c) <{aliases = array<i64: -1>, config = {}, grids = array<i64: 1>, workspace = 0 : i64}> : (tensor<8xf32>, tensor<i32>) -> tensor<8xf32>
    %half = qkern.view %a <{offset = 4, strides = array<i64: 2, 1>}> : tensor<8xf32> to tensor<2x2xf32>
    %g = qkern.collective "all_gather"(%half) over ["tp"] <{aliases = array<i64: -1>, counts = array<i64: 4>, ranks = 2 : i64, receiveOuter = array<i64: 2>, sendOuter = array<i64: 1>, workspace = 32 : i64}> : (tensor<2x2xf32>) -> tensor<2x4xf32> loc("layers.0")
    %l = qkern.dispatch "sum"(%g, %sum) <{aliases = array<i64: 1>, config = {}, grids = array<i64: 1>, workspace = 0 : i64}> : (tensor<2x4xf32>, tensor<f32>) -> tensor<f32>
    %r = qkern.collective "all_reduce"(%l) over ["dps", "tp"] <{aliases = array<i64: 0>, counts = array<i64: 1>, ranks = 4 : i64, receiveOuter = array<i64: 1>, sendOuter = array<i64: 1>, workspace = 0 : i64}> : (tensor<f32>) -> tensor<f32>
    return %r : tensor<f32>
  }
  func.func @finish(%w: tensor<8xf32> {qwen35.role = "weight", qwen35.name = "w", qwen35.decay = true, qwen35.init = "ones", qwen35.file_dtype = "f32"},
      %m: tensor<8xf32> {qwen35.role = "m", qwen35.name = "w"}, %v: tensor<8xf32> {qwen35.role = "v", qwen35.name = "w"},
      %grad: tensor<8xf32> {qwen35.role = "grad", qwen35.name = "w"}, %sum: tensor<f32> {qwen35.role = "sum", qwen35.name = "loss"})
      -> (tensor<8xf32> {qwen35.alias = 3 : i64}) {
    %c = qdist.rank_var over ["tp"] : tensor<i32>
    %a:2 = qkern.dispatch "use"(%grad, %c) <{aliases = array<i64: 0, -1>, config = {}, grids = array<i64: 1>, workspace = 0 : i64}> : (tensor<8xf32>, tensor<i32>) -> (tensor<8xf32>, tensor<8xf32>)
    %r:2 = qkern.collective "all_reduce"(%a#0, %a#1) over ["dps"] <{accumulate = f32, aliases = array<i64: 0, 1>, counts = array<i64: 8, 8>, ranks = 2 : i64, receiveOuter = array<i64: 1, 1>, sendOuter = array<i64: 1, 1>, wire = bf16, workspace = 64 : i64}> : (tensor<8xf32>, tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>)
    return %r#0 : tensor<8xf32>
  }
}

// -----

module attributes {qdist.mesh = #qdist.mesh<tp = 2>} {
  func.func @finish(%g: tensor<4xf32> {qwen35.role = "grad", qwen35.name = "w"}) -> (tensor<4xf32> {qwen35.alias = 0 : i64}) {
    %a = qkern.collective "all_reduce"(%g) over ["tp"] <{aliases = array<i64: 0>, counts = array<i64: 4>, ranks = 2 : i64, receiveOuter = array<i64: 1>, sendOuter = array<i64: 1>, workspace = 0 : i64}> : (tensor<4xf32>) -> tensor<4xf32>
    // expected-error @below {{reads a value whose storage all_reduce has overwritten}}
    %b = qkern.dispatch "add"(%g, %a) <{aliases = array<i64: 1>, config = {}, grids = array<i64: 1>, workspace = 0 : i64}> : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    return %b : tensor<4xf32>
  }
}
