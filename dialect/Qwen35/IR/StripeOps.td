include "dialect/Qwen35/IR/Qwen35Dialect.td"

// One rank's part of a row that is cut over a context-parallel group (DESIGN.md 4.3, 4.4; runtime/schema/stripe_table.h).
//
// With n ranks the row is 2n stripes of equal length; a rank holds two of them, one after the other. T counts the tokens of
// one rank, so a stripe has T/2. `seq` is the rank's own document table: its documents are segments, what the rank's
// stripes have of the documents of the row, and none crosses the end of a stripe. `stripes`, `[8 + 6n]` words, says which
// stripes the rank has, what a document had before each, and in which slot a gather over the ranks puts each. A gathered
// operand is what `qdist.all_gather` over the group makes of the ranks' parts along dimension 0: slots in rank order.
//
// "The tables agree" is one constraint in all of them: `stripes` has 8 + 6n words for some n >= 1, T is even, and `seq` has T
// tokens.

def Qwen35_CpRopeTableOp : Qwen35_Op<"cp_rope_table"> {
  let summary = "rope_table of a rank's tokens";
  let description = [{
    As `rope_table`, where positions count from the first token of the document, on whatever rank that is.

    - **Shapes.** `table`: `[T, rotary_dim/2, 2]` in f32.
    - **Constraints.** (C1) `rotary_dim` is even and positive. (C2) `theta` is greater than one. (C3) The tables agree.

    Example:
    ```mlir
    %table = qwen35.cp_rope_table %seq, %stripes <{theta = 1.0e7, rotary_dim = 8}> : !qwen35.seq<64, 4>, tensor<20xi32>
    ```
  }];
  let arguments = (ins Qwen35_SeqType:$seq, Qwen35_Stripes:$stripes, F64Attr:$theta, I64Attr:$rotary_dim);
  let results = (outs Qwen35_Heads:$table);
}

def Qwen35_CpAttentionOp : Qwen35_Op<"cp_attention"> {
  let summary = "attention of a rank's queries to gathered keys";
  let description = [{
    As `attention`: token t of the rank sees what the row has of its document up to t.

    - **Shapes.** `q`, `o`: `[T,Hq,d]`; `k`, `v`: `[n*T,Hkv,d]`, gathered; `lse`: `[T,Hq]` in f32.
    - **Constraints.** (C1) `k` and `v` have one type, of the elements of `q`. (C2) Hkv divides Hq. (C3) The tables agree,
      and `k` has the tokens of n ranks.

    Example:
    ```mlir
    %o, %lse = qwen35.cp_attention %q, %k, %v, %seq, %stripes <{scale = 0.125}>
        : tensor<64x4x64xf32>, tensor<128x2x64xf32>, tensor<128x2x64xf32>, !qwen35.seq<64, 4>, tensor<20xi32>
    ```
  }];
  let arguments = (ins Qwen35_Heads:$q, Qwen35_Heads:$k, Qwen35_Heads:$v, Qwen35_SeqType:$seq, Qwen35_Stripes:$stripes,
                       F64Attr:$scale);
  let results = (outs Qwen35_Heads:$o, Qwen35_Matrix:$lse);
}

def Qwen35_CpAttentionBwdOp : Qwen35_Op<"cp_attention_bwd"> {
  let summary = "Gradient of cp_attention";
  let description = [{
    The equations of `attention_bwd`, sums over the queries of this rank: `dk` and `dv` are partial, and their sum over the
    ranks, each keeping its tokens, is the gradient. Rows of keys that the rank does not see are 0.

    - **Shapes.** As `cp_attention`; `dk`, `dv`: `[n*T,Hkv,d]`.
    - **Rounding.** `dk` and `dv` are f32: they are summands. `dq` is rounded once, to the type of `q`.
    - **Constraints.** Those of `cp_attention`; `do` and `o` have the type of `q`.

    Example:
    ```mlir
    %dq, %dk, %dv = qwen35.cp_attention_bwd %do, %q, %k, %v, %o, %lse, %seq, %stripes <{scale = 0.125}>
        : tensor<64x4x64xf32>, tensor<64x4x64xf32>, tensor<128x2x64xf32>, tensor<128x2x64xf32>, tensor<64x4x64xf32>,
          tensor<64x4xf32>, !qwen35.seq<64, 4>, tensor<20xi32>
    ```
  }];
  let arguments = (ins Qwen35_Heads:$d_o, Qwen35_Heads:$q, Qwen35_Heads:$k, Qwen35_Heads:$v, Qwen35_Heads:$o,
                       Qwen35_Matrix:$lse, Qwen35_SeqType:$seq, Qwen35_Stripes:$stripes, F64Attr:$scale);
  let results = (outs Qwen35_Heads:$dq, Qwen35_Heads:$dk, Qwen35_Heads:$dv);
}

