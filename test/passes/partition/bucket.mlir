// RUN: qwen35-opt %s --qwen35-bucket=bytes=64 --split-input-file | FileCheck %s
// RUN: qwen35-opt %s --qwen35-bucket=bytes=0 --split-input-file | FileCheck %s --check-prefix=NONE
// RUN: not qwen35-opt %s --qwen35-bucket=bytes=-1 --split-input-file 2>&1 | FileCheck %s --check-prefix=BYTES

// NONE-NOT: all_reduce %{{[a-z0-9]*}},
// NONE-NOT: reduce_scatter %{{[a-z0-9]*}},
// NONE-NOT: all_gather %{{[a-z0-9]*}},
// BYTES: error: bytes of a bucket are -1, expected 0 or more

module attributes {qdist.mesh = #qdist.mesh<dps = 2, tp = 2>} {
  // One reduction for gradients that are all there; the third is made of a result and waits.
  // CHECK-LABEL: func @gradients(
  // CHECK-NEXT: %[[R:.*]]:2 = qdist.all_reduce %arg0, %arg1 over ["dps"]
  // CHECK-NEXT: %[[A:.*]] = qwen35.scale %[[R]]#0
  // CHECK-NEXT: %[[C:.*]] = qdist.all_reduce %[[A]] over ["dps"]
  // CHECK-NEXT: %[[B:.*]] = qwen35.scale %[[R]]#1
  func.func @gradients(%a: tensor<4xf32>, %b: tensor<2xf32>) -> (tensor<4xf32>, tensor<2xf32>) {
    %0 = qdist.all_reduce %a over ["dps"] : (tensor<4xf32>) -> tensor<4xf32>
    %1 = qwen35.scale %0 <{factor = 2.0}> : tensor<4xf32>
    %2 = qdist.all_reduce %b over ["dps"] : (tensor<2xf32>) -> tensor<2xf32>
    %3 = qwen35.scale %2 <{factor = 2.0}> : tensor<2xf32>
    %4 = qdist.all_reduce %1 over ["dps"] : (tensor<4xf32>) -> tensor<4xf32>
    return %4, %3 : tensor<4xf32>, tensor<2xf32>
  }

