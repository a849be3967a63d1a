// RUN: qwen35-opt %s --split-input-file --verify-diagnostics

func.func @group_results(%x: tensor<4xf32>) {
  // expected-error @below {{yields 'tensor<4xf32>' but its results are 'tensor<8xf32>'}}
  %y = qkern.group {
    qkern.yield %x : tensor<4xf32>
  } : tensor<8xf32>
  return
}

// -----

func.func @view_c1(%x: tensor<4x8xf32>) {
  // expected-error @below {{has 1 strides for 2 dimensions}}
  %y = qkern.view %x <{offset = 0, strides = array<i64: 1>}> : tensor<4x8xf32> to tensor<4x4xf32>
  return
}

// -----

func.func @view_element_type(%x: tensor<4x8xf32>) {
  // expected-error @below {{changes the element type of 'tensor<4x8xf32>' to 'tensor<4xbf16>'}}
  %y = qkern.view %x <{offset = 0, strides = array<i64: 1>}> : tensor<4x8xf32> to tensor<4xbf16>
  return
}

// -----

func.func @dispatch_c1_count(%x: tensor<4xf32>) {
  // expected-error @below {{has 0 aliases for 1 results}}
  %y = qkern.dispatch "k"(%x) <{aliases = array<i64>, config = {}, grids = array<i64: 1>, workspace = 0 : i64}>
      : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @dispatch_c1_operand(%x: tensor<4xf32>) {
  // expected-error @below {{alias must be -1 or one of 1 operands, got 1}}
  %y = qkern.dispatch "k"(%x) <{aliases = array<i64: 1>, config = {}, grids = array<i64: 1>, workspace = 0 : i64}>
      : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @dispatch_c1_type(%x: tensor<4xf32>) {
  // expected-error @below {{a result of type 'tensor<8xf32>' cannot overwrite an operand of type 'tensor<4xf32>'}}
  %y = qkern.dispatch "k"(%x) <{aliases = array<i64: 0>, config = {}, grids = array<i64: 1>, workspace = 0 : i64}>
      : (tensor<4xf32>) -> tensor<8xf32>
  return
}

// -----

func.func @dispatch_c2(%x: tensor<4xf32>) {
  // expected-error @below {{grid must be positive, got 0}}
  %y = qkern.dispatch "k"(%x) <{aliases = array<i64: -1>, config = {}, grids = array<i64: 2, 0>, workspace = 0 : i64}>
      : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @dispatch_c3(%x: tensor<4xf32>) {
  // expected-error @below {{workspace must not be negative, got -4}}
  %y = qkern.dispatch "k"(%x) <{aliases = array<i64: -1>, config = {}, grids = array<i64: 1>, workspace = -4 : i64}>
      : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @join_c1_strides(%x: tensor<2x4xf32>) {
  %a = qkern.dispatch "k"(%x) <{aliases = array<i64: -1>, config = {}, grids = array<i64: 1>, workspace = 0 : i64}>
      : (tensor<2x4xf32>) -> tensor<2x4xf32>
  // expected-error @below {{part 0 has 1 strides for 2 dimensions}}
  %j = qkern.join %a <{offsets = array<i64: 0>, strides = [array<i64: 1>]}> : (tensor<2x4xf32>) -> tensor<2x8xf32>
  return
}

// -----

func.func @join_c1_counts(%x: tensor<2x4xf32>) {
  %a = qkern.dispatch "k"(%x) <{aliases = array<i64: -1>, config = {}, grids = array<i64: 1>, workspace = 0 : i64}>
      : (tensor<2x4xf32>) -> tensor<2x4xf32>
  // expected-error @below {{has 1 parts, 2 offsets and 1 arrays of strides}}
  %j = qkern.join %a <{offsets = array<i64: 0, 4>, strides = [array<i64: 8, 1>]}> : (tensor<2x4xf32>) -> tensor<2x8xf32>
  return
}

// -----

func.func @join_c2(%x: tensor<2x4xf32>) {
  %a = qkern.dispatch "k"(%x) <{aliases = array<i64: -1>, config = {}, grids = array<i64: 1>, workspace = 0 : i64}>
      : (tensor<2x4xf32>) -> tensor<2x4xf32>
  // expected-error @below {{part 0 of type 'tensor<2x4xf32>' does not lie in 'tensor<2x8xf32>'}}
  %j = qkern.join %a <{offsets = array<i64: 5>, strides = [array<i64: 8, 1>]}> : (tensor<2x4xf32>) -> tensor<2x8xf32>
  return
}

// -----

func.func @join_c3(%x: tensor<2x4xf32>) {
  // expected-error @below {{part 0 is not a fresh result of a kernel for the join alone}}
  %j = qkern.join %x <{offsets = array<i64: 0>, strides = [array<i64: 8, 1>]}> : (tensor<2x4xf32>) -> tensor<2x8xf32>
  return
}

// -----

func.func @collective_c1_kind(%x: tensor<2x4xf32>) {
  // expected-error @below {{kind is "broadcast", expected a collective of qdist}}
  %y = qkern.collective "broadcast"(%x) over ["tp"]
      <{aliases = array<i64: -1>, counts = array<i64: 8>, ranks = 2, receiveOuter = array<i64: 1>, sendOuter = array<i64: 1>, workspace = 0}>
      : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return
}

// -----

func.func @collective_c1_ranks(%x: tensor<2x4xf32>) {
  // expected-error @below {{runs over 1 ranks, expected 2 or more}}
  %y = qkern.collective "all_reduce"(%x) over ["tp"]
      <{aliases = array<i64: -1>, counts = array<i64: 8>, ranks = 1, receiveOuter = array<i64: 1>, sendOuter = array<i64: 1>, workspace = 0}>
      : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return
}

// -----

func.func @collective_c2_counts(%x: tensor<2x4xf32>) {
  // expected-error @below {{has 1 inputs and 2 in counts}}
  %y = qkern.collective "all_reduce"(%x) over ["tp"]
      <{aliases = array<i64: -1>, counts = array<i64: 8, 8>, ranks = 2, receiveOuter = array<i64: 1>, sendOuter = array<i64: 1>, workspace = 0}>
      : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return
}

// -----

func.func @collective_c2_elements(%x: tensor<2x4xf32>) {
  // expected-error @below {{part 0 goes from 'tensor<2x4xf32>' to 'tensor<4x4xbf16>', expected elements of 'f32'}}
  %y = qkern.collective "all_gather"(%x) over ["tp"]
      <{aliases = array<i64: -1>, counts = array<i64: 8>, ranks = 2, receiveOuter = array<i64: 1>, sendOuter = array<i64: 1>, workspace = 0}>
      : (tensor<2x4xf32>) -> tensor<4x4xbf16>
  return
}

// -----

func.func @collective_c3_pieces(%x: tensor<2x4xf32>) {
  // expected-error @below {{part 0 goes from 'tensor<2x4xf32>' to 'tensor<2x4xf32>' with 8 elements per piece over 2 ranks}}
  %y = qkern.collective "all_gather"(%x) over ["tp"]
      <{aliases = array<i64: -1>, counts = array<i64: 8>, ranks = 2, receiveOuter = array<i64: 1>, sendOuter = array<i64: 1>, workspace = 0}>
      : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return
}

// -----

func.func @collective_c3_rows(%x: tensor<2x4xf32>) {
  // expected-error @below {{part 0 has pieces of 8 elements in 3 and 1 rows, which all_gather has not}}
  %y = qkern.collective "all_gather"(%x) over ["tp"]
      <{aliases = array<i64: -1>, counts = array<i64: 8>, ranks = 2, receiveOuter = array<i64: 1>, sendOuter = array<i64: 3>, workspace = 0}>
      : (tensor<2x4xf32>) -> tensor<4x4xf32>
  return
}

// -----

func.func @collective_c4_alias(%x: tensor<2x4xf32>) {
  // expected-error @below {{result 0 overwrites operand 0, expected -1, or its own in an all_reduce}}
  %y = qkern.collective "shift"(%x) over ["tp"]
      <{aliases = array<i64: 0>, counts = array<i64: 8>, ranks = 2, receiveOuter = array<i64: 1>, sendOuter = array<i64: 1>, workspace = 0}>
      : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return
}

// -----

func.func @collective_stage(%x: tensor<2x4xf32>) {
  // expected-error @below {{has a workspace of 0 bytes, expected 64}}
  %y = qkern.collective "all_gather"(%x) over ["tp"]
      <{aliases = array<i64: -1>, counts = array<i64: 8>, ranks = 2, receiveOuter = array<i64: 2>, sendOuter = array<i64: 1>, workspace = 0}>
      : (tensor<2x4xf32>) -> tensor<2x8xf32>
  return
}