def Qwen35_StripeTailsOp : Qwen35_Op<"stripe_tails"> {
  let summary = "Last rows of a rank's stripes: what a convolution reads across their ends";
  let description = [{
        tails[j] = x[(j+1) * T/2 - (taps-1) .. (j+1) * T/2)

    - **Shapes.** `x`: `[T,C]`; `tails`: `[2,taps-1,C]`.
    - **Constraints.** (C1) T is even. (C2) `taps` is at least 2 and a stripe has `taps - 1` tokens or more.

    Example:
    ```mlir
    %tails = qwen35.stripe_tails %x <{taps = 4}> : tensor<64x128xf32>
    ```
  }];
  let arguments = (ins Qwen35_Matrix:$x, I64Attr:$taps);
  let results = (outs Qwen35_Heads:$tails);
}

def Qwen35_CpCausalConvOp : Qwen35_Op<"cp_causal_conv"> {
  let summary = "causal_conv of a rank's tokens";
  let description = [{
    As `causal_conv`, where the rows before a stripe are the tail of the stripe before it, as far as they are of the same
    document. Other rows of `tails` are not read.

    - **Shapes.** `x`, `y`: `[T,C]`; `tails`: `[2n,W-1,C]`, gathered `stripe_tails`; `weight`: `[C,1,W]`.
    - **Rounding.** Computed in f32, rounded once, to the type of `x`.
    - **Constraints.** (C1) `weight` is `[C,1,W]` for the C columns of `x`, in f32, with W of 2 or more and W-1 no more than
      the tokens of a stripe. (C2) `tails` has the elements of `x`. (C3) The tables agree.

    Example:
    ```mlir
    %y = qwen35.cp_causal_conv %x, %tails, %w, %seq, %stripes
        : tensor<64x128xf32>, tensor<4x3x128xf32>, tensor<128x1x4xf32>, !qwen35.seq<64, 4>, tensor<20xi32>
    ```
  }];
  let arguments = (ins Qwen35_Matrix:$x, Qwen35_Heads:$tails, Qwen35_Heads:$weight, Qwen35_SeqType:$seq,
                       Qwen35_Stripes:$stripes);
  let results = (outs Qwen35_Matrix:$y);
}

def Qwen35_CpCausalConvBwdOp : Qwen35_Op<"cp_causal_conv_bwd"> {
  let summary = "Gradient of cp_causal_conv";
  let description = [{
    The equations of `causal_conv_bwd`. `dhalo[j]` is what the rows before stripe j get from it, 0 for rows of another
    document: gathered, it goes to the rank that has them by `add_to_tails`. `dweight` is partial over the ranks.

    - **Shapes.** As `cp_causal_conv`; `dhalo`: `[2,W-1,C]`.
    - **Constraints.** Those of `cp_causal_conv`; `dy` has the type of `x`.

    Example:
    ```mlir
    %dx, %dhalo, %dw = qwen35.cp_causal_conv_bwd %dy, %x, %tails, %w, %seq, %stripes
        : tensor<64x128xf32>, tensor<64x128xf32>, tensor<4x3x128xf32>, tensor<128x1x4xf32>, !qwen35.seq<64, 4>,
          tensor<20xi32>
    ```
  }];
  let arguments = (ins Qwen35_Matrix:$dy, Qwen35_Matrix:$x, Qwen35_Heads:$tails, Qwen35_Heads:$weight,
                       Qwen35_SeqType:$seq, Qwen35_Stripes:$stripes);
  let results = (outs Qwen35_Matrix:$dx, Qwen35_Heads:$dhalo, Qwen35_Heads:$dweight);
}

def Qwen35_AddToTailsOp : Qwen35_Op<"add_to_tails"> {
  let summary = "Adds to the last rows of a rank's stripes what the stripes after them sent back";
  let description = [{
    `y = x`, and for each stripe i of the rank whose last document goes on in stripe i+1, `y`'s last W-1 rows of stripe i
    have added to them what `halo` holds for stripe i+1; rows of documents that end before are left alone.

    - **Shapes.** `x`, `y`: `[T,C]`; `halo`: `[2n,W-1,C]`, gathered `dhalo`.
    - **Rounding.** The sum is rounded once, to the type of `x`.
    - **Constraints.** (C1) `halo` has the elements and columns of `x`. (C2) `stripes` has 8 + 6n words, T is even, and
      W-1 is no more than T/2.

    Example:
    ```mlir
    %y = qwen35.add_to_tails %x, %halo, %stripes : tensor<64x128xf32>, tensor<4x3x128xf32>, tensor<20xi32>
    ```
  }];
  let arguments = (ins Qwen35_Matrix:$x, Qwen35_Heads:$halo, Qwen35_Stripes:$stripes);
  let results = (outs Qwen35_Matrix:$y);
}