  // Two fill a bucket of 64 bytes, the third starts another; what is larger goes alone, where it is made.
  // CHECK-LABEL: func @limit(
  // CHECK-NEXT: %[[W:.*]] = qwen35.scale %arg3
  // CHECK-NEXT: %[[L:.*]] = qdist.all_reduce %[[W]] over ["dps"]
  // CHECK-NEXT: %[[X:.*]] = qwen35.scale %arg0
  // CHECK-NEXT: %[[Y:.*]] = qwen35.scale %arg1
  // CHECK-NEXT: %[[R:.*]]:2 = qdist.all_reduce %[[X]], %[[Y]] over ["dps"]
  // CHECK-NEXT: %[[Z:.*]] = qwen35.scale %arg2
  // CHECK-NEXT: %[[S:.*]] = qdist.all_reduce %[[Z]] over ["dps"]
  // CHECK-NEXT: return %[[R]]#0, %[[R]]#1, %[[S]], %[[L]]
  func.func @limit(%a: tensor<8xf32>, %b: tensor<8xf32>, %c: tensor<8xf32>, %d: tensor<17xf32>)
      -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<17xf32>) {
    %w = qwen35.scale %d <{factor = 2.0}> : tensor<17xf32>
    %x = qwen35.scale %a <{factor = 2.0}> : tensor<8xf32>
    %y = qwen35.scale %b <{factor = 2.0}> : tensor<8xf32>
    %z = qwen35.scale %c <{factor = 2.0}> : tensor<8xf32>
    %0 = qdist.all_reduce %x over ["dps"] : (tensor<8xf32>) -> tensor<8xf32>
    %1 = qdist.all_reduce %y over ["dps"] : (tensor<8xf32>) -> tensor<8xf32>
    %2 = qdist.all_reduce %z over ["dps"] : (tensor<8xf32>) -> tensor<8xf32>
    %3 = qdist.all_reduce %w over ["dps"] : (tensor<17xf32>) -> tensor<17xf32>
    return %0, %1, %2, %3 : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<17xf32>
  }

  // A microbatch: sums wait for the bucket, and are formed right behind it. Another element type is another bucket, and so are
  // other axes and another kind.
  // CHECK-LABEL: func @microbatch(
  // CHECK-NEXT: %[[X:.*]] = qwen35.scale %arg0
  // CHECK-NEXT: %[[Y:.*]] = qwen35.scale %arg1
  // CHECK-NEXT: %[[R:.*]]:2 = qdist.reduce_scatter %[[X]], %[[Y]] over ["dps"] <{dim = 0 : i64}> : (tensor<4xf32>, tensor<2xf32>) -> (tensor<2xf32>, tensor<1xf32>)
  // CHECK-DAG: %[[XS:.*]] = qwen35.add %arg4, %[[R]]#0
  // CHECK-DAG: %[[YS:.*]] = qwen35.add %[[R]]#1, %arg5
  // CHECK: %[[Z:.*]] = qwen35.scale %arg2
  // CHECK-NEXT: %[[P:.*]] = qdist.reduce_scatter %[[Z]] over ["dps"]
  // CHECK-NEXT: %[[V:.*]] = qwen35.scale %arg3
  // CHECK-NEXT: %[[Q:.*]] = qdist.all_reduce %[[V]] over ["dps", "tp"]
  // CHECK-NEXT: return %[[XS]], %[[YS]], %[[P]], %[[Q]]
  func.func @microbatch(%a: tensor<4xf32>, %b: tensor<2xf32>, %c: tensor<4xbf16>, %d: tensor<4xf32>, %g: tensor<2xf32>, %h: tensor<1xf32>)
      -> (tensor<2xf32>, tensor<1xf32>, tensor<2xbf16>, tensor<4xf32>) {
    %x = qwen35.scale %a <{factor = 2.0}> : tensor<4xf32>
    %0 = qdist.reduce_scatter %x over ["dps"] <{dim = 0}> : (tensor<4xf32>) -> tensor<2xf32>
    %1 = qwen35.add %g, %0 : tensor<2xf32>, tensor<2xf32>
    %y = qwen35.scale %b <{factor = 2.0}> : tensor<2xf32>
    %2 = qdist.reduce_scatter %y over ["dps"] <{dim = 0}> : (tensor<2xf32>) -> tensor<1xf32>
    %3 = qwen35.add %2, %h : tensor<1xf32>, tensor<1xf32>
    %z = qwen35.scale %c <{factor = 2.0}> : tensor<4xbf16>
    %4 = qdist.reduce_scatter %z over ["dps"] <{dim = 0}> : (tensor<4xbf16>) -> tensor<2xbf16>
    %v = qwen35.scale %d <{factor = 2.0}> : tensor<4xf32>
    %5 = qdist.all_reduce %v over ["dps", "tp"] : (tensor<4xf32>) -> tensor<4xf32>
    return %1, %3, %4, %5 : tensor<2xf32>, tensor<1xf32>, tensor<2xbf16>, tensor<4xf32>
  }

  // What is scattered and then reduced over the other axes: two buckets, one of what the other makes.
  // CHECK-LABEL: func @twice(
  // CHECK-NEXT: %[[R:.*]]:2 = qdist.reduce_scatter %arg0, %arg1 over ["dps"]
  // CHECK-NEXT: %[[S:.*]]:2 = qdist.all_reduce %[[R]]#0, %[[R]]#1 over ["tp"]
  // CHECK-NEXT: return %[[S]]#0, %[[S]]#1
  func.func @twice(%a: tensor<4xf32>, %b: tensor<2xf32>) -> (tensor<2xf32>, tensor<1xf32>) {
    %0 = qdist.reduce_scatter %a over ["dps"] <{dim = 0}> : (tensor<4xf32>) -> tensor<2xf32>
    %1 = qdist.all_reduce %0 over ["tp"] : (tensor<2xf32>) -> tensor<2xf32>
    %2 = qdist.reduce_scatter %b over ["dps"] <{dim = 0}> : (tensor<2xf32>) -> tensor<1xf32>
    %3 = qdist.all_reduce %2 over ["tp"] : (tensor<1xf32>) -> tensor<1xf32>
    return %1, %3 : tensor<2xf32>, tensor<1xf32>
  }

  // Gathers stay where the last of them was, ahead of who reads the first; those of backward are not those of forward.
  // CHECK-LABEL: func @weights(
  // CHECK-NEXT: %[[G:.*]]:2 = qdist.all_gather %arg0, %arg1 over ["dps"] <{dim = 0 : i64}> : (tensor<2xf32>, tensor<1xf32>) -> (tensor<4xf32>, tensor<2xf32>)
  // CHECK-NEXT: qwen35.scale %[[G]]#0
  // CHECK-NEXT: %[[A:.*]] = qdist.all_gather %arg0 over ["dps"] <{dim = 0 : i64}> {qwen35.recompute}
  // CHECK-NEXT: qwen35.scale %[[A]]
  func.func @weights(%a: tensor<2xf32>, %b: tensor<1xf32>) -> (tensor<4xf32>, tensor<2xf32>, tensor<4xf32>) {
    %0 = qdist.all_gather %a over ["dps"] <{dim = 0}> : (tensor<2xf32>) -> tensor<4xf32>
    %1 = qdist.all_gather %b over ["dps"] <{dim = 0}> : (tensor<1xf32>) -> tensor<2xf32>
    %2 = qwen35.scale %0 <{factor = 2.0}> : tensor<4xf32>
    %3 = qdist.all_gather %a over ["dps"] <{dim = 0}> {qwen35.recompute} : (tensor<2xf32>) -> tensor<4xf32>
    %4 = qwen35.scale %3 <{factor = 2.0}> : tensor<4xf32>
    return %2, %1, %4 : tensor<4xf32>, tensor<2xf32>, tensor<4xf32>
  }
}
