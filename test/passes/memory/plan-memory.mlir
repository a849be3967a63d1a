// RUN: qwen35-opt %s --qwen35-plan-memory --qwen35-verify-s6 --split-input-file --verify-diagnostics | FileCheck %s

// State, then io, each buffer on 256 bytes. In @finish, %a is read for the last
// time before %l is written, so %l takes its bytes; %b and %c live on and keep
// theirs. The sum is overwritten in place, the named result lives in io, the
// workspace is a buffer of one launch. Equal kernels are one.
// CHECK:      module attributes {qplan.report = {
// CHECK-SAME:   finish = {act_bytes = 1024 : i64
// CHECK-SAME:   lower_bound = 1024 : i64
// CHECK:      qplan.arena @act bytes 1024 align 256
// CHECK:      qplan.arena @io bytes 768 align 256
// CHECK:      qplan.arena @state bytes 1024 align 256
// CHECK:      qplan.buffer @"weight:w" in @state at 0 : tensor<32xf32> as "weights"
// CHECK:      qplan.param "w" weight @"weight:w" m @"m:w" v @"v:w" grad @"grad:w" {decay = true, file_dtype = "f32", init = "ones"}
// CHECK:      qplan.buffer @"grad:w" in @state at 768
// CHECK:      qplan.program @begin {
// CHECK-NEXT:   qplan.memset @"grad:w" value 0
// CHECK-NEXT:   qplan.memset @"sum:loss" value 0
// CHECK:      qplan.buffer @finish.[[A:0]] in @act at 0 : tensor<32xf32> as "activations"
// CHECK:      qplan.buffer @finish.3 in @act at 768 : tensor<64xi8> as "workspace"
// CHECK:      qplan.buffer @finish.4 in @act at 0 : tensor<f32> as "activations"
// CHECK:      qplan.program @finish {
// CHECK-NEXT:   qplan.launch @scale_f32_32 stage 0 grid 2 buffers [@"weight:w", @finish.[[A]]] offsets [0, 0] bytes [128, 128] writes [false, true]
// CHECK-NEXT:   qplan.launch @scale_f32_32 stage 0
// CHECK-NEXT:   qplan.launch @two_stage_f32_16 stage 0 grid 4 buffers [@finish.[[A]], @finish.{{.*}}, @finish.{{.*}}] offsets [64, 0, 0] bytes [64, 64, 64]
// CHECK-NEXT:   qplan.launch @two_stage_f32_16 stage 1 grid 1
// CHECK:        qplan.launch @add_f32 stage 0 grid 1 buffers [@"sum:loss", @finish.{{.*}}, @"sum:loss"]
// CHECK:        qplan.launch @norm_f32 {{.*}}@"output:grad_norm"
// CHECK:      qplan.kernel @scale_f32_32 "scale" {} stages 1 (memref<32xf32>) to (memref<32xf32>)
// CHECK:      qplan.kernel @two_stage_f32_16 "two_stage" {} stages 2 (memref<16xf32>) to (memref<16xf32>) workspace
func.func @finish(%w: tensor<32xf32> {qwen35.role = "weight", qwen35.name = "w", qwen35.decay = true, qwen35.init = "ones", qwen35.file_dtype = "f32"},
    %m: tensor<32xf32> {qwen35.role = "m", qwen35.name = "w"}, %v: tensor<32xf32> {qwen35.role = "v", qwen35.name = "w"},
    %g: tensor<32xf32> {qwen35.role = "grad", qwen35.name = "w"}, %sum: tensor<f32> {qwen35.role = "sum", qwen35.name = "loss"},
    %lr: tensor<f32> {qwen35.role = "scalar", qwen35.name = "lr"})
    -> (tensor<f32> {qwen35.alias = 4 : i64}, tensor<f32> {qwen35.name = "grad_norm"}) {
  %a = qkern.dispatch "scale"(%w) <{aliases = array<i64: -1>, config = {}, grids = array<i64: 2>, workspace = 0 : i64}> : (tensor<32xf32>) -> tensor<32xf32>
  %b = qkern.dispatch "scale"(%m) <{aliases = array<i64: -1>, config = {}, grids = array<i64: 2>, workspace = 0 : i64}> : (tensor<32xf32>) -> tensor<32xf32>
  %half = qkern.view %a <{offset = 16, strides = array<i64: 1>}> : tensor<32xf32> to tensor<16xf32>
  %c = qkern.dispatch "two_stage"(%half) <{aliases = array<i64: -1>, config = {}, grids = array<i64: 4, 1>, workspace = 64 : i64}> : (tensor<16xf32>) -> tensor<16xf32>
  %l = qkern.dispatch "loss"(%b, %c) <{aliases = array<i64: -1>, config = {}, grids = array<i64: 1>, workspace = 0 : i64}> : (tensor<32xf32>, tensor<16xf32>) -> tensor<f32>
  %s = qkern.dispatch "add"(%sum, %l) <{aliases = array<i64: 0>, config = {}, grids = array<i64: 1>, workspace = 0 : i64}> : (tensor<f32>, tensor<f32>) -> tensor<f32>
  %n = qkern.dispatch "norm"(%b) <{aliases = array<i64: -1>, config = {}, grids = array<i64: 1>, workspace = 0 : i64}> : (tensor<32xf32>) -> tensor<f32>
  return %s, %n : tensor<f32>, tensor<f32>
}

