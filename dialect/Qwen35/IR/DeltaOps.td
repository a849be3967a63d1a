include "dialect/Qwen35/IR/Qwen35Dialect.td"

def Qwen35_CausalConvOp : Qwen35_DiffOp<"causal_conv"> {
  let summary = "Depthwise causal convolution over a document, then SiLU";
  let description = [{
        (E1)  p[t,c] = sum_{i < W} weight[c,0,i] * x[t - (W-1) + i, c]     terms before the document's first token are 0
        (E2)  y[t,c] = silu(p[t,c])

    - **Shapes.** `x`, `y`: `[T,C]`; `weight`: `[C,1,W]` as checkpoints store it; the last tap is the current token.
    - **Rounding.** Computed in f32, rounded once, to the type of `x`.
    - **Constraints.** (C1) `weight` is `[C,1,W]` for the C columns of `x`, in f32. (C2) tokens of `x` and `seq` agree.

    Example:
    ```mlir
    %y = qwen35.causal_conv %x, %w, %seq : tensor<64x128xf32>, tensor<128x1x4xf32>, !qwen35.seq<64, 3>
    ```
  }];
  let arguments = (ins Qwen35_Matrix:$x, Qwen35_Heads:$weight, Qwen35_SeqType:$seq);
  let results = (outs Qwen35_Matrix:$y);
}

def Qwen35_CausalConvBwdOp : Qwen35_Op<"causal_conv_bwd"> {
  let summary = "Gradient of causal_conv";
  let description = [{
    With dp = dy * silu'(p), p recomputed from `x`:

        (E1)  dx[s,c]     = sum_i weight[c,0,i] * dp[s + (W-1) - i, c]      inside the document of s
        (E2)  dweight[c,i] = sum_t dp[t,c] * x[t - (W-1) + i, c]            inside the document of t

    Example:
    ```mlir
    %dx, %dw = qwen35.causal_conv_bwd %dy, %x, %w, %seq
        : tensor<64x128xf32>, tensor<64x128xf32>, tensor<128x1x4xf32>, !qwen35.seq<64, 3>
    ```
  }];
  let arguments = (ins Qwen35_Matrix:$dy, Qwen35_Matrix:$x, Qwen35_Heads:$weight, Qwen35_SeqType:$seq);
  let results = (outs Qwen35_Matrix:$dx, Qwen35_Heads:$dweight);
}

def Qwen35_GdnGatesOp : Qwen35_DiffOp<"gdn_gates"> {
  let summary = "Decay and write strength of the delta rule";
  let description = [{
        (E1)  g    = -exp(a_log) * softplus(a + dt_bias)      log decay, <= 0, f32
        (E2)  beta = sigmoid(b)

    softplus is linear above 20.

    - **Shapes.** `a`, `b`, `g`, `beta`: `[T,Hv]`; `a_log`, `dt_bias`: `[Hv]`.
    - **Rounding.** `g` and `beta` are f32.
    - **Constraints.** (C1) `a` and `b` have one type. (C2) `a_log` and `dt_bias` have Hv elements, in f32.

    Example:
    ```mlir
    %g, %beta = qwen35.gdn_gates %a, %b, %a_log, %dt_bias : tensor<64x4xf32>, tensor<64x4xf32>, tensor<4xf32>, tensor<4xf32>
    ```
  }];
  let arguments = (ins Qwen35_Matrix:$a, Qwen35_Matrix:$b, Qwen35_Vector:$a_log, Qwen35_Vector:$dt_bias);
  let results = (outs Qwen35_Matrix:$g, Qwen35_Matrix:$beta);
}

