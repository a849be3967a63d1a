// RUN: qwen35-opt %s --split-input-file --verify-diagnostics

func.func @no_mesh(%x: tensor<4xf32>) {
  // expected-error @below {{is in a module without 'qdist.mesh', which says what its axes are}}
  %0 = qdist.all_reduce %x over ["tp"] : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

module attributes {qdist.mesh = #qdist.mesh<cp = 4, ep = 2>} {
  func.func @c1_unknown(%x: tensor<4xf32>) {
    // expected-error @below {{runs over "dp", expected axes of the mesh: pp, dpr, dps, cp, tp, cp.0, cp.1}}
    %0 = qdist.all_reduce %x over ["dp"] : (tensor<4xf32>) -> tensor<4xf32>
    return
  }
}

// -----

module attributes {qdist.mesh = #qdist.mesh<cp = 4, ep = 2>} {
  func.func @c1_twice(%x: tensor<4xf32>) {
    // expected-error @below {{runs over "cp.1" twice}}
    %0 = qdist.all_reduce %x over ["cp", "cp.1"] : (tensor<4xf32>) -> tensor<4xf32>
    return
  }
}

// -----

module attributes {qdist.mesh = #qdist.mesh<tp = 2>} {
  func.func @c1_none(%x: tensor<4xf32>) {
    // expected-error @below {{names no axis}}
    %0 = qdist.rank_var over [] : tensor<i32>
    return
  }
}

// -----

module attributes {qdist.mesh = #qdist.mesh<tp = 2>} {
  func.func @c2_outputs(%x: tensor<4xf32>) {
    // expected-error @below {{has 2 inputs and 1 outputs}}
    %0 = qdist.all_reduce %x, %x over ["tp"] : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    return
  }
}

// -----

module attributes {qdist.mesh = #qdist.mesh<tp = 2>} {
  func.func @gather_c3(%x: tensor<4xf32>) {
    // expected-error @below {{dim is 1 for an input of 1 dimensions}}
    %0 = qdist.all_gather %x over ["tp"] <{dim = 1}> : (tensor<4xf32>) -> tensor<8xf32>
    return
  }
}

// -----

module attributes {qdist.mesh = #qdist.mesh<tp = 2>} {
  func.func @gather_c4(%x: tensor<4xf32>) {
    // expected-error @below {{makes 'tensor<4xf32>' of 'tensor<4xf32>' over 2 ranks, expected 'tensor<8xf32>'}}
    %0 = qdist.all_gather %x over ["tp"] <{dim = 0}> : (tensor<4xf32>) -> tensor<4xf32>
    return
  }
}

// -----

module attributes {qdist.mesh = #qdist.mesh<tp = 2>} {
  func.func @reduce_c4(%x: tensor<4xf32>) {
    // expected-error @below {{kind is "min", expected "sum" or "max"}}
    %0 = qdist.all_reduce %x over ["tp"] <{kind = "min"}> : (tensor<4xf32>) -> tensor<4xf32>
    return
  }
}

// -----

module attributes {qdist.mesh = #qdist.mesh<dps = 3>} {
  func.func @scatter_c3(%x: tensor<4xf32>) {
    // expected-error @below {{dimension 0 of size 4 does not split over 3 ranks}}
    %0 = qdist.reduce_scatter %x over ["dps"] <{dim = 0}> : (tensor<4xf32>) -> tensor<2xf32>
    return
  }
}

// -----

module attributes {qdist.mesh = #qdist.mesh<cp = 2>} {
  func.func @all_to_all_c3(%x: tensor<4x4xf32>) {
    // expected-error @below {{splits and joins dimension 1, expected two}}
    %0 = qdist.all_to_all %x over ["cp"] <{split_dim = 1, concat_dim = 1}> : (tensor<4x4xf32>) -> tensor<4x4xf32>
    return
  }
}

// -----

module attributes {qdist.mesh = #qdist.mesh<cp = 2>} {
  func.func @shift_c4(%x: tensor<4xf32>) {
    // expected-error @below {{offset is 2 in a group of 2, expected a neighbour}}
    %0 = qdist.shift %x over ["cp"] <{offset = 2}> : (tensor<4xf32>) -> tensor<4xf32>
    return
  }
}

// -----

module attributes {qdist.mesh = #qdist.mesh<cp = 2>} {
  func.func @local_ids_c2(%x: tensor<4xi32>) {
    // expected-error @below {{size is 0, expected more than 0}}
    %0 = qdist.local_ids %x over ["cp"] <{size = 0}> : tensor<4xi32>
    return
  }
}

// -----

module attributes {qdist.mesh = #qdist.mesh<tp = 2>} {
  func.func @constraint_c1(%x: tensor<4x6xf32>) {
    // expected-error @below {{sharding has sections of 4 in all for dimension 1 of size 6}}
    %0 = qdist.shard_constraint %x <{sharding = #qdist.sharding<[{}, {tp : 2, 2}]>}> : tensor<4x6xf32>
    return
  }
}

// -----

module attributes {qdist.mesh = #qdist.mesh<tp = 2>} {
  func.func @constraint_c1_divides(%x: tensor<4x5xf32>) {
    // expected-error @below {{sharding dimension 1 of size 5 does not split over the 2 ranks of {tp}}}
    %0 = qdist.shard_constraint %x <{sharding = #qdist.sharding<[{}, {tp}]>}> : tensor<4x5xf32>
    return
  }
}

// -----

module attributes {qdist.mesh = #qdist.mesh<dps = 2, tp = 2>} {
  func.func @constraint_c2(%x: tensor<4x6xf32>) {
    // expected-error @below {{keeps what is partial but is partial over {tp} itself, expected none}}
    %0 = qdist.shard_constraint %x <{keep_partial, sharding = #qdist.sharding<[{dps}, {}], partial = {tp}>}> : tensor<4x6xf32>
    return
  }
}

// -----

module attributes {qdist.mesh = #qdist.mesh<tp = 2>} {
  func.func @constraint_c1_rank(%x: tensor<4x5xf32>) {
    // expected-error @below {{sharding has 1 dimensions for a value of type tensor<4x5xf32>}}
    %0 = qdist.shard_constraint %x <{sharding = #qdist.sharding<[{tp}]>}> : tensor<4x5xf32>
    return
  }
}

// -----

// expected-error @below {{axis 'tp' is used twice}}
func.func private @used_twice(tensor<4x4xf32> {qdist.sharding = #qdist.sharding<[{tp}, {tp}]>})

// -----

// expected-error @below {{got 'sum', expected 'partial' or 'max'}}
func.func private @kind(tensor<4xf32> {qdist.sharding = #qdist.sharding<[{}], sum = {tp}>})

// -----

// expected-error @below {{ep=4 is not an innermost run of dps=1, cp=1, tp=2: expected a divisor of tp, or tp times a divisor of cp, or tp times cp times a divisor of dps}}
func.func private @mesh() attributes {m = #qdist.mesh<tp = 2, ep = 4>}

// -----

// expected-error @below {{has 'qdist.mesh', expected only modules}}
func.func private @place() attributes {qdist.mesh = #qdist.mesh<tp = 2>}

// -----

// expected-error @below {{acc is 'f32' where type is 'f64', expected f32 or f64 and not narrower}}
func.func private @wire() attributes {w = #qdist.wire<type = f64, acc = f32>}

// -----

module attributes {qdist.mesh = #qdist.mesh<tp = 2>} {
  func.func @wait_c1(%x: tensor<4xf32>) {
    %0 = qdist.all_reduce %x over ["tp"] : (tensor<4xf32>) -> tensor<4xf32>
    // expected-error @below {{takes 1 values, expected all results of one collective with 'async', in order}}
    %1 = qdist.wait %0 : (tensor<4xf32>) -> tensor<4xf32>
    return
  }
}

// -----

module attributes {qdist.mesh = #qdist.mesh<tp = 2>} {
  func.func @wait_c1_all(%x: tensor<4xf32>) {
    %0:2 = qdist.all_reduce %x, %x over ["tp"] <{async}> : (tensor<4xf32>, tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
    // expected-error @below {{takes 1 values, expected all results of one collective with 'async', in order}}
    %1 = qdist.wait %0#0 : (tensor<4xf32>) -> tensor<4xf32>
    return
  }
}

// -----

module attributes {qdist.mesh = #qdist.mesh<tp = 2>} {
  func.func @wait_c2(%x: tensor<4xf32>) {
    %0 = qdist.all_reduce %x over ["tp"] <{async}> : (tensor<4xf32>) -> tensor<4xf32>
    // expected-error @below {{gives 'tensor<2xf32>' for 'tensor<4xf32>'}}
    %1 = qdist.wait %0 : (tensor<4xf32>) -> tensor<2xf32>
    return
  }
}
