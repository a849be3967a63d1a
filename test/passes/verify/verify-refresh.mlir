// RUN: not qwen35-opt %s --qwen35-verify-s1 2>&1 | FileCheck %s

// CHECK: argument 0 is a working copy of a weight, but the module has no function @refresh to make it
func.func @eval() {
  return
}
func.func @first() {
  return
}
func.func @only() {
  return
}
func.func @accumulate() {
  return
}
func.func @finish(%w: tensor<4xbf16> {qwen35.role = "work", qwen35.name = "w"}) {
  return
}
