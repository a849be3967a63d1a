// RUN: qwen35-opt %s --qwen35-comm-simplify | FileCheck %s

module attributes {qdist.mesh = #qdist.mesh<dps = 2, tp = 2>} {
  // CHECK-LABEL: func @add_of_reductions(
  // CHECK-NEXT: %[[S:.*]] = qwen35.add %arg0, %arg1 : tensor<4x4xf32>
  // CHECK-NEXT: %[[R:.*]] = qdist.reduce_scatter %[[S]] over ["tp"]
  // CHECK-NEXT: return %[[R]]
  func.func @add_of_reductions(%a: tensor<4x4xf32>, %b: tensor<4x4xf32>) -> tensor<2x4xf32> {
    %0 = qdist.reduce_scatter %a over ["tp"] <{dim = 0}> : (tensor<4x4xf32>) -> tensor<2x4xf32>
    %1 = qdist.reduce_scatter %b over ["tp"] <{dim = 0}> : (tensor<4x4xf32>) -> tensor<2x4xf32>
    %2 = qwen35.add %0, %1 : tensor<2x4xf32>, tensor<2x4xf32>
    return %2 : tensor<2x4xf32>
  }

  // CHECK-LABEL: func @chain(
  // CHECK-NEXT: %[[S:.*]] = qwen35.add %arg1, %arg2 : tensor<4x4xf32>
  // CHECK-NEXT: %[[R:.*]] = qdist.reduce_scatter %[[S]] over ["tp"]
  // CHECK-NEXT: qwen35.add %arg0, %[[R]]
  func.func @chain(%x: tensor<2x4xf32>, %a: tensor<4x4xf32>, %b: tensor<4x4xf32>) -> tensor<2x4xf32> {
    %0 = qdist.reduce_scatter %a over ["tp"] <{dim = 0}> : (tensor<4x4xf32>) -> tensor<2x4xf32>
    %1 = qwen35.add %x, %0 : tensor<2x4xf32>, tensor<2x4xf32>
    %2 = qdist.reduce_scatter %b over ["tp"] <{dim = 0}> : (tensor<4x4xf32>) -> tensor<2x4xf32>
    %3 = qwen35.add %1, %2 : tensor<2x4xf32>, tensor<2x4xf32>
    return %3 : tensor<2x4xf32>
  }

  // Over other axes, and a maximum: not one sum.
  // CHECK-LABEL: func @other_reductions(
  // CHECK-COUNT-4: qdist.all_reduce
  func.func @other_reductions(%a: tensor<4xf32>, %b: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
    %0 = qdist.all_reduce %a over ["tp"] : (tensor<4xf32>) -> tensor<4xf32>
    %1 = qdist.all_reduce %b over ["dps"] : (tensor<4xf32>) -> tensor<4xf32>
    %2 = qwen35.add %0, %1 : tensor<4xf32>, tensor<4xf32>
    %3 = qdist.all_reduce %2 over ["tp"] <{kind = "max"}> : (tensor<4xf32>) -> tensor<4xf32>
    %4 = qdist.all_reduce %3 over ["tp"] <{kind = "max"}> : (tensor<4xf32>) -> tensor<4xf32>
    return %2, %4 : tensor<4xf32>, tensor<4xf32>
  }

  // CHECK-LABEL: func @read_twice(
  // CHECK-COUNT-2: qdist.reduce_scatter
  func.func @read_twice(%a: tensor<4x4xf32>, %b: tensor<4x4xf32>) -> (tensor<2x4xf32>, tensor<2x4xf32>) {
    %0 = qdist.reduce_scatter %a over ["tp"] <{dim = 0}> : (tensor<4x4xf32>) -> tensor<2x4xf32>
    %s = qwen35.scale %0 <{factor = 2.0}> : tensor<2x4xf32>
    %1 = qdist.reduce_scatter %b over ["tp"] <{dim = 0}> : (tensor<4x4xf32>) -> tensor<2x4xf32>
    %2 = qwen35.add %0, %1 : tensor<2x4xf32>, tensor<2x4xf32>
    return %2, %s : tensor<2x4xf32>, tensor<2x4xf32>
  }

  // CHECK-LABEL: func @slice_of_reduction(
  // CHECK-NEXT: qdist.reduce_scatter %arg0 over ["tp"] <{dim = 1 : i64}>
  // CHECK-NEXT: return
  func.func @slice_of_reduction(%a: tensor<4x4xf32>) -> tensor<4x2xf32> {
    %0 = qdist.all_reduce %a over ["tp"] : (tensor<4x4xf32>) -> tensor<4x4xf32>
    %1 = qdist.all_slice %0 over ["tp"] <{dim = 1}> : (tensor<4x4xf32>) -> tensor<4x2xf32>
    return %1 : tensor<4x2xf32>
  }

  // CHECK-LABEL: func @slice_of_gather(
  // CHECK-NEXT: return %arg0
  func.func @slice_of_gather(%a: tensor<2x4xf32>) -> tensor<2x4xf32> {
    %0 = qdist.all_gather %a over ["tp"] <{dim = 0}> : (tensor<2x4xf32>) -> tensor<4x4xf32>
    %1 = qdist.all_slice %0 over ["tp"] <{dim = 0}> : (tensor<4x4xf32>) -> tensor<2x4xf32>
    return %1 : tensor<2x4xf32>
  }
}
