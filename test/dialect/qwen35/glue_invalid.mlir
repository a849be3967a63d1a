// RUN: qwen35-opt %s --split-input-file --verify-diagnostics

func.func @linear_c1(%x: tensor<4x8xf32>, %w: tensor<3x4xf32>) {
  // expected-error @below {{x has 8 columns but weight has 4}}
  %y = qwen35.linear %x, %w : tensor<4x8xf32>, tensor<3x4xf32>
  return
}

// -----

func.func @matmul_c1(%a: tensor<4x8xf32>, %b: tensor<8x2xf32>) {
  // expected-error @below {{inner dimensions are 4 and 8}}
  %c = qwen35.matmul %a, %b <{transpose_a = true}> : tensor<4x8xf32>, tensor<8x2xf32>
  return
}

// -----

func.func @swiglu_c1(%gate: tensor<4x8xf32>, %up: tensor<4x4xf32>) {
  // expected-error @below {{up is 'tensor<4x4xf32>' but gate is 'tensor<4x8xf32>'}}
  %y = qwen35.swiglu %gate, %up : tensor<4x8xf32>, tensor<4x4xf32>
  return
}

// -----

func.func @swiglu_bwd_dy(%dy: tensor<4x4xf32>, %gate: tensor<4x8xf32>) {
  // expected-error @below {{dy is 'tensor<4x4xf32>' but gate is 'tensor<4x8xf32>'}}
  %dg, %du = qwen35.swiglu_bwd %dy, %gate, %gate : tensor<4x4xf32>, tensor<4x8xf32>, tensor<4x8xf32>
  return
}

// -----

func.func @add_c1(%a: tensor<4x8xf32>, %b: tensor<8x4xf32>) {
  // expected-error @below {{b is 'tensor<8x4xf32>' but a is 'tensor<4x8xf32>'}}
  %c = qwen35.add %a, %b : tensor<4x8xf32>, tensor<8x4xf32>
  return
}

// -----

func.func @reshape_c1(%x: tensor<4x8xf32>) {
  // expected-error @below {{x has 32 elements but the result has 24}}
  %y = qwen35.reshape %x : tensor<4x8xf32> to tensor<24xf32>
  return
}

// -----

func.func @reshape_element_type(%x: tensor<4x8xf32>) {
  // expected-error @below {{changes the element type from 'f32' to 'bf16'}}
  %y = qwen35.reshape %x : tensor<4x8xf32> to tensor<32xbf16>
  return
}

// -----

func.func @slice_c1(%x: tensor<4x8xf32>) {
  // expected-error @below {{axis must be in [0, 2), got 2}}
  %y = qwen35.slice %x <{axis = 2, start = 0, size = 1}> : tensor<4x8xf32>
  return
}

// -----

func.func @slice_c2(%x: tensor<4x8xf32>) {
  // expected-error @below {{takes [6, 9) of a dimension of 8}}
  %y = qwen35.slice %x <{axis = 1, start = 6, size = 3}> : tensor<4x8xf32>
  return
}

// -----

func.func @slice_c2_empty(%x: tensor<4x8xf32>) {
  // expected-error @below {{takes [6, 6) of a dimension of 8}}
  %y = qwen35.slice %x <{axis = 1, start = 6, size = 0}> : tensor<4x8xf32>
  return
}

// -----

func.func @concat_c1(%a: tensor<4x8xf32>, %b: tensor<3x8xf32>) {
  // expected-error @below {{joins 'tensor<4x8xf32>' and 'tensor<3x8xf32>' along dimension 1}}
  %y = qwen35.concat %a, %b <{axis = 1}> : tensor<4x8xf32>, tensor<3x8xf32>
  return
}

// -----

func.func @concat_none() {
  // expected-error @below {{needs at least one operand}}
  // expected-error @below {{failed to infer returned types}}
  %y = "qwen35.concat"() <{axis = 1}> : () -> tensor<4x8xf32>
  return
}

// -----

// expected-error @below {{a document table needs at least one token, got 0}}
func.func @seq_tokens(%seq: !qwen35.seq<0, 3>) {
  return
}

// -----

// expected-error @below {{a document table needs at least one document, got 0}}
func.func @seq_documents(%seq: !qwen35.seq<64, 0>) {
  return
}

// -----

func.func @cast_c1(%x: tensor<4x8xf32>) {
  // expected-error @below {{requires the same shape for all operands and results}}
  %y = qwen35.cast %x : tensor<4x8xf32> to tensor<32xbf16>
  return
}

// -----

func.func @linear_c2(%x: tensor<4x8xbf16>, %w: tensor<2x8xf32>) {
  // expected-error @below {{weight is 'tensor<2x8xf32>', expected elements of 'bf16' where x is 'tensor<4x8xbf16>'}}
  %y = qwen35.linear %x, %w : tensor<4x8xbf16>, tensor<2x8xf32>
  return
}

// -----

func.func @linear_c3(%x: tensor<4x8xf32>, %w: tensor<2x8xf32>) {
  // expected-error @below {{out_type is 'bf16' for a product of operands of 'f32', expected 'f32'}}
  %y = qwen35.linear %x, %w <{out_type = bf16}> : tensor<4x8xf32>, tensor<2x8xf32>
  return
}

// -----

func.func @matmul_c2(%a: tensor<4x8xf32>, %b: tensor<8x2xbf16>) {
  // expected-error @below {{b is 'tensor<8x2xbf16>', expected elements of 'f32' where a is 'tensor<4x8xf32>'}}
  %y = qwen35.matmul %a, %b : tensor<4x8xf32>, tensor<8x2xbf16>
  return
}

// -----

func.func @mul_scalar_c1(%x: tensor<4x8xbf16>, %s: tensor<bf16>) {
  // expected-error @below {{s is 'tensor<bf16>', expected elements of 'f32' where x is 'tensor<4x8xbf16>'}}
  %y = qwen35.mul_scalar %x, %s : tensor<4x8xbf16>, tensor<bf16>
  return
}
