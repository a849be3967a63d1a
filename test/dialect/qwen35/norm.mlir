// Every op of the chapter through text and bytecode; result types are inferred.
// RUN: qwen35-opt %s | qwen35-opt | FileCheck %s
// RUN: qwen35-opt %s --emit-bytecode | qwen35-opt | FileCheck %s

// CHECK-LABEL: func @rms_norm(
// CHECK:         qwen35.rms_norm %{{.*}}, %{{.*}} <{eps = 5.000000e-01 : f64, offset = 1.000000e+00 : f64}> : tensor<64x128xf32>, tensor<128xf32>
func.func @rms_norm(%x: tensor<64x128xf32>, %w: tensor<128xf32>) -> (tensor<64x128xf32>, tensor<64xf32>) {
  %y, %rstd = qwen35.rms_norm %x, %w <{eps = 0.5, offset = 1.0}> : tensor<64x128xf32>, tensor<128xf32>
  return %y, %rstd : tensor<64x128xf32>, tensor<64xf32>
}

// CHECK-LABEL: func @rms_norm_bwd(
// CHECK:         qwen35.rms_norm_bwd %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} <{offset = 1.000000e+00 : f64}> : tensor<64x128xf32>, tensor<64x128xf32>, tensor<128xf32>, tensor<64xf32>
func.func @rms_norm_bwd(%dy: tensor<64x128xf32>, %x: tensor<64x128xf32>, %w: tensor<128xf32>, %rstd: tensor<64xf32>)
    -> (tensor<64x128xf32>, tensor<128xf32>) {
  %dx, %dw = qwen35.rms_norm_bwd %dy, %x, %w, %rstd <{offset = 1.0}>
      : tensor<64x128xf32>, tensor<64x128xf32>, tensor<128xf32>, tensor<64xf32>
  return %dx, %dw : tensor<64x128xf32>, tensor<128xf32>
}

// CHECK-LABEL: func @gated_rms_norm(
// CHECK:         qwen35.gated_rms_norm %{{.*}}, %{{.*}}, %{{.*}} <{eps = 5.000000e-01 : f64}> : tensor<64x4x16xf32>, tensor<64x4x16xf32>, tensor<16xf32>
func.func @gated_rms_norm(%o: tensor<64x4x16xf32>, %z: tensor<64x4x16xf32>, %w: tensor<16xf32>)
    -> (tensor<64x4x16xf32>, tensor<64x4xf32>) {
  %y, %rstd = qwen35.gated_rms_norm %o, %z, %w <{eps = 0.5}> : tensor<64x4x16xf32>, tensor<64x4x16xf32>, tensor<16xf32>
  return %y, %rstd : tensor<64x4x16xf32>, tensor<64x4xf32>
}

// CHECK-LABEL: func @gated_rms_norm_bwd(
// CHECK:         qwen35.gated_rms_norm_bwd %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}  : tensor<64x4x16xf32>, tensor<64x4x16xf32>, tensor<64x4x16xf32>, tensor<16xf32>, tensor<64x4xf32>
func.func @gated_rms_norm_bwd(%dy: tensor<64x4x16xf32>, %o: tensor<64x4x16xf32>, %z: tensor<64x4x16xf32>,
                              %w: tensor<16xf32>, %rstd: tensor<64x4xf32>)
    -> (tensor<64x4x16xf32>, tensor<64x4x16xf32>, tensor<16xf32>) {
  %do, %dz, %dw = qwen35.gated_rms_norm_bwd %dy, %o, %z, %w, %rstd
      : tensor<64x4x16xf32>, tensor<64x4x16xf32>, tensor<64x4x16xf32>, tensor<16xf32>, tensor<64x4xf32>
  return %do, %dz, %dw : tensor<64x4x16xf32>, tensor<64x4x16xf32>, tensor<16xf32>
}
