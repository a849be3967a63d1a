// RUN: qwen35-opt %s --pass-pipeline="builtin.module(func.func(qwen35-to-kernels),qwen35-verify-s5)" --split-input-file --verify-diagnostics | FileCheck %s

// What lies in one piece goes from and to its place; along an inner dimension
// it lies in rows, and the side that is in rows has a stage. Pieces that are cut
// out by rank are a copy without a stage.
module attributes {qdist.mesh = #qdist.mesh<dps = 2, cp = 2, tp = 2>} {
  // CHECK-LABEL: func @kinds(
  func.func @kinds(%x: tensor<4x8xf32>, %ids: tensor<8xi32>)
      -> (tensor<8x8xf32>, tensor<4x16xf32>, tensor<2x8xf32>, tensor<4x4xf32>, tensor<16x2xf32>, tensor<8x4xf32>, tensor<2xi32>, tensor<4x8xf32>) {
    // CHECK: qkern.collective "all_gather"(%arg0) over ["tp"]
    // CHECK-SAME: counts = array<i64: 32>, ranks = 2 : i64, receiveOuter = array<i64: 1>, sendOuter = array<i64: 1>, workspace = 0 : i64
    %0 = qdist.all_gather %x over ["tp"] <{dim = 0}> : (tensor<4x8xf32>) -> tensor<8x8xf32>
    // CHECK: qkern.collective "all_gather"(%arg0) over ["tp"]
    // CHECK-SAME: counts = array<i64: 32>, ranks = 2 : i64, receiveOuter = array<i64: 4>, sendOuter = array<i64: 1>, workspace = 256 : i64
    %1 = qdist.all_gather %x over ["tp"] <{dim = 1}> : (tensor<4x8xf32>) -> tensor<4x16xf32>
    // CHECK: qkern.collective "reduce_scatter"(%arg0) over ["dps"]
    // CHECK-SAME: accumulate = f32, aliases = array<i64: -1>, counts = array<i64: 16>, ranks = 2 : i64, receiveOuter = array<i64: 1>, sendOuter = array<i64: 1>, wire = bf16, workspace = 0 : i64
    %2 = qdist.reduce_scatter %x over ["dps"] <{dim = 0, wire = #qdist.wire<type = bf16, acc = f32>}> : (tensor<4x8xf32>) -> tensor<2x8xf32>
    // CHECK: qkern.collective "reduce_scatter"(%arg0) over ["dps"]
    // CHECK-SAME: counts = array<i64: 16>, ranks = 2 : i64, receiveOuter = array<i64: 1>, sendOuter = array<i64: 4>, workspace = 128 : i64
    %3 = qdist.reduce_scatter %x over ["dps"] <{dim = 1}> : (tensor<4x8xf32>) -> tensor<4x4xf32>
    // CHECK: qkern.collective "all_to_all"(%arg0) over ["cp", "tp"]
    // CHECK-SAME: counts = array<i64: 8>, ranks = 4 : i64, receiveOuter = array<i64: 1>, sendOuter = array<i64: 4>, workspace = 128 : i64
    %4 = qdist.all_to_all %x over ["cp", "tp"] <{split_dim = 1, concat_dim = 0}> : (tensor<4x8xf32>) -> tensor<16x2xf32>
    // CHECK: qkern.view %{{.*}} <{offset = 0 : i64, strides = array<i64: 4, 1>}> : tensor<16x2xf32> to tensor<8x4xf32>
    %5 = qwen35.reshape %4 : tensor<16x2xf32> to tensor<8x4xf32>
    // CHECK: qkern.collective "all_slice"(%arg1) over ["dps", "tp"]
    // CHECK-SAME: counts = array<i64: 2>, ranks = 4 : i64, receiveOuter = array<i64: 1>, sendOuter = array<i64: 1>, workspace = 0 : i64
    // CHECK-SAME: (tensor<8xi32>) -> tensor<2xi32>
    %6 = qdist.all_slice %ids over ["dps", "tp"] <{dim = 0}> : (tensor<8xi32>) -> tensor<2xi32>
    // CHECK: qkern.collective "shift"(%arg0) over ["cp"]
    // CHECK-SAME: offset = -1 : i64
    %7 = qdist.shift %x over ["cp"] <{offset = -1}> : (tensor<4x8xf32>) -> tensor<4x8xf32>
    return %0, %1, %2, %3, %4, %5, %6, %7 : tensor<8x8xf32>, tensor<4x16xf32>, tensor<2x8xf32>, tensor<4x4xf32>, tensor<16x2xf32>, tensor<8x4xf32>, tensor<2xi32>, tensor<4x8xf32>
  }
}

// -----

// Several parts are one exchange per element type, in the order of the parts.
// Over one rank there is nothing to do.
module attributes {qdist.mesh = #qdist.mesh<dps = 2, tp = 2>} {
  // CHECK-LABEL: func @parts(
  // CHECK-NEXT: %[[F:.*]]:2 = qkern.collective "all_reduce"(%arg0, %arg2) over ["dps", "tp"]
  // CHECK-SAME: counts = array<i64: 32, 4>, {{.*}}workspace = 144 : i64
  // CHECK-NEXT: %[[B:.*]] = qkern.collective "all_reduce"(%arg1) over ["dps", "tp"]
  // CHECK-SAME: reduction = "max"
  // CHECK-SAME: workspace = 0 : i64
  // CHECK-NEXT: return %[[F]]#0, %[[B]], %[[F]]#1, %arg0
  func.func @parts(%x: tensor<4x8xf32>, %y: tensor<16xbf16>, %z: tensor<4xf32>)
      -> (tensor<4x8xf32>, tensor<16xbf16>, tensor<4xf32>, tensor<4x8xf32>) {
    %0:3 = qdist.all_reduce %x, %y, %z over ["dps", "tp"] <{kind = "max"}>
        : (tensor<4x8xf32>, tensor<16xbf16>, tensor<4xf32>) -> (tensor<4x8xf32>, tensor<16xbf16>, tensor<4xf32>)
    %1 = qdist.all_gather %x over ["cp"] <{dim = 1}> : (tensor<4x8xf32>) -> tensor<4x8xf32>
    return %0#0, %0#1, %0#2, %1 : tensor<4x8xf32>, tensor<16xbf16>, tensor<4xf32>, tensor<4x8xf32>
  }
}

// -----

// Parts of rows are made dense first. The sum of what ends there takes its
// place; what is read again keeps it.
module attributes {qdist.mesh = #qdist.mesh<tp = 2>} {
  // CHECK-LABEL: func @storage(
  // CHECK: %[[V:.*]] = qkern.view %arg0
  // CHECK: %[[C:.*]] = qkern.dispatch "copy"(%[[V]])
  // CHECK: qkern.collective "all_gather"(%[[C]])
  // CHECK: %[[A:.*]] = qkern.dispatch "scale"(%arg0)
  // CHECK: qkern.collective "all_reduce"(%[[A]]) over ["tp"] <{aliases = array<i64: 0>
  // CHECK: %[[B:.*]] = qkern.dispatch "scale"(%arg0)
  // CHECK: qkern.collective "all_reduce"(%[[B]]) over ["tp"] <{aliases = array<i64: -1>
  // CHECK: qkern.collective "all_reduce"(%arg0) over ["tp"] <{aliases = array<i64: -1>
  func.func @storage(%x: tensor<4x8xf32>)
      -> (tensor<8x4xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) {
    %0 = qwen35.slice %x <{axis = 1, start = 2, size = 4}> : tensor<4x8xf32>
    %1 = qdist.all_gather %0 over ["tp"] <{dim = 0}> : (tensor<4x4xf32>) -> tensor<8x4xf32>
    %2 = qwen35.scale %x <{factor = 2.0}> : tensor<4x8xf32>
    %3 = qdist.all_reduce %2 over ["tp"] : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %4 = qwen35.scale %x <{factor = 4.0}> : tensor<4x8xf32>
    %5 = qdist.all_reduce %4 over ["tp"] : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %6 = qdist.all_reduce %x over ["tp"] : (tensor<4x8xf32>) -> tensor<4x8xf32>
    return %1, %3, %5, %4, %6 : tensor<8x4xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
  }
}

// -----

// A gradient sum is added to, and reduced, where it is.
module attributes {qdist.mesh = #qdist.mesh<dpr = 2>} {
  // CHECK-LABEL: func @gradient(
  // CHECK: %[[S:.*]] = qkern.dispatch "matmul"(%arg1, %arg2, %arg0) <{aliases = array<i64: 2>
  // CHECK: %[[R:.*]] = qkern.collective "all_reduce"(%[[S]]) over ["dpr"] <{aliases = array<i64: 0>
  // CHECK: return %[[R]]
  func.func @gradient(%g: tensor<4x8xf32> {qwen35.role = "grad", qwen35.name = "w"}, %x: tensor<16x4xf32>, %y: tensor<16x8xf32>)
      -> (tensor<4x8xf32> {qwen35.alias = 0 : i64}) {
    %0 = qwen35.matmul %x, %y <{transpose_a = true}> : tensor<16x4xf32>, tensor<16x8xf32>
    %1 = qwen35.add %g, %0 : tensor<4x8xf32>, tensor<4x8xf32>
    %2 = qdist.all_reduce %1 over ["dpr"] : (tensor<4x8xf32>) -> tensor<4x8xf32>
    return %2 : tensor<4x8xf32>
  }
}

// -----

// The coordinate of the rank is an operand.
module attributes {qdist.mesh = #qdist.mesh<tp = 2>} {
  // CHECK-LABEL: func @ids(
  // CHECK: %[[C:.*]] = qdist.rank_var over ["tp"] : tensor<i32>
  // CHECK: qkern.dispatch "local_ids"(%arg0, %[[C]]) <{aliases = array<i64: -1>, config = {size = 128 : i64}
  func.func @ids(%ids: tensor<64xi32>) -> tensor<64xi32> {
    %0 = qdist.local_ids %ids over ["tp"] <{size = 128}> : tensor<64xi32>
    return %0 : tensor<64xi32>
  }
}

// -----

module attributes {qdist.mesh = #qdist.mesh<tp = 2>} {
  func.func @unpartitioned(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
    // expected-error @below {{'qdist.shard_constraint' is not something that ranks can run: --qwen35-partition should have removed it}}
    %0 = qdist.shard_constraint %x <{sharding = #qdist.sharding<[{tp}, {}]>}> : tensor<4x8xf32>
    return %0 : tensor<4x8xf32>
  }
}
