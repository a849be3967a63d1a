// RUN: qwen35-opt %s --qwen35-shard-propagate --split-input-file --verify-diagnostics | FileCheck %s

// Columns, then rows: the second product is a part of a sum over tp, and only the sum of a data rank's own tokens.
module attributes {qdist.mesh = #qdist.mesh<dps = 2, tp = 2>} {
  // CHECK-LABEL: func @eval(
  func.func @eval(%x: tensor<8x4xf32> {qwen35.role = "input", qwen35.name = "x", qdist.sharding = #qdist.sharding<[{dps, tp}, {}]>},
                  %up: tensor<16x4xf32> {qwen35.role = "weight", qwen35.name = "up", qdist.sharding = #qdist.sharding<[{tp}, {}]>},
                  %down: tensor<4x16xf32> {qwen35.role = "weight", qwen35.name = "down", qdist.sharding = #qdist.sharding<[{}, {tp}]>})
      -> (tensor<8x4xf32> {qwen35.name = "y"}, tensor<16x4xf32> {qwen35.name = "dw"}) {
    // The weight stays, x is asked for whole over tp.
    // CHECK: qwen35.linear {{.*}} {qdist.operands = [#qdist.sharding<[{dps}, {}]>, #qdist.sharding<[{tp}, {}]>], qdist.results = [#qdist.sharding<[{dps}, {tp}]>]}
    %h = qwen35.linear %x, %up : tensor<8x4xf32>, tensor<16x4xf32>
    // CHECK: qwen35.linear {{.*}} {qdist.operands = [#qdist.sharding<[{dps}, {tp}]>, #qdist.sharding<[{}, {tp}]>], qdist.results = [#qdist.sharding<[{dps}, {}], partial = {tp}>]}
    %d = qwen35.linear %h, %down : tensor<8x16xf32>, tensor<4x16xf32>
    // The gradient of a weight is partial over exactly the axes that split its tokens.
    // CHECK: qwen35.matmul {{.*}}qdist.results = [#qdist.sharding<[{tp}, {}], partial = {dps}>]}
    %dw = qwen35.matmul %h, %x <{transpose_a = true}> : tensor<8x16xf32>, tensor<8x4xf32>
    // A sum of partial and whole: whole, where the whole one is.
    // CHECK: qwen35.add {{.*}} {qdist.operands = [#qdist.sharding<[{dps, tp}, {}]>, #qdist.sharding<[{dps, tp}, {}]>]
    %y = qwen35.add %x, %d : tensor<8x4xf32>, tensor<8x4xf32>
    // A sum of partial ones stays partial.
    // CHECK: qwen35.add {{.*}}qdist.results = [#qdist.sharding<[{dps}, {}], partial = {tp}>]}
    %z = qwen35.add %d, %d : tensor<8x4xf32>, tensor<8x4xf32>
    return %y, %dw : tensor<8x4xf32>, tensor<16x4xf32>
  }
}

// -----

// Two seeds that meet and disagree.
module attributes {qdist.mesh = #qdist.mesh<tp = 2>} {
  func.func @eval(%a: tensor<8x4xf32> {qwen35.role = "weight", qwen35.name = "A_log", qdist.sharding = #qdist.sharding<[{tp}, {}]>},
                  %b: tensor<8x4xf32> {qwen35.role = "weight", qwen35.name = "dt_bias", qdist.sharding = #qdist.sharding<[{}, {}]>}) {
    // expected-error @below {{'qwen35.add' cannot be split: "A_log" is seeded #qdist.sharding<[{tp}, {}]> but "dt_bias" #qdist.sharding<[{}, {}]>, which disagree on a dimension that both have}}
    %c = qwen35.add %a, %b : tensor<8x4xf32>, tensor<8x4xf32>
    return
  }
}

// -----

module attributes {qdist.mesh = #qdist.mesh<tp = 2>} {
  // expected-error @below {{argument 0 has no 'qdist.sharding'; run --qwen35-shard-seed first}}
  func.func @eval(%a: tensor<8x4xf32> {qwen35.role = "weight", qwen35.name = "A_log"}) {
    return
  }
}
