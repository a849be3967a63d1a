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

// -----

// Reading what is sent is fine, and everything is once it has ended.
module attributes {qdist.mesh = #qdist.mesh<tp = 2>} {
  qplan.arena @act bytes 1024 align 256
  qplan.buffer @a in @act at 0 : tensor<4xf32> as "activations"
  qplan.buffer @b in @act at 256 : tensor<8xf32> as "activations"
  qplan.buffer @c in @act at 256 : tensor<4xf32> as "activations"
  qplan.program @finish {
    qplan.collective "all_gather" 0 over ["tp"] buffers [@a, @b] <{async, counts = array<i64: 4>, dtype = f32, offsets = array<i64: 0, 0>, ranks = 2 : i64, receiveOuter = array<i64: 1>, receiveStage = -1 : i64, sendOuter = array<i64: 1>, sendStage = -1 : i64}> tag ""
    qplan.wait 0
    qplan.memset @c value 0
    qplan.memset @a value 0
  }
}


// -----

// Another buffer in the bytes that are received.
module attributes {qdist.mesh = #qdist.mesh<tp = 2>} {
  qplan.arena @act bytes 1024 align 256
  qplan.buffer @a in @act at 0 : tensor<4xf32> as "activations"
  qplan.buffer @b in @act at 256 : tensor<8xf32> as "activations"
  qplan.buffer @c in @act at 256 : tensor<4xf32> as "activations"
  qplan.program @finish {
    // expected-note @below {{it was started here}}
    qplan.collective "all_gather" 0 over ["tp"] buffers [@a, @b] <{async, counts = array<i64: 4>, dtype = f32, offsets = array<i64: 0, 0>, ranks = 2 : i64, receiveOuter = array<i64: 1>, receiveStage = -1 : i64, sendOuter = array<i64: 1>, sendStage = -1 : i64}> tag ""
    // expected-error @below {{writes bytes of @c that number 0 in flight writes as @b}}
    qplan.memset @c value 0
    qplan.wait 0
  }
}


// -----

// What is sent must not change.
module attributes {qdist.mesh = #qdist.mesh<tp = 2>} {
  qplan.arena @act bytes 1024 align 256
  qplan.buffer @a in @act at 0 : tensor<4xf32> as "activations"
  qplan.buffer @b in @act at 256 : tensor<8xf32> as "activations"
  qplan.buffer @c in @act at 256 : tensor<4xf32> as "activations"
  qplan.program @finish {
    // expected-note @below {{it was started here}}
    qplan.collective "all_gather" 0 over ["tp"] buffers [@a, @b] <{async, counts = array<i64: 4>, dtype = f32, offsets = array<i64: 0, 0>, ranks = 2 : i64, receiveOuter = array<i64: 1>, receiveStage = -1 : i64, sendOuter = array<i64: 1>, sendStage = -1 : i64}> tag ""
    // expected-error @below {{writes bytes of @a that number 0 in flight reads as @a}}
    qplan.memset @a value 0
    qplan.wait 0
  }
}


// -----

// Nor may what is received be read, by a collective either.
module attributes {qdist.mesh = #qdist.mesh<tp = 2>} {
  qplan.arena @act bytes 1024 align 256
  qplan.buffer @a in @act at 0 : tensor<4xf32> as "activations"
  qplan.buffer @b in @act at 256 : tensor<8xf32> as "activations"
  qplan.buffer @c in @act at 256 : tensor<4xf32> as "activations"
  qplan.program @finish {
    // expected-note @below {{it was started here}}
    qplan.collective "all_gather" 0 over ["tp"] buffers [@a, @b] <{async, counts = array<i64: 4>, dtype = f32, offsets = array<i64: 0, 0>, ranks = 2 : i64, receiveOuter = array<i64: 1>, receiveStage = -1 : i64, sendOuter = array<i64: 1>, sendStage = -1 : i64}> tag ""
    // expected-error @below {{reads bytes of @c that number 0 in flight writes as @b}}
    qplan.collective "all_reduce" 1 over ["tp"] buffers [@c, @c] <{counts = array<i64: 4>, dtype = f32, offsets = array<i64: 0, 0>, ranks = 2 : i64, receiveOuter = array<i64: 1>, receiveStage = -1 : i64, sendOuter = array<i64: 1>, sendStage = -1 : i64}> tag ""
    qplan.wait 0
  }
}


// -----

// A wait for nothing.
module attributes {qdist.mesh = #qdist.mesh<tp = 2>} {
  qplan.arena @act bytes 1024 align 256
  qplan.buffer @a in @act at 0 : tensor<4xf32> as "activations"
  qplan.buffer @b in @act at 256 : tensor<8xf32> as "activations"
  qplan.buffer @c in @act at 256 : tensor<4xf32> as "activations"
  qplan.program @finish {
    qplan.collective "all_gather" 0 over ["tp"] buffers [@a, @b] <{counts = array<i64: 4>, dtype = f32, offsets = array<i64: 0, 0>, ranks = 2 : i64, receiveOuter = array<i64: 1>, receiveStage = -1 : i64, sendOuter = array<i64: 1>, sendStage = -1 : i64}> tag ""
    // expected-error @below {{waits for number 0, which is not in flight}}
    qplan.wait 0
  }
}


// -----

// A start without an end.
module attributes {qdist.mesh = #qdist.mesh<tp = 2>} {
  qplan.arena @act bytes 1024 align 256
  qplan.buffer @a in @act at 0 : tensor<4xf32> as "activations"
  qplan.buffer @b in @act at 256 : tensor<8xf32> as "activations"
  qplan.buffer @c in @act at 256 : tensor<4xf32> as "activations"
  qplan.program @finish {
    // expected-error @below {{is started and never awaited}}
    qplan.collective "all_gather" 0 over ["tp"] buffers [@a, @b] <{async, counts = array<i64: 4>, dtype = f32, offsets = array<i64: 0, 0>, ranks = 2 : i64, receiveOuter = array<i64: 1>, receiveStage = -1 : i64, sendOuter = array<i64: 1>, sendStage = -1 : i64}> tag ""
  }
}