// -----

func.func @finish(%g: tensor<f32> {qwen35.role = "grad", qwen35.name = "w"}) -> (tensor<f32> {qwen35.alias = 0 : i64}) {
  %a = qkern.dispatch "add"(%g, %g) <{aliases = array<i64: 0>, config = {}, grids = array<i64: 1>, workspace = 0 : i64}> : (tensor<f32>, tensor<f32>) -> tensor<f32>
  // expected-error @below {{reads a value whose storage add has overwritten}}
  %b = qkern.dispatch "add"(%g, %a) <{aliases = array<i64: 1>, config = {}, grids = array<i64: 1>, workspace = 0 : i64}> : (tensor<f32>, tensor<f32>) -> tensor<f32>
  return %b : tensor<f32>
}

// -----

// expected-error @below {{result 0 must overwrite argument 0 but is computed elsewhere}}
func.func @finish(%g: tensor<f32> {qwen35.role = "grad", qwen35.name = "w"}) -> (tensor<f32> {qwen35.alias = 0 : i64}) {
  %a = qkern.dispatch "scale"(%g) <{aliases = array<i64: -1>, config = {}, grids = array<i64: 1>, workspace = 0 : i64}> : (tensor<f32>) -> tensor<f32>
  return %a : tensor<f32>
}

// -----

func.func @finish(%g: tensor<f32> {qwen35.role = "grad", qwen35.name = "w"}) -> (tensor<f32> {qwen35.alias = 0 : i64}) {
  // expected-error @below {{is not a kernel: run --qwen35-pipeline-kernels first}}
  %a = qwen35.scale %g <{factor = 2.0}> : tensor<f32>
  return %g : tensor<f32>
}

// -----

// A working copy is state, known to its parameter. The optimizer writes it in
// its place although the kernel does not read it, once nothing reads the old
// copy any more; so does the cast of @refresh.
// CHECK:      qplan.buffer @"weight:w" in @state at 0 : tensor<32xf32> as "weights"
// CHECK:      qplan.param "w" weight @"weight:w" m @"m:w" v @"v:w" grad @"grad:w" work @"work:w" {
// CHECK:      qplan.buffer @"work:w" in @state at 256 : tensor<32xbf16> as "weights"
// CHECK:      qplan.program @finish {
// CHECK-NEXT:   qplan.launch @scale_bf16_32 stage 0 grid 1 buffers [@"work:w", @"output:grad_norm"]
// CHECK-NEXT:   qplan.launch @adamw_f32_32 stage 0 grid 1 buffers [@"weight:w", @"weight:w", @"work:w"] offsets [0, 0, 0] bytes [128, 128, 64] writes [true, true, true]
// CHECK:      qplan.program @refresh {
// CHECK-NEXT:   qplan.launch @cast_bf16_32 stage 0 grid 1 buffers [@"weight:w", @"work:w"] offsets [0, 0] bytes [128, 64] writes [false, true]
func.func @finish(%w: tensor<32xf32> {qwen35.role = "weight", qwen35.name = "w", qwen35.decay = true, qwen35.init = "ones", qwen35.file_dtype = "f32"},
    %w16: tensor<32xbf16> {qwen35.role = "work", qwen35.name = "w"}, %m: tensor<32xf32> {qwen35.role = "m", qwen35.name = "w"},
    %v: tensor<32xf32> {qwen35.role = "v", qwen35.name = "w"}, %g: tensor<32xf32> {qwen35.role = "grad", qwen35.name = "w"})
    -> (tensor<32xf32> {qwen35.alias = 0 : i64}, tensor<32xbf16> {qwen35.alias = 1 : i64}, tensor<32xbf16> {qwen35.name = "grad_norm"}) {
  %n = qkern.dispatch "scale"(%w16) <{aliases = array<i64: -1>, config = {}, grids = array<i64: 1>, workspace = 0 : i64}> : (tensor<32xbf16>) -> tensor<32xbf16>
  %p:2 = qkern.dispatch "adamw"(%w) <{aliases = array<i64: 0, -1>, config = {}, grids = array<i64: 1>, workspace = 0 : i64}> : (tensor<32xf32>) -> (tensor<32xf32>, tensor<32xbf16>)
  return %p#0, %p#1, %n : tensor<32xf32>, tensor<32xbf16>, tensor<32xbf16>
}
func.func @refresh(%w: tensor<32xf32> {qwen35.role = "weight", qwen35.name = "w"}, %w16: tensor<32xbf16> {qwen35.role = "work", qwen35.name = "w"})
    -> (tensor<32xbf16> {qwen35.alias = 1 : i64}) {
  %c = qkern.dispatch "cast"(%w) <{aliases = array<i64: -1>, config = {}, grids = array<i64: 1>, workspace = 0 : i64}> : (tensor<32xf32>) -> tensor<32xbf16>
  return %c : tensor<32xbf16>
}

