// RUN: qwen35-opt %s --qwen35-verify-s6 --split-input-file --verify-diagnostics

// expected-error @below {{lies in arena @act, which is not there}}
qplan.buffer @a in @act at 0 : tensor<4xf32> as "activations"

// -----

qplan.arena @act bytes 1024 align 256
// expected-error @below {{starts at 100, expected a multiple of 256}}
qplan.buffer @a in @act at 100 : tensor<4xf32> as "activations"

// -----

qplan.arena @act bytes 1024 align 256
// expected-error @below {{ends at 1792 of an arena of 1024 bytes}}
qplan.buffer @a in @act at 768 : tensor<256xf32> as "activations"

// -----

qplan.arena @act bytes 1024 align 256
qplan.buffer @a in @act at 0 : tensor<4xf32> as "activations"
qplan.kernel @k "zeros" {} stages 1 () to (memref<4xf32>)
qplan.program @finish {
  // expected-error @below {{argument 0 touches bytes 8 to 24 of @a, which has 16}}
  qplan.launch @k stage 0 grid 1 buffers [@a] offsets [8] bytes [16] writes [true] tag ""
}

// -----

qplan.arena @act bytes 1024 align 256
qplan.buffer @a in @act at 0 : tensor<4xf32> as "activations"
qplan.kernel @k "zeros" {} stages 1 () to (memref<4xf32>)
qplan.program @finish {
  // expected-error @below {{passes 2 arguments to a kernel of 1}}
  qplan.launch @k stage 0 grid 1 buffers [@a, @a] offsets [0, 0] bytes [16, 16] writes [true, true] tag ""
}

// -----

qplan.program @finish {
  // expected-error @below {{starts @k, which is not there}}
  qplan.launch @k stage 0 grid 1 buffers [] offsets [] bytes [] writes [] tag ""
}
