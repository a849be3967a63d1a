include "dialect/Qwen35/IR/Qwen35Dialect.td"

def Qwen35_RmsNormOp : Qwen35_DiffOp<"rms_norm"> {
  let summary = "Root-mean-square normalization of each row";
  let description = [{
    For row `t` and column `d`:

        (E1)  r[t]   = 1 / sqrt(mean_d(x[t,d]^2) + eps)
        (E2)  y[t,d] = x[t,d] * r[t] * (offset + weight[d])

    - **Shapes.** `x`, `y`: `[..., D]`; `weight`: `[D]`; `rstd`: `[...]`, r in f32.
    - **Rounding.** Computed in f32; `y` is rounded once, to the type of `x`.
    - **Constraints.** (C1) `weight` has one element per column of `x`, in f32. (C2) `eps` is greater than zero.
    - **Source.** arXiv:1910.07467. Qwen3.5 stores weights around zero, so its norms have `offset` 1.

    Example:
    ```mlir
    %y, %rstd = qwen35.rms_norm %x, %w <{eps = 1.0e-6, offset = 1.0}> : tensor<64x128xf32>, tensor<128xf32>
    ```
  }];
  let arguments = (ins Qwen35_Tensor:$x, Qwen35_Vector:$weight, F64Attr:$eps, DefaultValuedAttr<F64Attr, "0.0">:$offset);
  let results = (outs Qwen35_Tensor:$y, Qwen35_Tensor:$rstd);
}

def Qwen35_RmsNormBwdOp : Qwen35_Op<"rms_norm_bwd"> {
  let summary = "Gradient of rms_norm";
  let description = [{
    With xh = x * rstd and u = dy * (offset + weight):

        (E1)  dx = rstd * (u - xh * mean(u * xh))
        (E2)  dweight[d] = sum_t dy[t,d] * xh[t,d]

    - **Constraints.** (C1) `dy` has the type of `x`. (C2) `weight` has one element per column. (C3) `weight` and `rstd` are
      f32.

    Example:
    ```mlir
    %dx, %dw = qwen35.rms_norm_bwd %dy, %x, %w, %rstd <{offset = 1.0}>
        : tensor<64x128xf32>, tensor<64x128xf32>, tensor<128xf32>, tensor<64xf32>
    ```
  }];
  let arguments = (ins Qwen35_Tensor:$dy, Qwen35_Tensor:$x, Qwen35_Vector:$weight, Qwen35_Tensor:$rstd,
                       DefaultValuedAttr<F64Attr, "0.0">:$offset);
  let results = (outs Qwen35_Tensor:$dx, Qwen35_Vector:$dweight);
}

def Qwen35_GatedRmsNormOp : Qwen35_DiffOp<"gated_rms_norm"> {
  let summary = "RMS norm of each head row, then a SiLU gate";
  let description = [{
        (E1)  r = 1 / sqrt(mean_d(o^2) + eps)
        (E2)  y = weight * (o * r) * silu(z)

    - **Shapes.** `o`, `z`, `y`: `[T,H,d]`; `weight`: `[d]`, shared by the heads; `rstd`: `[T,H]` in f32.
    - **Rounding.** Computed in f32; `y` is rounded once (the reference rounds o*r as well, MODEL.md 2.3).
    - **Constraints.** (C1) `z` has the type of `o`. (C2) `weight` has d elements, in f32. (C3) `eps` is greater than zero.

    Example:
    ```mlir
    %y, %rstd = qwen35.gated_rms_norm %o, %z, %w <{eps = 1.0e-6}> : tensor<64x4x16xf32>, tensor<64x4x16xf32>, tensor<16xf32>
    ```
  }];
  let arguments = (ins Qwen35_Heads:$o, Qwen35_Heads:$z, Qwen35_Vector:$weight, F64Attr:$eps);
  let results = (outs Qwen35_Heads:$y, Qwen35_Matrix:$rstd);
}

def Qwen35_GatedRmsNormBwdOp : Qwen35_Op<"gated_rms_norm_bwd"> {
  let summary = "Gradient of gated_rms_norm";
  let description = [{
    With n = o * rstd, s = silu(z) and u = dy * weight * s:

        (E1)  do = rstd * (u - n * mean(u * n))
        (E2)  dz = dy * n * weight * silu'(z)
        (E3)  dweight = sum over tokens and heads of dy * n * s

    - **Constraints.** (C1) `dy`, `o` and `z` have one type. (C2) `weight` has d elements. (C3) `weight` and `rstd` are f32.

    Example:
    ```mlir
    %do, %dz, %dw = qwen35.gated_rms_norm_bwd %dy, %o, %z, %w, %rstd
        : tensor<64x4x16xf32>, tensor<64x4x16xf32>, tensor<64x4x16xf32>, tensor<16xf32>, tensor<64x4xf32>
    ```
  }];
  let arguments = (ins Qwen35_Heads:$dy, Qwen35_Heads:$o, Qwen35_Heads:$z, Qwen35_Vector:$weight, Qwen35_Matrix:$rstd);
  let results = (outs Qwen35_Heads:$d_o, Qwen35_Heads:$dz, Qwen35_Vector:$dweight);
}
