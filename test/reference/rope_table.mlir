// RUN: qwen35-interpret %s --documents 2,1 | FileCheck %s

// Positions 0, 1 of the first document, 0 of the second, 0 of the padding; angles p and p / 100.
// CHECK:      result0 = {{\[\[\[}}1, 0], [1, 0]],
// CHECK-SAME:   {{\[\[}}0.54030230586{{[0-9]*}}, 0.84147098480{{[0-9]*}}], [0.99995000041{{[0-9]*}}, 0.009999833334{{[0-9]*}}]],
// CHECK-SAME:   {{\[\[}}1, 0], [1, 0]], {{\[\[}}1, 0], [1, 0]]]
func.func @model(%seq: !qwen35.seq<4, 3>) -> tensor<4x2x2xf32> {
  %table = qwen35.rope_table %seq <{theta = 1.0e4, rotary_dim = 4}> : !qwen35.seq<4, 3>
  return %table : tensor<4x2x2xf32>
}