// -----

// Read once more after its successor is there: they cannot share a place.
// expected-error @below {{result 0 must overwrite argument 1 but is computed elsewhere}}
func.func @finish(%w: tensor<4xf32> {qwen35.role = "weight", qwen35.name = "w"}, %w16: tensor<4xbf16> {qwen35.role = "work", qwen35.name = "w"})
    -> (tensor<4xbf16> {qwen35.alias = 1 : i64}, tensor<4xbf16> {qwen35.name = "grad_norm"}) {
  %c = qkern.dispatch "cast"(%w) <{aliases = array<i64: -1>, config = {}, grids = array<i64: 1>, workspace = 0 : i64}> : (tensor<4xf32>) -> tensor<4xbf16>
  %view = qkern.view %w16 <{offset = 0, strides = array<i64: 1>}> : tensor<4xbf16> to tensor<4xbf16>
  %n = qkern.dispatch "scale"(%view) <{aliases = array<i64: -1>, config = {}, grids = array<i64: 1>, workspace = 0 : i64}> : (tensor<4xbf16>) -> tensor<4xbf16>
  return %c, %n : tensor<4xbf16>, tensor<4xbf16>
}

// -----

// Of a value that is made and then added to in place, the first is already made
// where the last has to be.
// CHECK-NOT:  as "activations"
// CHECK:      qplan.program @finish {
// CHECK-NEXT:   qplan.launch @lm_loss_grad_f32_4 stage 0 grid 1 buffers [@"input:x", @"grad:w"]
// CHECK-NEXT:   qplan.launch @embed_bwd_f32_4 stage 0 grid 1 buffers [@"input:x", @"grad:w", @"grad:w"]
func.func @finish(%g: tensor<4xf32> {qwen35.role = "grad", qwen35.name = "w"}, %x: tensor<4xf32> {qwen35.role = "input", qwen35.name = "x"})
    -> (tensor<4xf32> {qwen35.alias = 0 : i64}) {
  %h = qkern.dispatch "lm_loss_grad"(%x) <{aliases = array<i64: -1>, config = {}, grids = array<i64: 1>, workspace = 0 : i64}> : (tensor<4xf32>) -> tensor<4xf32>
  %e = qkern.dispatch "embed_bwd"(%x, %h) <{aliases = array<i64: 1>, config = {accumulate = true}, grids = array<i64: 1>, workspace = 0 : i64}> : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %e : tensor<4xf32>
}

// -----

// Parts of a join are views of its buffer, which lives from the first of them on.
// CHECK:      qplan.buffer @finish.0 in @act at 0 : tensor<2x8xf32> as "activations"
// CHECK:      qplan.program @finish {
// CHECK-NEXT:   qplan.launch @scale_f32_2x4 stage 0 grid 1 buffers [@"input:x", @finish.0] offsets [0, 0] bytes [32, 48] writes [false, true]
// CHECK-NEXT:   qplan.launch @scale_f32_2x4 stage 0 grid 1 buffers [@"input:x", @finish.0] offsets [0, 16] bytes [32, 48] writes [false, true]
// CHECK-NEXT:   qplan.launch @sum_f32 stage 0 grid 1 buffers [@finish.0, @"output:loss"] offsets [0, 0] bytes [64, 4]
// CHECK:      qplan.kernel @scale_f32_2x4 "scale" {} stages 1 (memref<2x4xf32>) to (memref<2x4xf32, strided<[8, 1]>>)
func.func @finish(%x: tensor<2x4xf32> {qwen35.role = "input", qwen35.name = "x"}) -> (tensor<f32> {qwen35.name = "loss"}) {
  %a = qkern.dispatch "scale"(%x) <{aliases = array<i64: -1>, config = {}, grids = array<i64: 1>, workspace = 0 : i64}> : (tensor<2x4xf32>) -> tensor<2x4xf32>
  %b = qkern.dispatch "scale"(%x) <{aliases = array<i64: -1>, config = {}, grids = array<i64: 1>, workspace = 0 : i64}> : (tensor<2x4xf32>) -> tensor<2x4xf32>
  %j = qkern.join %a, %b <{offsets = array<i64: 0, 4>, strides = [array<i64: 8, 1>, array<i64: 8, 1>]}> : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x8xf32>
  %s = qkern.dispatch "sum"(%j) <{aliases = array<i64: -1>, config = {}, grids = array<i64: 1>, workspace = 0 : i64}> : (tensor<2x8xf32>) -> tensor<f32>
  return %s : tensor<f32>
}
