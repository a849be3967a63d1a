// RUN: qwen35-opt %s | qwen35-opt | FileCheck %s
// RUN: qwen35-opt %s --mlir-print-op-generic | qwen35-opt | FileCheck %s

// Axes, atoms that ep cuts, and every collective.
// CHECK: module attributes {qdist.mesh = #qdist.mesh<dps = 2, cp = 4, tp = 2, ep = 4>}
module attributes {qdist.mesh = #qdist.mesh<dps = 2, cp = 4, tp = 2, ep = 4, kv = 0>} {
  // CHECK-LABEL: func @collectives(
  // CHECK-SAME: {qdist.sharding = #qdist.sharding<[{dps, tp}, {}]>}
  // CHECK-SAME: {qdist.sharding = #qdist.sharding<[{tp : 64, 64, 128}, {}], partial = {dps, cp.0}>}
  // CHECK-SAME: {qdist.sharding = #qdist.sharding<[], max = {tp}>}
  func.func @collectives(%x: tensor<32x64xf32> {qdist.sharding = #qdist.sharding<[{dps, tp}, {}]>},
                         %w: tensor<128x4xbf16> {qdist.sharding = #qdist.sharding<[{tp : 64, 64, 128}, {}], partial = {dps, cp.0}>},
                         %s: tensor<f32> {qdist.sharding = #qdist.sharding<[], max = {tp}>},
                         %ids: tensor<64xi32>) {
    // CHECK: qdist.all_gather %{{.*}} over ["tp"] <{dim = 0 : i64}> : (tensor<32x64xf32>) -> tensor<64x64xf32>
    %0 = qdist.all_gather %x over ["tp"] <{dim = 0}> : (tensor<32x64xf32>) -> tensor<64x64xf32>
    // CHECK: qdist.all_gather %{{.*}} over ["cp.1", "tp"] <{dim = 1 : i64}> : (tensor<32x64xf32>) -> tensor<32x256xf32>
    %1 = qdist.all_gather %x over ["cp.1", "tp"] <{dim = 1}> : (tensor<32x64xf32>) -> tensor<32x256xf32>
    // CHECK: qdist.all_reduce %{{.*}}, %{{.*}} over ["dps", "cp"] <{wire = #qdist.wire<type = bf16, acc = f32>}>
    %2:2 = qdist.all_reduce %x, %w over ["dps", "cp"] <{wire = #qdist.wire<type = bf16, acc = f32>}>
        : (tensor<32x64xf32>, tensor<128x4xbf16>) -> (tensor<32x64xf32>, tensor<128x4xbf16>)
    // CHECK: qdist.all_reduce %{{.*}} over ["tp"] <{kind = "max"}>
    %3 = qdist.all_reduce %s over ["tp"] <{kind = "max"}> : (tensor<f32>) -> tensor<f32>
    // CHECK: qdist.reduce_scatter %{{.*}} over ["dps"] <{dim = 0 : i64}> : (tensor<32x64xf32>) -> tensor<16x64xf32>
    %4 = qdist.reduce_scatter %x over ["dps"] <{dim = 0}> : (tensor<32x64xf32>) -> tensor<16x64xf32>
    // CHECK: qdist.all_to_all %{{.*}} over ["cp"] <{concat_dim = 0 : i64, split_dim = 1 : i64}>
    %5 = qdist.all_to_all %x over ["cp"] <{split_dim = 1, concat_dim = 0}> : (tensor<32x64xf32>) -> tensor<128x16xf32>
    // CHECK: qdist.all_slice %{{.*}} over ["ep"] <{dim = 0 : i64}> : (tensor<64xi32>) -> tensor<16xi32>
    %6 = qdist.all_slice %ids over ["ep"] <{dim = 0}> : (tensor<64xi32>) -> tensor<16xi32>
    // CHECK: qdist.shift %{{.*}} over ["cp"] <{offset = -1 : i64}>
    %7 = qdist.shift %x over ["cp"] <{offset = -1}> : (tensor<32x64xf32>) -> tensor<32x64xf32>
    // CHECK: qdist.rank_var over ["ep"] : tensor<i32>
    %8 = qdist.rank_var over ["ep"] : tensor<i32>
    // CHECK: qdist.local_ids %{{.*}} over ["tp"] <{size = 128 : i64}> : tensor<64xi32>
    %9 = qdist.local_ids %ids over ["tp"] <{size = 128}> : tensor<64xi32>
    // CHECK: qdist.shard_constraint %{{.*}} <{sharding = #qdist.sharding<[{dps}, {tp}]>}> : tensor<32x64xf32>
    %10 = qdist.shard_constraint %x <{sharding = #qdist.sharding<[{dps}, {tp}]>}> : tensor<32x64xf32>
    return
  }
}
