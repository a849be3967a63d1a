// RUN: qwen35-opt %s --qwen35-schedule=in-flight=30000 | FileCheck %s

// Room for one reduction (16384 bytes in, 8192 out): the first is awaited ahead of the second.
module attributes {qdist.mesh = #qdist.mesh<dps = 2>} {
  // CHECK-LABEL: func @limit(
  // CHECK: %[[R:.*]] = qdist.reduce_scatter %{{.*}} over ["dps"] <{async, dim = 0 : i64}>
  // CHECK-NEXT: %[[Q:.*]] = qwen35.linear
  // CHECK-NEXT: qdist.wait %[[R]]
  // CHECK-NEXT: qwen35.add
  // CHECK-NEXT: %[[S:.*]] = qdist.reduce_scatter %[[Q]] over ["dps"] <{async, dim = 0 : i64}>
  // CHECK-NEXT: qwen35.linear
  // CHECK-NEXT: qdist.wait %[[S]]
  // CHECK-NEXT: qwen35.add
  func.func @limit(%x: tensor<64x64xf32>, %w: tensor<64x64xf32>, %s0: tensor<32x64xf32>, %s1: tensor<32x64xf32>)
      -> (tensor<32x64xf32>, tensor<32x64xf32>, tensor<64x64xf32>) {
    %p = qwen35.linear %x, %w : tensor<64x64xf32>, tensor<64x64xf32>
    %r = qdist.reduce_scatter %p over ["dps"] <{dim = 0}> : (tensor<64x64xf32>) -> tensor<32x64xf32>
    %a = qwen35.add %s0, %r : tensor<32x64xf32>, tensor<32x64xf32>
    %q = qwen35.linear %w, %x : tensor<64x64xf32>, tensor<64x64xf32>
    %t = qdist.reduce_scatter %q over ["dps"] <{dim = 0}> : (tensor<64x64xf32>) -> tensor<32x64xf32>
    %b = qwen35.add %s1, %t : tensor<32x64xf32>, tensor<32x64xf32>
    %z = qwen35.linear %w, %w : tensor<64x64xf32>, tensor<64x64xf32>
    return %a, %b, %z : tensor<32x64xf32>, tensor<32x64xf32>, tensor<64x64xf32>
  }
}