def Qwen35_GdnAffineOp : Qwen35_Op<"gdn_affine"> {
  let summary = "What a stripe does to the state of the delta rule: S -> M S + b";
  let description = [{
    For the stripes of the rank and each value head, with the normalized keys of `gated_delta_rule`:

        (E1)  m = prod_t exp(g_t) (I - beta_t k_t k_t^T), later tokens on the left
        (E2)  m = 0 if a document begins inside the stripe, its first token included
        (E3)  b = the state after the stripe's last token from S = 0 before its first

    - **Shapes.** `k`: `[T,Hk,dk]`; `v`: `[T,Hv,dv]`; `g`, `beta`: `[T,Hv]`; `m`: `[2,Hv,dk,dk]`; `b`: `[2,Hv,dk,dv]`.
    - **Rounding.** `m` and `b` are f32.
    - **Constraints.** (C1) `k` has the elements and tokens of `v`. (C2) Hk divides Hv. (C3) `g` and `beta` are `[T,Hv]`, in
      f32. (C4) The tables agree. (C5) `eps` is greater than zero.

    Example:
    ```mlir
    %m, %b = qwen35.gdn_affine %k, %v, %g, %beta, %seq, %stripes <{eps = 1.0e-6}>
        : tensor<64x2x16xf32>, tensor<64x4x8xf32>, tensor<64x4xf32>, tensor<64x4xf32>, !qwen35.seq<64, 4>, tensor<20xi32>
    ```
  }];
  let arguments = (ins Qwen35_Heads:$k, Qwen35_Heads:$v, Qwen35_Matrix:$g, Qwen35_Matrix:$beta, Qwen35_SeqType:$seq,
                       Qwen35_Stripes:$stripes, F64Attr:$eps);
  let results = (outs Qwen35_States:$m, Qwen35_States:$b);
}

def Qwen35_AffineScanOp : Qwen35_Op<"affine_scan"> {
  let summary = "States before a rank's stripes, from the maps of all stripes";
  let description = [{
    In sequence order, from S(0) = 0:

        (E1)  S(i+1) = m(i) S(i) + b(i)
        (E2)  S(i+1) = b(i) if a document begins inside stripe i
        (E3)  S(i) is 0 in the result if stripe i begins with a document

    By (E2) and (E3) nothing of one document is multiplied into another, not even a NaN.

    - **Shapes.** `m`: `[2n,H,dk,dk]`, `b`: `[2n,H,dk,dv]`, gathered; `states`: `[2,H,dk,dv]`.
    - **Constraints.** (C1) `m` and `b` are such tensors for the n of `stripes`, in f32.

    Example:
    ```mlir
    %states = qwen35.affine_scan %m, %b, %stripes : tensor<4x4x16x16xf32>, tensor<4x4x16x8xf32>, tensor<20xi32>
    ```
  }];
  let arguments = (ins Qwen35_States:$m, Qwen35_States:$b, Qwen35_Stripes:$stripes);
  let results = (outs Qwen35_States:$states);
}

def Qwen35_AffineScanBwdOp : Qwen35_Op<"affine_scan_bwd"> {
  let summary = "Gradients of the states that a rank's stripes leave";
  let description = [{
    In sequence order, back from G(last) = 0, with c of `gdn_state_grad`:

        (E1)  G(i-1) = c(i) + m(i)^T G(i)

    without c(i) if stripe i begins with a document, and without m(i) if one begins anywhere inside.

    - **Shapes.** `m`: `[2n,H,dk,dk]`, `c`: `[2n,H,dk,dv]`, gathered; `gradients`: `[2,H,dk,dv]`.
    - **Constraints.** (C1) `m` and `c` are such tensors for the n of `stripes`, in f32.

    Example:
    ```mlir
    %gradients = qwen35.affine_scan_bwd %m, %c, %stripes : tensor<4x4x16x16xf32>, tensor<4x4x16x8xf32>, tensor<20xi32>
    ```
  }];
  let arguments = (ins Qwen35_States:$m, Qwen35_States:$c, Qwen35_Stripes:$stripes);
  let results = (outs Qwen35_States:$gradients);
}

