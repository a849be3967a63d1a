// RUN: qwen35-opt %s --qwen35-verify-s4
// RUN: not qwen35-opt %s --qwen35-verify-s1 2>&1 | FileCheck %s

// Groups are what S4 adds.
// CHECK: 'qkern.group' in stage S1
func.func @eval() {
  return
}
func.func @first() {
  return
}
func.func @only() {
  return
}
func.func @accumulate(%x: tensor<f32> {qwen35.role = "sum", qwen35.name = "loss"}) -> (tensor<f32> {qwen35.alias = 0 : i64}) {
  %y = qkern.group {
    %0 = qwen35.scale %x <{factor = 2.0}> : tensor<f32>
    qkern.yield %0 : tensor<f32>
  } : tensor<f32>
  return %y : tensor<f32>
}
func.func @finish() {
  return
}
