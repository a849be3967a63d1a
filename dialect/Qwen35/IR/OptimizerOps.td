include "dialect/Qwen35/IR/Qwen35Dialect.td"

def Qwen35_Scalar64 : Qwen35_Static<[F64], 0, "f64 scalar tensor">;

def Qwen35_NormSqOp : Qwen35_Op<"norm_sq"> {
  let summary = "Adds the sum of squares of a tensor to a running sum";
  let description = [{
        (E1)  result = acc + sum x^2        in f64, fixed order

    A chain of these over the gradients gives the global norm.

    - **Constraints.** (C1) `x` is a gradient of a parameter, which is never bf16.

    Example:
    ```mlir
    %n = qwen35.norm_sq %g, %acc : tensor<64x32xf32>, tensor<f64>
    ```
  }];
  let arguments = (ins Qwen35_Tensor:$x, Qwen35_Scalar64:$acc);
  let results = (outs Qwen35_Scalar64:$result);
}

def Qwen35_ClipFactorOp : Qwen35_Op<"clip_factor"> {
  let summary = "Global norm, clip factor and the non-finite guard";
  let description = [{
        (E1)  norm   = sqrt(norm_sq)
        (E2)  factor = min(1, max_norm / (norm + 1e-6));  1 when max_norm is 0 (no clipping)
        (E3)  commit = 1 when norm is finite, else 0

    - **Constraints.** (C1) `max_norm` is not negative.

    Example:
    ```mlir
    %norm, %factor, %commit = qwen35.clip_factor %n <{max_norm = 1.0}> : tensor<f64>
    ```
  }];
  let arguments = (ins Qwen35_Scalar64:$norm_sq, F64Attr:$max_norm);
  let results = (outs Qwen35_Scalar:$norm, Qwen35_Scalar:$factor, Qwen35_Scalar:$commit);
}

def Qwen35_AdamWOp : Qwen35_Op<"adamw"> {
  let summary = "AdamW with decoupled decay";
  let description = [{
    With g = factor * grad:

        (E1)  m' = beta1 m + (1 - beta1) g       (E2)  v' = beta2 v + (1 - beta2) g^2
        (E3)  p' = p (1 - lr weight_decay) - lr (m' / bc1) / (sqrt(v' / bc2) + eps)

    `bc1` = 1 - beta1^step and `bc2` = 1 - beta2^step are run-time scalars. When `commit` is 0 the results are the
    operands, bit for bit. Results overwrite `p`, `m` and `v`.

    With `work_type` there is a fourth result, p' rounded to that type: what the products of the next step read.

    - **Constraints.** (C1) `p`, `m`, `v` and `grad` have one shape. (C2) they are not bf16, and (C3) nor are the scalars.
      (C4) `work_type` is bf16.
    - **Source.** arXiv:1711.05101, as torch.optim.AdamW rounds it.

    Example:
    ```mlir
    %p1, %m1, %v1 = qwen35.adamw %p, %m, %v, %g, %lr, %factor, %bc1, %bc2, %commit
        <{beta1 = 0.9, beta2 = 0.95, eps = 1.0e-8, weight_decay = 0.1}>
        : tensor<64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<f32>, tensor<f32>, tensor<f32>,
          tensor<f32>, tensor<f32>
    ```
  }];
  let arguments = (ins Qwen35_Tensor:$p, Qwen35_Tensor:$m, Qwen35_Tensor:$v, Qwen35_Tensor:$grad, Qwen35_Scalar:$lr,
                       Qwen35_Scalar:$factor, Qwen35_Scalar:$bc1, Qwen35_Scalar:$bc2, Qwen35_Scalar:$commit,
                       F64Attr:$beta1, F64Attr:$beta2, F64Attr:$eps, F64Attr:$weight_decay,
                       OptionalAttr<TypeAttr>:$work_type);
  let results = (outs Qwen35_Tensor:$p_new, Qwen35_Tensor:$m_new, Qwen35_Tensor:$v_new, Optional<Qwen35_Tensor>:$work);
}