def Qwen35_CpGatedDeltaRuleOp : Qwen35_Op<"cp_gated_delta_rule"> {
  let summary = "gated_delta_rule of a rank's tokens";
  let description = [{
    As `gated_delta_rule`, where S before the first token of stripe j is `states[j]` unless a document begins there.

    - **Shapes.** As `gated_delta_rule`; `states`: `[2,Hv,dk,dv]`, of `affine_scan`.
    - **Rounding.** S is f32; `o` is rounded once, to the type of `v`.
    - **Constraints.** Those of `gated_delta_rule`; (C5) `states` is `[2,Hv,dk,dv]`, in f32; (C6) the tables agree.

    Example:
    ```mlir
    %o = qwen35.cp_gated_delta_rule %q, %k, %v, %g, %beta, %states, %seq, %stripes <{scale = 0.25, eps = 1.0e-6}>
        : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4x8xf32>, tensor<64x4xf32>, tensor<64x4xf32>,
          tensor<2x4x16x8xf32>, !qwen35.seq<64, 4>, tensor<20xi32>
    ```
  }];
  let arguments = (ins Qwen35_Heads:$q, Qwen35_Heads:$k, Qwen35_Heads:$v, Qwen35_Matrix:$g, Qwen35_Matrix:$beta,
                       Qwen35_States:$states, Qwen35_SeqType:$seq, Qwen35_Stripes:$stripes, F64Attr:$scale, F64Attr:$eps);
  let results = (outs Qwen35_Heads:$o);
}

def Qwen35_GdnStateGradOp : Qwen35_Op<"gdn_state_grad"> {
  let summary = "Gradient of the state before a stripe by the outputs of the stripe";
  let description = [{
    With D = 0 after the last token of the stripe's first segment, back over its tokens:

        (E1)  D <- D + scale * q_t do_t^T
        (E2)  D <- exp(g_t) (I - beta_t k_t k_t^T) D

    `c` is D in the end, and 0 if the stripe begins with a document. Values do not enter: outputs are linear in the state.

    - **Shapes.** As `gated_delta_rule_bwd`; `c`: `[2,Hv,dk,dv]`.
    - **Rounding.** `c` is f32.
    - **Constraints.** Those of `gated_delta_rule_bwd`; the tables agree.

    Example:
    ```mlir
    %c = qwen35.gdn_state_grad %do, %q, %k, %g, %beta, %seq, %stripes <{scale = 0.25, eps = 1.0e-6}>
        : tensor<64x4x8xf32>, tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4xf32>, tensor<64x4xf32>,
          !qwen35.seq<64, 4>, tensor<20xi32>
    ```
  }];
  let arguments = (ins Qwen35_Heads:$d_o, Qwen35_Heads:$q, Qwen35_Heads:$k, Qwen35_Matrix:$g, Qwen35_Matrix:$beta,
                       Qwen35_SeqType:$seq, Qwen35_Stripes:$stripes, F64Attr:$scale, F64Attr:$eps);
  let results = (outs Qwen35_States:$c);
}

def Qwen35_CpGatedDeltaRuleBwdOp : Qwen35_Op<"cp_gated_delta_rule_bwd"> {
  let summary = "Gradient of cp_gated_delta_rule";
  let description = [{
    As `gated_delta_rule_bwd`, from the state gradient `gradients[j]` after the last token of stripe j.

    - **Shapes.** As `gated_delta_rule_bwd`; `states`, `gradients`: `[2,Hv,dk,dv]`, of `affine_scan` and `affine_scan_bwd`.
    - **Constraints.** Those of `cp_gated_delta_rule`, for both states.

    Example:
    ```mlir
    %dq, %dk, %dv, %dg, %dbeta = qwen35.cp_gated_delta_rule_bwd
        %do, %q, %k, %v, %g, %beta, %states, %gradients, %seq, %stripes <{scale = 0.25, eps = 1.0e-6}>
        : tensor<64x4x8xf32>, tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4x8xf32>, tensor<64x4xf32>,
          tensor<64x4xf32>, tensor<2x4x16x8xf32>, tensor<2x4x16x8xf32>, !qwen35.seq<64, 4>, tensor<20xi32>
    ```
  }];
  let arguments = (ins Qwen35_Heads:$d_o, Qwen35_Heads:$q, Qwen35_Heads:$k, Qwen35_Heads:$v, Qwen35_Matrix:$g,
                       Qwen35_Matrix:$beta, Qwen35_States:$states, Qwen35_States:$gradients, Qwen35_SeqType:$seq,
                       Qwen35_Stripes:$stripes, F64Attr:$scale, F64Attr:$eps);
  let results = (outs Qwen35_Heads:$dq, Qwen35_Heads:$dk, Qwen35_Heads:$dv, Qwen35_Matrix:$dg, Qwen35_Matrix:$dbeta);
}
