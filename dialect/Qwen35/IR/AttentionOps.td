include "dialect/Qwen35/IR/Qwen35Dialect.td"

def Qwen35_RopeTableOp : Qwen35_Op<"rope_table"> {
  let summary = "Cosine and sine of every token's rotary angles";
  let description = [{
        (E1)  phi[t,j] = (t - first token of the document of t) * theta^(-2j / rotary_dim)
        (E2)  table[t,j,0] = cos(phi[t,j]), table[t,j,1] = sin(phi[t,j])

    Positions restart at every document. One table serves every layer of a step.

    - **Shapes.** `table`: `[T, rotary_dim/2, 2]` in f32; angles are formed in f64.
    - **Constraints.** (C1) `rotary_dim` is even and positive. (C2) `theta` is greater than one.

    Example:
    ```mlir
    %table = qwen35.rope_table %seq <{theta = 1.0e7, rotary_dim = 8}> : !qwen35.seq<64, 3>
    ```
  }];
  let arguments = (ins Qwen35_SeqType:$seq, F64Attr:$theta, I64Attr:$rotary_dim);
  let results = (outs Qwen35_Heads:$table);
}

def Qwen35_RopeOp : Qwen35_DiffOp<"rope"> {
  let summary = "Rotary position embedding of the first dims of each head";
  let description = [{
    With R = 2 * table.dim(1), index j < R/2 pairs with j + R/2 (rotate-half):

        (E1)  y[j]       = x[j] * cos - x[j + R/2] * sin
        (E2)  y[j + R/2] = x[j + R/2] * cos + x[j] * sin
        (E3)  y[d]       = x[d] for d >= R

    `inverse` rotates by the negative angle: the VJP of the rotation.

    - **Rounding.** Computed in f32, rounded once, to the type of `x`.
    - **Constraints.** (C1) `table` has one row per token of `x`, in f32. (C2) R does not exceed the head size.

    Example:
    ```mlir
    %y = qwen35.rope %x, %table : tensor<64x4x32xf32>, tensor<64x4x2xf32>
    ```
  }];
  let arguments = (ins Qwen35_Heads:$x, Qwen35_Heads:$table, DefaultValuedAttr<BoolAttr, "false">:$inverse);
  let results = (outs Qwen35_Heads:$y);
}

def Qwen35_AttentionOp : Qwen35_DiffOp<"attention"> {
  let summary = "Causal grouped-query attention inside documents";
  let description = [{
    Query head h reads key/value head h / (Hq/Hkv). Token t sees s when s <= t and both are of one document:

        (E1)  p[t,h,s] = exp(scale * q[t,h] . k[s] - lse[t,h])
        (E2)  o[t,h]   = sum_s p[t,h,s] * v[s]

    - **Shapes.** `q`, `o`: `[T,Hq,d]`; `k`, `v`: `[T,Hkv,d]`; `lse`: `[T,Hq]` in f32.
    - **Constraints.** (C1) `k` and `v` have one type, of the elements of `q`. (C2) Hkv divides Hq. (C3) tokens of q, k, v
      and `seq` agree.

    Example:
    ```mlir
    %o, %lse = qwen35.attention %q, %k, %v, %seq <{scale = 0.125}>
        : tensor<64x4x64xf32>, tensor<64x2x64xf32>, tensor<64x2x64xf32>, !qwen35.seq<64, 3>
    ```
  }];
  let arguments = (ins Qwen35_Heads:$q, Qwen35_Heads:$k, Qwen35_Heads:$v, Qwen35_SeqType:$seq, F64Attr:$scale);
  let results = (outs Qwen35_Heads:$o, Qwen35_Matrix:$lse);
}

def Qwen35_AttentionBwdOp : Qwen35_Op<"attention_bwd"> {
  let summary = "Gradient of attention";
  let description = [{
    With delta[t,h] = do[t,h] . o[t,h] and ds = p * (do . v - delta):

        (E1)  dv[s] = sum_{t,h} p * do     (E2)  dq[t,h] = scale * sum_s ds * k[s]     (E3)  dk[s] = scale * sum_{t,h} ds * q

    Sums over the query heads of a key head are part of (E1) and (E3).

    Example:
    ```mlir
    %dq, %dk, %dv = qwen35.attention_bwd %do, %q, %k, %v, %o, %lse, %seq <{scale = 0.125}>
        : tensor<64x4x64xf32>, tensor<64x4x64xf32>, tensor<64x2x64xf32>, tensor<64x2x64xf32>, tensor<64x4x64xf32>,
          tensor<64x4xf32>, !qwen35.seq<64, 3>
    ```
  }];
  let arguments = (ins Qwen35_Heads:$d_o, Qwen35_Heads:$q, Qwen35_Heads:$k, Qwen35_Heads:$v, Qwen35_Heads:$o,
                       Qwen35_Matrix:$lse, Qwen35_SeqType:$seq, F64Attr:$scale);
  let results = (outs Qwen35_Heads:$dq, Qwen35_Heads:$dk, Qwen35_Heads:$dv);
}

def Qwen35_MulSigmoidOp : Qwen35_DiffOp<"mul_sigmoid"> {
  let summary = "Sigmoid gate: x * sigmoid(gate)";
  let description = [{
    The gate of attention outputs (`gate` shaped like `x`) and of the shared expert (`gate` is `[T,1]`, `x` is `[T,D]`).

    - **Constraints.** (C1) `gate` has the type of `x`, or is one value per row of a matrix `x`, in its elements.

    Example:
    ```mlir
    %y = qwen35.mul_sigmoid %x, %gate : tensor<64x4x32xf32>, tensor<64x4x32xf32>
    ```
  }];
  let arguments = (ins Qwen35_Tensor:$x, Qwen35_Tensor:$gate);
  let results = (outs Qwen35_Tensor:$y);
}

def Qwen35_MulSigmoidBwdOp : Qwen35_Op<"mul_sigmoid_bwd"> {
  let summary = "Gradient of mul_sigmoid";
  let description = [{
    With s = sigmoid(gate): dx = dy * s; dgate = dy * x * s * (1 - s), summed over the row when `gate` is `[T,1]`.

    Example:
    ```mlir
    %dx, %dgate = qwen35.mul_sigmoid_bwd %dy, %x, %gate : tensor<64x32xf32>, tensor<64x32xf32>, tensor<64x1xf32>
    ```
  }];
  let arguments = (ins Qwen35_Tensor:$dy, Qwen35_Tensor:$x, Qwen35_Tensor:$gate);
  let results = (outs Qwen35_Tensor:$dx, Qwen35_Tensor:$dgate);
}
