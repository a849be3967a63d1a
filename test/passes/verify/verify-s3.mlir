// RUN: qwen35-opt %s --qwen35-verify-s3 --split-input-file --verify-diagnostics

// A seed that was left over.
module attributes {qdist.mesh = #qdist.mesh<tp = 2>} {
  func.func @eval(%w: tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.role = "weight", qwen35.name = "w"})
      -> (tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.alias = 0}) {
    // expected-note @below {{--qwen35-partition should have removed it}}
    // expected-error @below {{'qdist.shard_constraint' in stage S3}}
    %0 = qdist.shard_constraint %w <{sharding = #qdist.sharding<[{tp}]>}> : tensor<4xf32>
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

// What propagation wrote was left over.
module attributes {qdist.mesh = #qdist.mesh<tp = 2>} {
  func.func @eval(%w: tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.role = "weight", qwen35.name = "w"})
      -> (tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.alias = 0}) {
    // expected-error @below {{'qwen35.scale' has 'qdist.operands' in stage S3}}
    %0 = qwen35.scale %w <{factor = 2.0}> {qdist.operands = [#qdist.sharding<[{tp}]>], qdist.results = [#qdist.sharding<[{tp}]>]} : tensor<4xf32>
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

// Collectives are what S3 is for.
module attributes {qdist.mesh = #qdist.mesh<tp = 2>} {
  func.func @eval(%w: tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.role = "weight", qwen35.name = "w"})
      -> (tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.alias = 0}) {
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

// -----

// What is in flight is nobody's but its wait's.
module attributes {qdist.mesh = #qdist.mesh<tp = 2>} {
  func.func @eval(%w: tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.role = "weight", qwen35.name = "w"})
      -> (tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.alias = 0}) {
    // expected-note @below {{it was started here}}
    %0 = qdist.all_reduce %w over ["tp"] <{async}> : (tensor<4xf32>) -> tensor<4xf32>
    // expected-error @below {{'qwen35.scale' reads what is still in flight, expected the result of a 'qdist.wait'}}
    %1 = qwen35.scale %0 <{factor = 2.0}> : tensor<4xf32>
    %2 = qdist.wait %0 : (tensor<4xf32>) -> tensor<4xf32>
    return %2 : tensor<4xf32>
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

module attributes {qdist.mesh = #qdist.mesh<tp = 2>} {
  func.func @eval(%w: tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.role = "weight", qwen35.name = "w"})
      -> (tensor<4xf32> {qdist.sharding = #qdist.sharding<[{tp}]>, qwen35.alias = 0}) {
    // expected-error @below {{'qdist.all_reduce' is started and awaited 2 times, expected once}}
    %0 = qdist.all_reduce %w over ["tp"] <{async}> : (tensor<4xf32>) -> tensor<4xf32>
    %1 = qdist.wait %0 : (tensor<4xf32>) -> tensor<4xf32>
    %2 = qdist.wait %0 : (tensor<4xf32>) -> tensor<4xf32>
    return %2 : tensor<4xf32>
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
