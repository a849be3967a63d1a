// RUN: not qwen35-opt %s --qwen35-verify-s0 2>&1 | FileCheck %s --check-prefix=S0
// RUN: not qwen35-opt %s --qwen35-verify-s1 2>&1 | FileCheck %s --check-prefix=S1
// RUN: not qwen35-opt %s --qwen35-verify-s4 2>&1 | FileCheck %s --check-prefix=S1
// RUN: not qwen35-opt %s --qwen35-verify-s5 2>&1 | FileCheck %s --check-prefix=S5
// RUN: not qwen35-opt %s --qwen35-verify-s6 2>&1 | FileCheck %s --check-prefix=S6

// S0: error: has 1 arguments, expected 5: ids, labels, seq, inv_count, aux_scale
// S1: error: has no function @eval
// S5: error: 'qwen35.scale' in stage S5
// S5: note: --qwen35-to-kernels should have removed it
// S6: error: 'func.func' in stage S6
// S6: note: --qwen35-plan-memory should have removed it
func.func @model(%x: tensor<f32>) -> tensor<f32> {
  %y = qwen35.scale %x <{factor = 2.0}> : tensor<f32>
  return %y : tensor<f32>
}
