// RUN: qwen35-opt %s --qwen35-schedule --split-input-file | FileCheck %s
// RUN: qwen35-opt %s --qwen35-schedule=in-flight=0 --split-input-file | FileCheck %s --check-prefix=NONE
// RUN: not qwen35-opt %s --qwen35-schedule=in-flight=-1 --split-input-file 2>&1 | FileCheck %s --check-prefix=BYTES

// NONE-NOT: qdist.wait
// BYTES: error: bytes in flight are -1, expected 0 or more

module attributes {qdist.mesh = #qdist.mesh<dps = 2>} {
  // A layer's weights are gathered while the one before computes, not earlier; awaited where they are read.
  // CHECK-LABEL: func @weights(
  // CHECK-SAME: %[[X:.*]]: tensor<4096x4096xf32>, %[[A:.*]]: tensor<2048x4096xf32>, %[[B:.*]]: tensor<2048x4096xf32>
  // CHECK-NEXT: %[[GA:.*]] = qdist.all_gather %[[A]] over ["dps"] <{dim = 0 : i64}>
  // CHECK-NEXT: %[[P:.*]] = qwen35.linear %[[X]], %[[GA]]
  // CHECK-NEXT: %[[Q:.*]] = qwen35.linear %[[P]], %[[GA]]
  // CHECK-NEXT: %[[GB:.*]] = qdist.all_gather %[[B]] over ["dps"] <{async, dim = 0 : i64}>
  // CHECK-NEXT: %[[R:.*]] = qwen35.linear %[[Q]], %[[GA]]
  // CHECK-NEXT: %[[W:.*]] = qdist.wait %[[GB]]
  // CHECK-NEXT: qwen35.linear %[[R]], %[[W]]
  func.func @weights(%x: tensor<4096x4096xf32>, %a: tensor<2048x4096xf32>, %b: tensor<2048x4096xf32>) -> tensor<4096x4096xf32> {
    %ga = qdist.all_gather %a over ["dps"] <{dim = 0}> : (tensor<2048x4096xf32>) -> tensor<4096x4096xf32>
    %p = qwen35.linear %x, %ga : tensor<4096x4096xf32>, tensor<4096x4096xf32>
    %q = qwen35.linear %p, %ga : tensor<4096x4096xf32>, tensor<4096x4096xf32>
    %r = qwen35.linear %q, %ga : tensor<4096x4096xf32>, tensor<4096x4096xf32>
    %gb = qdist.all_gather %b over ["dps"] <{dim = 0}> : (tensor<2048x4096xf32>) -> tensor<4096x4096xf32>
    %s = qwen35.linear %r, %gb : tensor<4096x4096xf32>, tensor<4096x4096xf32>
    return %s : tensor<4096x4096xf32>
  }

  // A gradient flies while backward goes on; what adds it to its sum comes behind the wait.
  // CHECK-LABEL: func @gradient(
  // CHECK-NEXT: %[[P:.*]] = qwen35.linear
  // CHECK-NEXT: %[[R:.*]] = qdist.reduce_scatter %[[P]] over ["dps"] <{async, dim = 0 : i64}>
  // CHECK-NEXT: %[[Q:.*]] = qwen35.linear
  // CHECK-NEXT: %[[W:.*]] = qdist.wait %[[R]]
  // CHECK-NEXT: %[[S:.*]] = qwen35.add %{{.*}}, %[[W]]
  // CHECK-NEXT: return %[[S]], %[[Q]]
  func.func @gradient(%x: tensor<64x64xf32>, %w: tensor<64x64xf32>, %sum: tensor<32x64xf32>) -> (tensor<32x64xf32>, tensor<64x64xf32>) {
    %p = qwen35.linear %x, %w : tensor<64x64xf32>, tensor<64x64xf32>
    %r = qdist.reduce_scatter %p over ["dps"] <{dim = 0}> : (tensor<64x64xf32>) -> tensor<32x64xf32>
    %s = qwen35.add %sum, %r : tensor<32x64xf32>, tensor<32x64xf32>
    %q = qwen35.linear %w, %x : tensor<64x64xf32>, tensor<64x64xf32>
    return %s, %q : tensor<32x64xf32>, tensor<64x64xf32>
  }

  // Nothing to compute meanwhile: it stays as it is.
  // CHECK-LABEL: func @nothing(
  // CHECK-NEXT: %[[P:.*]] = qwen35.scale
  // CHECK-NEXT: %[[R:.*]] = qdist.all_reduce %[[P]] over ["dps"] :
  // CHECK-NEXT: qwen35.scale %[[R]]
  func.func @nothing(%x: tensor<64xf32>) -> tensor<64xf32> {
    %p = qwen35.scale %x <{factor = 2.0}> : tensor<64xf32>
    %r = qdist.all_reduce %p over ["dps"] : (tensor<64xf32>) -> tensor<64xf32>
    %s = qwen35.scale %r <{factor = 2.0}> : tensor<64xf32>
    return %s : tensor<64xf32>
  }

  // The product before that only the end reads, and one behind that needs nothing of it, fill the gap.
  // CHECK-LABEL: func @gap(
  // CHECK-NEXT: %[[Y:.*]] = qwen35.linear %arg1, %arg0
  // CHECK-NEXT: %[[R:.*]] = qdist.all_reduce %[[Y]] over ["dps"] <{async}>
  // CHECK-NEXT: %[[E:.*]] = qwen35.matmul %arg1, %arg1
  // CHECK-NEXT: %[[D:.*]] = qwen35.matmul %arg0, %arg1
  // CHECK-NEXT: %[[W:.*]] = qdist.wait %[[R]]
  // CHECK-NEXT: %[[S:.*]] = qwen35.scale %[[W]]
  // CHECK-NEXT: return %[[S]], %[[D]], %[[E]]
  func.func @gap(%x: tensor<64x64xf32>, %w: tensor<64x64xf32>) -> (tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>) {
    %d = qwen35.matmul %x, %w : tensor<64x64xf32>, tensor<64x64xf32>
    %y = qwen35.linear %w, %x : tensor<64x64xf32>, tensor<64x64xf32>
    %r = qdist.all_reduce %y over ["dps"] : (tensor<64x64xf32>) -> tensor<64x64xf32>
    %s = qwen35.scale %r <{factor = 2.0}> : tensor<64x64xf32>
    %e = qwen35.matmul %w, %w : tensor<64x64xf32>, tensor<64x64xf32>
    return %s, %d, %e : tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>
  }
}

// -----

// Without a mesh there is nothing to do.
// CHECK-LABEL: func @alone(
// CHECK-NEXT: qwen35.scale
func.func @alone(%x: tensor<64xf32>) -> tensor<64xf32> {
  %p = qwen35.scale %x <{factor = 2.0}> : tensor<64xf32>
  return %p : tensor<64xf32>
}
