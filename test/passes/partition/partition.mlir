// RUN: qwen35-opt %s --qwen35-shard-propagate --qwen35-partition --split-input-file | FileCheck %s

// Sequence-parallel norm, column- then row-parallel products: one gather, one scatter.
module attributes {qdist.mesh = #qdist.mesh<dps = 2, tp = 2>} {
  // CHECK-LABEL: func @eval(
  // CHECK-SAME: %[[X:.*]]: tensor<2x4xf32> {{.*}}, %[[UP:.*]]: tensor<8x4xf32> {{.*}}, %[[DOWN:.*]]: tensor<4x8xf32>
  func.func @eval(%x: tensor<8x4xf32> {qwen35.role = "input", qwen35.name = "x", qdist.sharding = #qdist.sharding<[{dps, tp}, {}]>},
                  %up: tensor<16x4xf32> {qwen35.role = "weight", qwen35.name = "up", qdist.sharding = #qdist.sharding<[{tp}, {}]>},
                  %down: tensor<4x16xf32> {qwen35.role = "weight", qwen35.name = "down", qdist.sharding = #qdist.sharding<[{}, {tp}]>})
      -> (tensor<8x4xf32> {qwen35.name = "y"}) {
    // CHECK-NEXT: %[[G:.*]] = qdist.all_gather %[[X]] over ["tp"] <{dim = 0 : i64}> : (tensor<2x4xf32>) -> tensor<4x4xf32>
    // CHECK-NEXT: %[[H:.*]] = qwen35.linear %[[G]], %[[UP]]
    %h = qwen35.linear %x, %up : tensor<8x4xf32>, tensor<16x4xf32>
    // Asked for alike, moved once.
    // CHECK-NEXT: %[[H2:.*]] = qwen35.linear %[[G]], %[[UP]]
    %h2 = qwen35.linear %x, %up : tensor<8x4xf32>, tensor<16x4xf32>
    // CHECK-NEXT: %[[S:.*]] = qwen35.swiglu %[[H]], %[[H2]] : tensor<4x8xf32>, tensor<4x8xf32>
    %s = qwen35.swiglu %h, %h2 : tensor<8x16xf32>, tensor<8x16xf32>
    // CHECK-NEXT: %[[D:.*]] = qwen35.linear %[[S]], %[[DOWN]]
    %d = qwen35.linear %s, %down : tensor<8x16xf32>, tensor<4x16xf32>
    // CHECK-NEXT: %[[R:.*]] = qdist.reduce_scatter %[[D]] over ["tp"] <{dim = 0 : i64}> : (tensor<4x4xf32>) -> tensor<2x4xf32>
    // CHECK-NEXT: qwen35.add %[[X]], %[[R]] : tensor<2x4xf32>, tensor<2x4xf32>
    %y = qwen35.add %x, %d : tensor<8x4xf32>, tensor<8x4xf32>
    return %y : tensor<8x4xf32>
  }
}

// -----

// The head split by vocabulary: statistics, three reductions, the loss of a data rank's tokens added up at the end.
module attributes {qdist.mesh = #qdist.mesh<dps = 2, tp = 2>} {
  // CHECK-LABEL: func @eval(
  func.func @eval(%h: tensor<8x4xf32> {qwen35.role = "input", qwen35.name = "h", qdist.sharding = #qdist.sharding<[{dps}, {}]>},
                  %w: tensor<16x4xf32> {qwen35.role = "weight", qwen35.name = "lm_head.weight", qdist.sharding = #qdist.sharding<[{tp}, {}]>},
                  %labels: tensor<8xi32> {qwen35.role = "input", qwen35.name = "labels", qdist.sharding = #qdist.sharding<[{dps}]>},
                  %inv: tensor<f32> {qwen35.role = "scalar", qwen35.name = "inv_count", qdist.sharding = #qdist.sharding<[]>})
      -> (tensor<f32> {qwen35.name = "loss"}) {
    // CHECK: %[[L:.*]] = qdist.local_ids %{{.*}} over ["tp"] <{size = 8 : i64}> : tensor<4xi32>
    // CHECK: %[[M:.*]], %[[S:.*]], %[[T:.*]] = qwen35.lm_stats %{{.*}}, %{{.*}}, %[[L]]
    // CHECK: %[[MM:.*]] = qdist.all_reduce %[[M]] over ["tp"] <{kind = "max"}>
    // CHECK: %[[SS:.*]] = qwen35.rescale_sum %[[S]], %[[M]], %[[MM]]
    // CHECK: %[[SUM:.*]] = qdist.all_reduce %[[SS]] over ["tp"]
    // CHECK: %[[TT:.*]] = qdist.all_reduce %[[T]] over ["tp"]
    // CHECK: %[[LOSS:.*]] = qwen35.lm_stats_loss %[[L]], %{{.*}}, %[[MM]], %[[SUM]], %[[TT]]
    // CHECK: %[[ALL:.*]] = qdist.all_reduce %[[LOSS]] over ["dps"] : (tensor<f32>) -> tensor<f32>
    // CHECK: return %[[ALL]]
    %loss = qwen35.lm_loss %h, %w, %labels, %inv : tensor<8x4xf32>, tensor<16x4xf32>, tensor<8xi32>, tensor<f32>
    return %loss : tensor<f32>
  }
}

// -----

// Squares of shards are added up over ranks before those of copies, which count once.
module attributes {qdist.mesh = #qdist.mesh<tp = 2>} {
  // CHECK-LABEL: func @eval(
  func.func @eval(%a: tensor<8xf32> {qwen35.role = "weight", qwen35.name = "a", qdist.sharding = #qdist.sharding<[{tp}]>},
                  %b: tensor<8xf32> {qwen35.role = "weight", qwen35.name = "b", qdist.sharding = #qdist.sharding<[{}]>},
                  %c: tensor<8xf32> {qwen35.role = "weight", qwen35.name = "c", qdist.sharding = #qdist.sharding<[{tp}]>})
      -> (tensor<f64> {qwen35.name = "n"}) {
    // CHECK: %[[Z:.*]] = qwen35.zeros : tensor<f64>
    %z = qwen35.zeros : tensor<f64>
    // CHECK: %[[A:.*]] = qwen35.norm_sq %{{.*}}, %[[Z]] : tensor<4xf32>
    // CHECK: %[[C:.*]] = qwen35.norm_sq %{{.*}}, %[[A]] : tensor<4xf32>
    // CHECK: %[[R:.*]] = qdist.all_reduce %[[C]] over ["tp"] : (tensor<f64>) -> tensor<f64>
    // CHECK: %[[B:.*]] = qwen35.norm_sq %{{.*}}, %[[R]] : tensor<8xf32>
    // CHECK: return %[[B]]
    %0 = qwen35.norm_sq %a, %z : tensor<8xf32>, tensor<f64>
    %1 = qwen35.norm_sq %b, %0 : tensor<8xf32>, tensor<f64>
    %2 = qwen35.norm_sq %c, %1 : tensor<8xf32>, tensor<f64>
    return %2 : tensor<f64>
  }
}

// -----

// A gradient that is scattered where it is made: it stays a sum over dpr, the sum of sums with it. A weight that is kept in parts
// is gathered for each of its layers, once more where it says so.
module attributes {qdist.mesh = #qdist.mesh<dpr = 2, dps = 2>} {
  // CHECK-LABEL: func @first(
  // CHECK-SAME: %[[W:.*]]: tensor<2x4xf32> {{.*}}, %[[X:.*]]: tensor<2x4xf32> {{.*}}, %[[OLD:.*]]: tensor<2x4xf32> {qdist.sharding = #qdist.sharding<[{dps}, {}], partial = {dpr}>
  // CHECK-SAME: -> (tensor<2x4xf32> {qdist.sharding = #qdist.sharding<[{dps}, {}], partial = {dpr}>
  func.func @first(%w: tensor<4x4xf32> {qwen35.role = "weight", qwen35.name = "w", qdist.sharding = #qdist.sharding<[{dps}, {}]>},
                   %x: tensor<8x4xf32> {qwen35.role = "input", qwen35.name = "x", qdist.sharding = #qdist.sharding<[{dpr, dps}, {}]>},
                   %old: tensor<4x4xf32> {qwen35.role = "grad", qwen35.name = "w"})
      -> (tensor<4x4xf32> {qwen35.alias = 2}) {
    // CHECK-NEXT: %[[A:.*]] = qdist.all_gather %[[W]] over ["dps"] <{dim = 0 : i64}> : (tensor<2x4xf32>) -> tensor<4x4xf32>
    // CHECK-NEXT: %[[Y:.*]] = qwen35.linear %[[X]], %[[A]] : tensor<2x4xf32>, tensor<4x4xf32>
    %a = qdist.shard_constraint %w <{sharding = #qdist.sharding<[{}, {}]>}> : tensor<4x4xf32>
    %y = qwen35.linear %x, %a : tensor<8x4xf32>, tensor<4x4xf32>
    // CHECK-NEXT: %[[B:.*]] = qdist.all_gather %[[W]] over ["dps"] <{dim = 0 : i64}> {qwen35.recompute}
    // CHECK-NEXT: %[[Z:.*]] = qwen35.matmul %[[Y]], %[[B]]
    %b = qdist.shard_constraint %w <{sharding = #qdist.sharding<[{}, {}]>}> {qwen35.recompute} : tensor<4x4xf32>
    %z = qwen35.matmul %y, %b : tensor<8x4xf32>, tensor<4x4xf32>
    // CHECK-NEXT: %[[G:.*]] = qwen35.matmul %[[Z]], %[[X]] <{transpose_a = true}>
    // CHECK-NEXT: %[[P:.*]] = qdist.reduce_scatter %[[G]] over ["dps"] <{dim = 0 : i64}> : (tensor<4x4xf32>) -> tensor<2x4xf32>
    %g = qwen35.matmul %z, %x <{transpose_a = true}> : tensor<8x4xf32>, tensor<8x4xf32>
    %p = qdist.shard_constraint %g <{keep_partial, sharding = #qdist.sharding<[{dps}, {}]>}> : tensor<4x4xf32>
    // CHECK-NEXT: return %[[P]]
    return %p : tensor<4x4xf32>
  }
}

// -----

// The balance loss of rows on two ranks: what each counts, added up; backward reads the same sums.
module attributes {qdist.mesh = #qdist.mesh<dps = 2>} {
  // CHECK-LABEL: func @first(
  func.func @first(%p: tensor<8x4xf32> {qwen35.role = "input", qwen35.name = "p", qdist.sharding = #qdist.sharding<[{dps}, {}]>},
                   %i: tensor<8x2xi32> {qwen35.role = "input", qwen35.name = "i", qdist.sharding = #qdist.sharding<[{dps}, {}]>},
                   %seq: !qwen35.seq<8, 4> {qwen35.role = "input", qwen35.name = "seq", qdist.sharding = #qdist.sharding<[{dps}]>})
      -> (tensor<f32> {qwen35.name = "aux"}, tensor<8x4xf32> {qwen35.name = "d"}) {
    // CHECK-NEXT: %[[C:.*]], %[[S:.*]], %[[N:.*]] = qwen35.router_stats(%{{.*}}) (%{{.*}}) %{{.*}} <{scope = "pooled"}> : (tensor<4x4xf32>) (tensor<4x2xi32>) <4, 2>
    // CHECK-NEXT: %[[CC:.*]] = qdist.all_reduce %[[C]] over ["dps"] : (tensor<1x4xf32>) -> tensor<1x4xf32>
    // CHECK-NEXT: %[[SS:.*]] = qdist.all_reduce %[[S]] over ["dps"] : (tensor<1x4xf32>) -> tensor<1x4xf32>
    // CHECK-NEXT: %[[NN:.*]] = qdist.all_reduce %[[N]] over ["dps"] : (tensor<f32>) -> tensor<f32>
    // CHECK-NEXT: %[[A:.*]] = qwen35.router_stats_aux %[[CC]], %[[SS]], %[[NN]] <{layers = 1 : i64, scope = "pooled", slots = 2 : i64}>
    %aux = qwen35.router_aux (%p) (%i) %seq <{scope = "pooled"}> : (tensor<8x4xf32>) (tensor<8x2xi32>) !qwen35.seq<8, 4>
    // CHECK-NEXT: qwen35.router_stats_grad %[[A]], %[[CC]], %[[NN]], %{{.*}} <{layers = 1 : i64, scope = "pooled", slots = 2 : i64}>
    %d = qwen35.router_aux_bwd %aux (%p) (%i) %seq <{scope = "pooled"}> : tensor<f32> (tensor<8x4xf32>) (tensor<8x2xi32>) !qwen35.seq<8, 4>
    // CHECK: return
    return %aux, %d : tensor<f32>, tensor<8x4xf32>
  }
}
