// RUN: qwen35-interpret %s | FileCheck %s

// CHECK:      add = {{\[\[}}2, 4], [6, 8]]
// CHECK-NEXT: scale = {{\[\[}}0.5, 1], [1.5, 2]]
// CHECK-NEXT: mul_scalar = {{\[\[}}3, 6], [9, 12]]
// CHECK-NEXT: reshape = [1, 2, 3, 4]
// CHECK-NEXT: slice = {{\[\[}}2], [4]]
// CHECK-NEXT: concat = {{\[\[}}2, 1, 2], [4, 3, 4]]
// CHECK-NEXT: zeros = [0, 0]
// CHECK-NEXT: ones = 1
func.func @model() -> (tensor<2x2xf32> {qwen35.name = "add"}, tensor<2x2xf32> {qwen35.name = "scale"},
                       tensor<2x2xf32> {qwen35.name = "mul_scalar"}, tensor<4xf32> {qwen35.name = "reshape"},
                       tensor<2x1xf32> {qwen35.name = "slice"}, tensor<2x3xf32> {qwen35.name = "concat"},
                       tensor<2xf64> {qwen35.name = "zeros"}, tensor<f32> {qwen35.name = "ones"}) {
  %x = arith.constant dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>
  %three = arith.constant dense<3.0> : tensor<f32>
  %add = qwen35.add %x, %x : tensor<2x2xf32>, tensor<2x2xf32>
  %scale = qwen35.scale %x <{factor = 0.5}> : tensor<2x2xf32>
  %mul = qwen35.mul_scalar %x, %three : tensor<2x2xf32>, tensor<f32>
  %reshape = qwen35.reshape %x : tensor<2x2xf32> to tensor<4xf32>
  %slice = qwen35.slice %x <{axis = 1, start = 1, size = 1}> : tensor<2x2xf32>
  %concat = qwen35.concat %slice, %x <{axis = 1}> : tensor<2x1xf32>, tensor<2x2xf32>
  %zeros = qwen35.zeros : tensor<2xf64>
  %ones = qwen35.ones : tensor<f32>
  return %add, %scale, %mul, %reshape, %slice, %concat, %zeros, %ones
      : tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<4xf32>, tensor<2x1xf32>, tensor<2x3xf32>,
        tensor<2xf64>, tensor<f32>
}
