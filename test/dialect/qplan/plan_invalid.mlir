// RUN: qwen35-opt %s --split-input-file --verify-diagnostics

// expected-error @below {{align must be a power of two, got 100}}
qplan.arena @act bytes 4096 align 100

// -----

// expected-error @below {{bytes must not be negative, got -1}}
qplan.arena @act bytes -1 align 256

// -----

qplan.program @finish {
  // expected-error @below {{has 1 buffers, 2 offsets, 1 byte counts and 1 write flags, expected as many of each}}
  qplan.launch @k stage 0 grid 1 buffers [@a] offsets [0, 0] bytes [4] writes [true] tag ""
}

// -----

qplan.program @finish {
  // expected-error @below {{grid must be positive, got 0}}
  qplan.launch @k stage 0 grid 0 buffers [@a] offsets [0] bytes [4] writes [true] tag ""
}

// -----

qplan.program @finish {
  // expected-error @below {{has 1 buffers, 2 offsets, 1 and 1 outer sizes for 1 counts, expected two buffers and offsets for each of one or more}}
  qplan.collective "shift" 7 over ["cp"] buffers [@a] <{counts = array<i64: 8>, dtype = f32, offset = -1, offsets = array<i64: 0, 32>, ranks = 2,
      receiveOuter = array<i64: 1>, receiveStage = -1, sendOuter = array<i64: 1>, sendStage = -1}> tag ""
}

// -----

qplan.program @finish {
  // expected-error @below {{has no buffer for what goes through a stage}}
  qplan.collective "shift" 7 over ["cp"] buffers [@a, @a] <{counts = array<i64: 8>, dtype = f32, offset = -1, offsets = array<i64: 0, 32>, ranks = 2,
      receiveOuter = array<i64: 1>, receiveStage = -1, sendOuter = array<i64: 1>, sendStage = 0}> tag ""
}
