include "dialect/Qwen35/IR/Qwen35Dialect.td"

def Qwen35_RouterOp : Qwen35_DiffOp<"router"> {
  let summary = "Softmax over the experts, top-k, renormalized weights";
  let description = [{
        (E1)  probs = softmax(logits)     over all E experts, f32
        (E2)  idx[t] = the top_k experts of largest probability; equal ones by lower id
        (E3)  weights[t,j] = probs[t,idx[t,j]] / sum_j probs[t,idx[t,j]]

    - **Shapes.** `logits`, `probs`: `[T,E]`; `weights`: `[T,K]`; `idx`: `[T,K]` i32.
    - **Constraints.** (C1) 1 <= top_k <= E. (C2) `logits` are not rounded to bf16: a tie that rounding makes would choose
      another expert.

    Example:
    ```mlir
    %weights, %idx, %probs = qwen35.router %logits <{top_k = 2}> : tensor<64x8xf32>
    ```
  }];
  let arguments = (ins Qwen35_Matrix:$logits, I64Attr:$top_k);
  let results = (outs Qwen35_Matrix:$weights, Qwen35_Ids:$idx, Qwen35_Matrix:$probs);
}

def Qwen35_RouterBwdOp : Qwen35_Op<"router_bwd"> {
  let summary = "Gradient of the renormalized router weights";
  let description = [{
        (E1)  dlogits[t,idx[t,j]] = w_j * (dweights_j - sum_i w_i dweights_i);  0 for experts that were not chosen

    Example:
    ```mlir
    %dlogits = qwen35.router_bwd %dweights, %weights, %idx <{experts = 8}> : tensor<64x2xf32>, tensor<64x2xf32>, tensor<64x2xi32>
    ```
  }];
  let arguments = (ins Qwen35_Matrix:$dweights, Qwen35_Matrix:$weights, Qwen35_Ids:$idx, I64Attr:$experts);
  let results = (outs Qwen35_Matrix:$dlogits);
}

def Qwen35_SoftmaxBwdOp : Qwen35_Op<"softmax_bwd"> {
  let summary = "Gradient of a row softmax";
  let description = [{
        (E1)  dlogits = probs * (dprobs - sum_e probs_e dprobs_e)

    Example:
    ```mlir
    %dlogits = qwen35.softmax_bwd %dprobs, %probs : tensor<64x8xf32>, tensor<64x8xf32>
    ```
  }];
  let arguments = (ins Qwen35_Matrix:$dprobs, Qwen35_Matrix:$probs);
  let results = (outs Qwen35_Matrix:$dlogits);
}

def Qwen35_RouterAuxOp : Qwen35_DiffOp<"router_aux", [AttrSizedOperandSegments]> {
  let summary = "Load-balance loss of the routers";
  let description = [{
    Over L layers and the N tokens that are not padding; c counts assignments, P averages probabilities:

        (E1)  pooled:    aux = E * sum_e f_e P_e with f_e = c_e / (L N), P_e = sum over layers and tokens / (L N)
        (E2)  per_layer: aux = sum_l E / (N K) * sum_e c[l,e] * P[l,e],   P[l,e] = mean over tokens

    Counts carry no gradient. A row of padding only has aux 0.

    - **Constraints.** (C1) `scope` is "pooled" or "per_layer". (C2) as many `probs` as `idx`, at least one, of one type.

    Example:
    ```mlir
    %aux = qwen35.router_aux (%p0, %p1) (%i0, %i1) %seq <{scope = "pooled"}>
        : (tensor<64x8xf32>, tensor<64x8xf32>) (tensor<64x2xi32>, tensor<64x2xi32>) !qwen35.seq<64, 3>
    ```
  }];
  let arguments = (ins Variadic<Qwen35_Matrix>:$probs, Variadic<Qwen35_Ids>:$idx, Qwen35_SeqType:$seq, StrAttr:$scope);
  let results = (outs Qwen35_Scalar:$aux);
  let assemblyFormat = [{
    `(` $probs `)` `(` $idx `)` $seq prop-dict attr-dict `:` `(` type($probs) `)` `(` type($idx) `)` type($seq)
  }];
}

