// RUN: qwen35-opt %s --qwen35-verify-s6 --split-input-file --verify-diagnostics

module attributes {qdist.mesh = #qdist.mesh<tp = 2>} {
  qplan.arena @act bytes 1024 align 256
  qplan.buffer @a in @act at 0 : tensor<4xf32> as "activations"
  qplan.buffer @b in @act at 256 : tensor<4xf32> as "activations"
  qplan.program @finish {
    // expected-error @below {{touches bytes 0 to 32 of @b, which has 16}}
    qplan.collective "all_gather" 0 over ["tp"] buffers [@a, @b] <{counts = array<i64: 4>, dtype = f32, offsets = array<i64: 0, 0>, ranks = 2 : i64, receiveOuter = array<i64: 1>, receiveStage = -1 : i64, sendOuter = array<i64: 1>, sendStage = -1 : i64}> tag ""
  }
}

// -----

module attributes {qdist.mesh = #qdist.mesh<tp = 4>} {
  qplan.arena @act bytes 1024 align 256
  qplan.buffer @a in @act at 0 : tensor<4xf32> as "activations"
  qplan.program @finish {
    // expected-error @below {{runs over 2 ranks, but its axes have 4}}
    qplan.collective "all_reduce" 0 over ["tp"] buffers [@a, @a] <{counts = array<i64: 4>, dtype = f32, offsets = array<i64: 0, 0>, ranks = 2 : i64, receiveOuter = array<i64: 1>, receiveStage = -1 : i64, sendOuter = array<i64: 1>, sendStage = -1 : i64}> tag ""
  }
}

// -----

module attributes {qdist.mesh = #qdist.mesh<tp = 2>} {
  qplan.arena @act bytes 1024 align 256
  qplan.buffer @a in @act at 0 : tensor<4xf32> as "activations"
  qplan.program @finish {
    // expected-error @below {{is number 3, expected 0: collectives have one order}}
    qplan.collective "all_reduce" 3 over ["tp"] buffers [@a, @a] <{counts = array<i64: 4>, dtype = f32, offsets = array<i64: 0, 0>, ranks = 2 : i64, receiveOuter = array<i64: 1>, receiveStage = -1 : i64, sendOuter = array<i64: 1>, sendStage = -1 : i64}> tag ""
  }
}
