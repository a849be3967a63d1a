// RUN: qwen35-opt %s --qwen35-verify-s2 --split-input-file --verify-diagnostics

// No mesh.
// expected-error @below {{has no 'qdist.mesh' in stage S2}}
module {
  func.func @eval(%w: tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.role = "weight", qwen35.name = "w"})
      -> (tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.alias = 0}) {
    return %w : tensor<4xf32>
  }
  func.func @first(%w: tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.role = "weight", qwen35.name = "w"})
      -> (tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.alias = 0}) {
    return %w : tensor<4xf32>
  }
  func.func @accumulate(%w: tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.role = "weight", qwen35.name = "w"})
      -> (tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.alias = 0}) {
    return %w : tensor<4xf32>
  }
  func.func @finish(%w: tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.role = "weight", qwen35.name = "w"})
      -> (tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.alias = 0}) {
    return %w : tensor<4xf32>
  }
  func.func @only(%w: tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.role = "weight", qwen35.name = "w"})
      -> (tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.alias = 0}) {
    return %w : tensor<4xf32>
  }
}

// -----

// An argument without sharding.
module attributes {qdist.mesh = #qdist.mesh<tp = 2>} {
  // expected-error @below {{argument 0 has no 'qdist.sharding'}}
  func.func @eval(%w: tensor<4xf32> {qwen35.role = "weight", qwen35.name = "w"})
      -> (tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.alias = 0}) {
    return %w : tensor<4xf32>
  }
  func.func @first(%w: tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.role = "weight", qwen35.name = "w"})
      -> (tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.alias = 0}) {
    return %w : tensor<4xf32>
  }
  func.func @accumulate(%w: tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.role = "weight", qwen35.name = "w"})
      -> (tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.alias = 0}) {
    return %w : tensor<4xf32>
  }
  func.func @finish(%w: tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.role = "weight", qwen35.name = "w"})
      -> (tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.alias = 0}) {
    return %w : tensor<4xf32>
  }
  func.func @only(%w: tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.role = "weight", qwen35.name = "w"})
      -> (tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.alias = 0}) {
    return %w : tensor<4xf32>
  }
}

// -----

// A result without sharding.
module attributes {qdist.mesh = #qdist.mesh<tp = 2>} {
  // expected-error @below {{result 0 has no 'qdist.sharding'}}
  func.func @eval(%w: tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.role = "weight", qwen35.name = "w"})
      -> (tensor<4xf32> {qwen35.alias = 0}) {
    return %w : tensor<4xf32>
  }
  func.func @first(%w: tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.role = "weight", qwen35.name = "w"})
      -> (tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.alias = 0}) {
    return %w : tensor<4xf32>
  }
  func.func @accumulate(%w: tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.role = "weight", qwen35.name = "w"})
      -> (tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.alias = 0}) {
    return %w : tensor<4xf32>
  }
  func.func @finish(%w: tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.role = "weight", qwen35.name = "w"})
      -> (tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.alias = 0}) {
    return %w : tensor<4xf32>
  }
  func.func @only(%w: tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.role = "weight", qwen35.name = "w"})
      -> (tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.alias = 0}) {
    return %w : tensor<4xf32>
  }
}

// -----

// A weight that is partial at the end.
module attributes {qdist.mesh = #qdist.mesh<tp = 2>} {
  // expected-error @below {{result 0 is returned as #qdist.sharding<[{}], partial = {tp}>, expected no partial value but gradient sums}}
  func.func @eval(%w: tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.role = "weight", qwen35.name = "w"})
      -> (tensor<4xf32> {qdist.sharding = #qdist.sharding<[{}], partial = {tp}>, qwen35.alias = 0}) {
    return %w : tensor<4xf32>
  }
  func.func @first(%w: tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.role = "weight", qwen35.name = "w"})
      -> (tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.alias = 0}) {
    return %w : tensor<4xf32>
  }
  func.func @accumulate(%w: tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.role = "weight", qwen35.name = "w"})
      -> (tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.alias = 0}) {
    return %w : tensor<4xf32>
  }
  func.func @finish(%w: tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.role = "weight", qwen35.name = "w"})
      -> (tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.alias = 0}) {
    return %w : tensor<4xf32>
  }
  func.func @only(%w: tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.role = "weight", qwen35.name = "w"})
      -> (tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.alias = 0}) {
    return %w : tensor<4xf32>
  }
}

// -----

// A gradient sum may be.
module attributes {qdist.mesh = #qdist.mesh<tp = 2>} {
  func.func @eval(%w: tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.role = "grad", qwen35.name = "w"})
      -> (tensor<4xf32> {qdist.sharding = #qdist.sharding<[{}], partial = {tp}>, qwen35.alias = 0}) {
    return %w : tensor<4xf32>
  }
  func.func @first(%w: tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.role = "weight", qwen35.name = "w"})
      -> (tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.alias = 0}) {
    return %w : tensor<4xf32>
  }
  func.func @accumulate(%w: tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.role = "weight", qwen35.name = "w"})
      -> (tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.alias = 0}) {
    return %w : tensor<4xf32>
  }
  func.func @finish(%w: tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.role = "weight", qwen35.name = "w"})
      -> (tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.alias = 0}) {
    return %w : tensor<4xf32>
  }
  func.func @only(%w: tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.role = "weight", qwen35.name = "w"})
      -> (tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.alias = 0}) {
    return %w : tensor<4xf32>
  }
}

// -----

// An op that propagation has not seen.
module attributes {qdist.mesh = #qdist.mesh<tp = 2>} {
  func.func @eval(%w: tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.role = "weight", qwen35.name = "w"})
      -> (tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.alias = 0}) {
    // expected-error @below {{'qwen35.scale' has no 'qdist.operands' for its 1 values in stage S2}}
    %0 = qwen35.scale %w <{factor = 2.0}> : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
  func.func @first(%w: tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.role = "weight", qwen35.name = "w"})
      -> (tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.alias = 0}) {
    return %w : tensor<4xf32>
  }
  func.func @accumulate(%w: tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.role = "weight", qwen35.name = "w"})
      -> (tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.alias = 0}) {
    return %w : tensor<4xf32>
  }
  func.func @finish(%w: tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.role = "weight", qwen35.name = "w"})
      -> (tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.alias = 0}) {
    return %w : tensor<4xf32>
  }
  func.func @only(%w: tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.role = "weight", qwen35.name = "w"})
      -> (tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.alias = 0}) {
    return %w : tensor<4xf32>
  }
}

// -----

// A collective before its time.
module attributes {qdist.mesh = #qdist.mesh<tp = 2>} {
  func.func @eval(%w: tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.role = "weight", qwen35.name = "w"})
      -> (tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.alias = 0}) {
    // expected-error @below {{'qdist.all_reduce' in stage S2}}
    %0 = qdist.all_reduce %w over ["tp"] : (tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
  func.func @first(%w: tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.role = "weight", qwen35.name = "w"})
      -> (tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.alias = 0}) {
    return %w : tensor<4xf32>
  }
  func.func @accumulate(%w: tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.role = "weight", qwen35.name = "w"})
      -> (tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.alias = 0}) {
    return %w : tensor<4xf32>
  }
  func.func @finish(%w: tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.role = "weight", qwen35.name = "w"})
      -> (tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.alias = 0}) {
    return %w : tensor<4xf32>
  }
  func.func @only(%w: tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.role = "weight", qwen35.name = "w"})
      -> (tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.alias = 0}) {
    return %w : tensor<4xf32>
  }
}