def Qwen35_RouterAuxBwdOp : Qwen35_Op<"router_aux_bwd", [AttrSizedOperandSegments]> {
  let summary = "Gradient of router_aux with respect to the probabilities";
  let description = [{
        (E1)  pooled:    dprobs[t,e] = daux * E * f_e / (L N)
        (E2)  per_layer: dprobs[l,t,e] = daux * E / (N K) * c[l,e] / N

    Rows of padding get 0.

    Example:
    ```mlir
    %d0, %d1 = qwen35.router_aux_bwd %daux (%p0, %p1) (%i0, %i1) %seq <{scope = "pooled"}>
        : tensor<f32> (tensor<64x8xf32>, tensor<64x8xf32>) (tensor<64x2xi32>, tensor<64x2xi32>) !qwen35.seq<64, 3>
    ```
  }];
  let arguments = (ins Qwen35_Scalar:$daux, Variadic<Qwen35_Matrix>:$probs, Variadic<Qwen35_Ids>:$idx,
                       Qwen35_SeqType:$seq, StrAttr:$scope);
  let results = (outs Variadic<Qwen35_Matrix>:$dprobs);
  let assemblyFormat = [{
    $daux `(` $probs `)` `(` $idx `)` $seq prop-dict attr-dict `:` type($daux) `(` type($probs) `)` `(` type($idx) `)` type($seq)
  }];
}

def Qwen35_RouterStatsOp : Qwen35_Op<"router_stats", [AttrSizedOperandSegments]> {
  let summary = "What router_aux adds up over tokens, of the tokens of one rank";
  let description = [{
    Over the N tokens that are not padding and, if `scope` is "pooled", over all layers (one row g), else per layer:

        (E1)  counts[g,e] = how often e was chosen    (E2)  sums[g,e] = sum of probs[t,e]    (E3)  tokens = N

    The results of ranks with other tokens add up.

    - **Constraints.** (C1), (C2) as router_aux.

    Example:
    ```mlir
    %counts, %sums, %n = qwen35.router_stats (%p0, %p1) (%i0, %i1) %seq <{scope = "pooled"}>
        : (tensor<64x8xf32>, tensor<64x8xf32>) (tensor<64x2xi32>, tensor<64x2xi32>) !qwen35.seq<64, 3>
    ```
  }];
  let arguments = (ins Variadic<Qwen35_Matrix>:$probs, Variadic<Qwen35_Ids>:$idx, Qwen35_SeqType:$seq, StrAttr:$scope);
  let results = (outs Qwen35_Matrix:$counts, Qwen35_Matrix:$sums, Qwen35_Scalar:$tokens);
  let assemblyFormat = [{
    `(` $probs `)` `(` $idx `)` $seq prop-dict attr-dict `:` `(` type($probs) `)` `(` type($idx) `)` type($seq)
  }];
}

def Qwen35_RouterStatsAuxOp : Qwen35_Op<"router_stats_aux"> {
  let summary = "router_aux from what was added up over all ranks";
  let description = [{
    With N = max(tokens, 1):

        (E1)  pooled:    aux = E / (layers N)^2 * sum_e counts[0,e] * sums[0,e]
        (E2)  per_layer: aux = E / (slots N^2) * sum_{l,e} counts[l,e] * sums[l,e]

    - **Constraints.** (C1) `scope` as router_aux. (C2) `counts` and `sums` are of one type, of one row if pooled, else of `layers`
      rows. (C3) `layers` and `slots` are greater than zero.

    Example:
    ```mlir
    %aux = qwen35.router_stats_aux %counts, %sums, %n <{layers = 2, scope = "pooled", slots = 2}>
        : tensor<1x8xf32>, tensor<1x8xf32>, tensor<f32>
    ```
  }];
  let arguments = (ins Qwen35_Matrix:$counts, Qwen35_Matrix:$sums, Qwen35_Scalar:$tokens, StrAttr:$scope, I64Attr:$layers,
                       I64Attr:$slots);
  let results = (outs Qwen35_Scalar:$aux);
}