def Qwen35_GdnGatesBwdOp : Qwen35_Op<"gdn_gates_bwd"> {
  let summary = "Gradient of gdn_gates";
  let description = [{
        (E1)  da = -dg * exp(a_log) * sigmoid(a + dt_bias)     (E2)  db = dbeta * beta * (1 - beta)
        (E3)  da_log = sum_t dg * g                            (E4)  ddt_bias = sum_t da

    Example:
    ```mlir
    %da, %db, %da_log, %ddt = qwen35.gdn_gates_bwd %dg, %dbeta, %a, %b, %a_log, %dt_bias
        : tensor<64x4xf32>, tensor<64x4xf32>, tensor<64x4xf32>, tensor<64x4xf32>, tensor<4xf32>, tensor<4xf32>
    ```
  }];
  let arguments = (ins Qwen35_Matrix:$dg, Qwen35_Matrix:$dbeta, Qwen35_Matrix:$a, Qwen35_Matrix:$b,
                       Qwen35_Vector:$a_log, Qwen35_Vector:$dt_bias);
  let results = (outs Qwen35_Matrix:$da, Qwen35_Matrix:$db, Qwen35_Vector:$da_log, Qwen35_Vector:$ddt_bias);
}

def Qwen35_GatedDeltaRuleOp : Qwen35_DiffOp<"gated_delta_rule"> {
  let summary = "Gated delta rule: linear attention with decay and rank-one writes";
  let description = [{
    q and k are L2-normalized per head (eps inside the root, added to the sum); value head j uses key head j / (Hv/Hk).
    State S `[dk,dv]` is zero before the first token of every document:

        (E1)  S <- exp(g_t) S
        (E2)  delta = beta_t (v_t - S^T k_t)
        (E3)  S <- S + k_t delta^T
        (E4)  o_t = S^T (scale q_t)

    - **Shapes.** `q`, `k`: `[T,Hk,dk]`; `v`, `o`: `[T,Hv,dv]`; `g`, `beta`: `[T,Hv]`.
    - **Rounding.** S is f32; `o` is rounded once, to the type of `v`.
    - **Constraints.** (C1) `q` and `k` have one type, of the elements of `v`. (C2) Hk divides Hv. (C3) `g` and `beta` are
      `[T,Hv]`, in f32. (C4) tokens of `seq` agree.
    - **Source.** arXiv:2412.06464.

    Example:
    ```mlir
    %o = qwen35.gated_delta_rule %q, %k, %v, %g, %beta, %seq <{scale = 0.25, eps = 1.0e-6}>
        : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4x16xf32>, tensor<64x4xf32>, tensor<64x4xf32>, !qwen35.seq<64, 3>
    ```
  }];
  let arguments = (ins Qwen35_Heads:$q, Qwen35_Heads:$k, Qwen35_Heads:$v, Qwen35_Matrix:$g, Qwen35_Matrix:$beta,
                       Qwen35_SeqType:$seq, F64Attr:$scale, F64Attr:$eps);
  let results = (outs Qwen35_Heads:$o);
}

def Qwen35_GatedDeltaRuleBwdOp : Qwen35_Op<"gated_delta_rule_bwd"> {
  let summary = "Gradient of gated_delta_rule";
  let description = [{
    MODEL.md 13.7, through the L2 norm of q and k; dq and dk are summed over the value heads of a key head.

    Example:
    ```mlir
    %dq, %dk, %dv, %dg, %dbeta = qwen35.gated_delta_rule_bwd %do, %q, %k, %v, %g, %beta, %seq <{scale = 0.25, eps = 1.0e-6}>
        : tensor<64x4x16xf32>, tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4x16xf32>, tensor<64x4xf32>,
          tensor<64x4xf32>, !qwen35.seq<64, 3>
    ```
  }];
  let arguments = (ins Qwen35_Heads:$d_o, Qwen35_Heads:$q, Qwen35_Heads:$k, Qwen35_Heads:$v, Qwen35_Matrix:$g,
                       Qwen35_Matrix:$beta, Qwen35_SeqType:$seq, F64Attr:$scale, F64Attr:$eps);
  let results = (outs Qwen35_Heads:$dq, Qwen35_Heads:$dk, Qwen35_Heads:$dv, Qwen35_Matrix:$dg, Qwen35_Matrix:$dbeta);
}