def Qwen35_RouterStatsGradOp : Qwen35_Op<"router_stats_grad"> {
  let summary = "Gradient of router_stats_aux with respect to the probabilities of one rank's tokens";
  let description = [{
    One result per layer. With N = max(tokens, 1):

        (E1)  pooled:    dprobs[l,t,e] = daux * E * counts[0,e] / (layers N)^2
        (E2)  per_layer: dprobs[l,t,e] = daux * E * counts[l,e] / (slots N^2)

    Rows of padding get 0.

    - **Constraints.** As router_stats_aux.

    Example:
    ```mlir
    %d0, %d1 = qwen35.router_stats_grad %daux, %counts, %n, %seq <{layers = 2, scope = "pooled", slots = 2}>
        : tensor<f32>, tensor<1x8xf32>, tensor<f32>, !qwen35.seq<64, 3>
    ```
  }];
  let arguments = (ins Qwen35_Scalar:$daux, Qwen35_Matrix:$counts, Qwen35_Scalar:$tokens, Qwen35_SeqType:$seq, StrAttr:$scope,
                       I64Attr:$layers, I64Attr:$slots);
  let results = (outs Variadic<Qwen35_Matrix>:$dprobs);
}

def Qwen35_MoeExpertsOp : Qwen35_DiffOp<"moe_experts"> {
  let summary = "Drop-less routed experts";
  let description = [{
    With expert e = idx[t,j], its gate rows `w_gate_up[e, 0:I]` and up rows `w_gate_up[e, I:2I]`:

        (E1)  h[t,j] = weights[t,j] * silu(gate_e x_t) * (up_e x_t)
        (E2)  y[t]   = sum_j w_down[e] h[t,j]         in slot order

    With `shard` the experts are those of one rank and idx -1 is an expert of another: its slot adds nothing, and y is the
    rank's part of a sum over the ranks.

    - **Shapes.** `x`, `y`: `[T,D]`; `weights`, `idx`: `[T,K]`; `w_gate_up`: `[E,2I,D]`; `w_down`: `[E,D,I]`.
    - **Constraints.** (C1) `weights` and `idx` are `[T,K]`. (C2) `w_gate_up` is `[E,2I,D]`, `w_down` `[E,D,I]`, both in the
      element type of `x`. (C3) `weights` are f32.

    Example:
    ```mlir
    %y = qwen35.moe_experts %x, %weights, %idx, %w_gate_up, %w_down
        : tensor<64x32xf32>, tensor<64x2xf32>, tensor<64x2xi32>, tensor<8x96x32xf32>, tensor<8x32x48xf32>
    ```
  }];
  let arguments = (ins Qwen35_Matrix:$x, Qwen35_Matrix:$weights, Qwen35_Ids:$idx, Qwen35_Heads:$w_gate_up, Qwen35_Heads:$w_down,
                       UnitAttr:$shard);
  let results = (outs Qwen35_Matrix:$y);
}

def Qwen35_MoeExpertsBwdOp : Qwen35_Op<"moe_experts_bwd"> {
  let summary = "Gradient of moe_experts";
  let description = [{
    dweights[t,j] = silu(gate) * up . (w_down[e]^T dy_t), from the recomputed activation; experts without tokens get a
    gradient of exactly 0. With `shard` slots of idx -1 belong to another rank and get dweights of 0.

    - **Rounding.** `dx` is rounded to the type of `x`; the gradients of weights and routing are f32.

    Example:
    ```mlir
    %dx, %dweights, %dgu, %ddown = qwen35.moe_experts_bwd %dy, %x, %weights, %idx, %w_gate_up, %w_down
        : tensor<64x32xf32>, tensor<64x32xf32>, tensor<64x2xf32>, tensor<64x2xi32>, tensor<8x96x32xf32>, tensor<8x32x48xf32>
    ```
  }];
  let arguments = (ins Qwen35_Matrix:$dy, Qwen35_Matrix:$x, Qwen35_Matrix:$weights, Qwen35_Ids:$idx,
                       Qwen35_Heads:$w_gate_up, Qwen35_Heads:$w_down, UnitAttr:$shard);
  let results = (outs Qwen35_Matrix:$dx, Qwen35_Matrix:$dweights, Qwen35_Heads:$dw_gate_up, Qwen35_Heads:$dw_down);
}
