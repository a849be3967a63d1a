include "dialect/QKern/IR/QKernDialect.td"

// The gated delta rule in chunks of c = 64 tokens (KERNELS.md 1 to 3). What the descriptions share:
//
// A chunk of `seq` is n <= 64 rows, row i being token f + i of one document; Nc = SeqTable::chunks(). Value head h reads
// key head h / (Hv/Hk). K, Q, V, dO are the rows of the chunk, b = beta as a scale of rows, S the state `[dk,dv]` before
// the chunk. From the cumulated log decay gamma, formed inside the chunk so that every exponent below is <= 0:
//
//     eta_i = exp(gamma_i)    rho_i = exp(gamma_{n-1} - gamma_i)    e = exp(gamma_{n-1})
//     Gamma_ij = exp(gamma_i - gamma_j) for j <= i < n, else 0
//
// A chunk-major tensor has one tile of 64 rows per chunk and value head. Tiles of chunks that `seq` does not use are
// never read and need not be written.
//
// Element types: T is that of q, k and v; so are qn, kn, tinv, states, dstates, vnew, z and the gradients of q, k, v. Gates,
// statistics and gamma are f32 (f64 where T is).

def QKern_States : Qwen35_Static<[Qwen35_Float], 4, "static rank-4 tensor">;

def QKern_GdnPrepOp : QKern_MathOp<"gdn_prep"> {
  let summary = "What the delta rule can know of a chunk without its state";
  let description = [{
        (E1)  qr = 1 / sqrt(sum_d q^2 + eps), qn = q * qr;  kr and kn likewise, per token and key head
        (E2)  gamma_i = g_0 + ... + g_i          rows >= n repeat row n-1
        (E3)  A_ij = beta_i <kn_i, kn_j> for j < i < n, else 0
        (E4)  tinv = (I + A)^-1 (.) Gamma        rows and columns >= n are 0

    The decay factors out of the inverse, so the solve never sees g and its entries are at most 1 (KERNELS.md 1.2).

    - **Shapes.** `q`, `k`, `qn`, `kn`: `[T,Hk,dk]`; `g`, `beta`: `[T,Hv]`; `qr`, `kr`: `[T,Hk]`; `gamma`: `[Nc,Hv,64]`;
      `tinv`: `[Nc,Hv,64,64]`.
    - **Rounding.** Computed in f32 (f64 where values are); `qn`, `kn` and `tinv` are rounded once, to the type of `q`.
      `gamma` is rounded once, and not below the gamma of the row above. Where values are f32, a `g` below -104, whose decay
      is 0, may count as -104: what lies between two such tokens keeps its digits.
    - **Constraints.** (C1) `q` and `k` have one type. (C2) Hk divides Hv. (C3) `g` and `beta` are `[T,Hv]`, in f32.
      (C4) tokens of `seq` agree. (C5) `eps` is greater than zero.

    Example:
    ```mlir
    %qn, %kn, %qr, %kr, %gamma, %tinv = qkern.gdn_prep %q, %k, %g, %beta, %seq <{eps = 1.0e-6}>
        : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4xf32>, tensor<64x4xf32>, !qwen35.seq<64, 3>
    ```
  }];
  let arguments = (ins Qwen35_Heads:$q, Qwen35_Heads:$k, Qwen35_Matrix:$g, Qwen35_Matrix:$beta, Qwen35_SeqType:$seq,
                       F64Attr:$eps);
  let results = (outs Qwen35_Heads:$qn, Qwen35_Heads:$kn, Qwen35_Matrix:$qr, Qwen35_Matrix:$kr, Qwen35_Heads:$gamma,
                      QKern_States:$tinv);
}

def QKern_GdnScanOp : QKern_MathOp<"gdn_scan"> {
  let summary = "States before the chunks of a document, first to last";
  let description = [{
    From S = 0 at the first chunk of a document:

        (E1)  R  = V - eta (.) (K S)
        (E2)  V' = tinv (b (.) R)                rows >= n are 0
        (E3)  S  <- e S + K^T (rho (.) V')

    `states` holds S as (E1) reads it, `vnew` holds V'.

    - **Shapes.** `kn`: `[T,Hk,dk]`; `v`: `[T,Hv,dv]`; `beta`: `[T,Hv]`; `gamma`: `[Nc,Hv,64]`; `tinv`: `[Nc,Hv,64,64]`;
      `states`: `[Nc,Hv,dk,dv]`; `vnew`: `[Nc,Hv,64,dv]`.
    - **Rounding.** S is f32 (f64 where values are) for the whole document; `states` and `vnew` are rounded once, to the
      type of `v`.
    - **Constraints.** (C1) Hk divides Hv. (C2) `v` has the tokens of `kn`, `beta` is `[T,Hv]`. (C3) `gamma` and `tinv`
      are the tiles of Nc chunks and Hv heads. (C4) tokens of `seq` agree. (C5) `kn`, `v` and `tinv` have one element type,
      `beta` and `gamma` are f32.

    Example:
    ```mlir
    %states, %vnew = qkern.gdn_scan %kn, %v, %beta, %gamma, %tinv, %seq
        : tensor<64x2x16xf32>, tensor<64x4x16xf32>, tensor<64x4xf32>, tensor<4x4x64xf32>, tensor<4x4x64x64xf32>,
          !qwen35.seq<64, 3>
    ```
  }];
  let arguments = (ins Qwen35_Heads:$kn, Qwen35_Heads:$v, Qwen35_Matrix:$beta, Qwen35_Heads:$gamma, QKern_States:$tinv,
                       Qwen35_SeqType:$seq);
  let results = (outs QKern_States:$states, QKern_States:$vnew);
}

def QKern_GdnOutOp : QKern_MathOp<"gdn_out"> {
  let summary = "Outputs of the delta rule from the states before the chunks";
  let description = [{
        (E1)  P = scale * (Q K^T (.) Gamma)      with the diagonal
        (E2)  O = scale * eta (.) (Q S) + P V'

    - **Shapes.** `qn`, `kn`: `[T,Hk,dk]`; `gamma`: `[Nc,Hv,64]`; `states`: `[Nc,Hv,dk,dv]`; `vnew`: `[Nc,Hv,64,dv]`;
      `o`: `[T,Hv,dv]`.
    - **Rounding.** Computed in f32 (f64 where values are); `o` is rounded once, to the type of `qn`.
    - **Constraints.** (C1) `qn` and `kn` have one type. (C2) Hk divides Hv. (C3) `gamma`, `states` and `vnew` are the
      tiles of Nc chunks and Hv heads. (C4) tokens of `seq` agree. (C5) all but `gamma`, which is f32, have one element type.

    Example:
    ```mlir
    %o = qkern.gdn_out %qn, %kn, %gamma, %states, %vnew, %seq <{scale = 0.25}>
        : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<4x4x64xf32>, tensor<4x4x16x16xf32>, tensor<4x4x64x16xf32>,
          !qwen35.seq<64, 3>
    ```
  }];
  let arguments = (ins Qwen35_Heads:$qn, Qwen35_Heads:$kn, Qwen35_Heads:$gamma, QKern_States:$states,
                       QKern_States:$vnew, Qwen35_SeqType:$seq, F64Attr:$scale);
  let results = (outs Qwen35_Heads:$o);
}

def QKern_GdnScanBwdOp : QKern_MathOp<"gdn_scan_bwd"> {
  let summary = "Gradients of the states after the chunks of a document, last to first";
  let description = [{
    With P of gdn_out, from D+ = 0 at the last chunk of a document:

        (E1)  E  = rho (.) (K D+) + P^T dO
        (E2)  Z  = tinv^T E                      rows >= n are 0
        (E3)  D+ <- e D+ - K^T (eta b (.) Z) + scale * Q^T (eta (.) dO)

    `dstates` holds D+ as (E1) reads it, `z` holds Z, the gradient of b (.) R.

    - **Shapes.** `qn`, `kn`: `[T,Hk,dk]`; `do`: `[T,Hv,dv]`; `beta`: `[T,Hv]`; `gamma`: `[Nc,Hv,64]`;
      `tinv`: `[Nc,Hv,64,64]`; `dstates`: `[Nc,Hv,dk,dv]`; `z`: `[Nc,Hv,64,dv]`.
    - **Rounding.** D+ is f32 (f64 where values are) for the whole document; `dstates` and `z` are rounded once, to the type
      of `do`.
    - **Constraints.** (C1) `qn` and `kn` have one type. (C2) Hk divides Hv. (C3) `do` has the tokens of `kn`, `beta` is
      `[T,Hv]`. (C4) `gamma` and `tinv` are the tiles of Nc chunks and Hv heads. (C5) tokens of `seq` agree. (C6) `beta` and
      `gamma` are f32, the others have one element type.

    Example:
    ```mlir
    %dstates, %z = qkern.gdn_scan_bwd %qn, %kn, %do, %beta, %gamma, %tinv, %seq <{scale = 0.25}>
        : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4x16xf32>, tensor<64x4xf32>, tensor<4x4x64xf32>,
          tensor<4x4x64x64xf32>, !qwen35.seq<64, 3>
    ```
  }];
  let arguments = (ins Qwen35_Heads:$qn, Qwen35_Heads:$kn, Qwen35_Heads:$d_o, Qwen35_Matrix:$beta, Qwen35_Heads:$gamma,
                       QKern_States:$tinv, Qwen35_SeqType:$seq, F64Attr:$scale);
  let results = (outs QKern_States:$dstates, QKern_States:$z);
}

def QKern_GdnLocalBwdOp : QKern_MathOp<"gdn_local_bwd"> {
  let summary = "Gradients of the delta rule from the states and their gradients, chunk by chunk";
  let description = [{
    `low` keeps j < i, `low=` keeps j <= i, row<A,B>_i is the inner product of rows i:

        (E1)  Hq = scale * low=(dO V'^T) (.) Gamma      J = b (.) H, H = -low(Z V'^T) (.) Gamma
        (E2)  X  = scale * eta (.) (dO S^T)             dqn = X + Hq K
        (E3)  Y  = rho (.) (V' D+^T)                    dkn = Y - eta b (.) (Z S^T) + Hq^T Q + (J + J^T) K
        (E4)  dv = b (.) Z
        (E5)  kappa = row<Z S^T, K>                     dbeta = row<Z, V> - eta (.) kappa + rowsum(H (.) K K^T)
        (E6)  N  = Hq (.) Q K^T + J (.) K K^T
              dgamma = row<X, Q> - row<Y, K> - eta b (.) kappa + rowsum(N) - colsum(N)
              dgamma_{n-1} += sum_i row<Y, K>_i + e sum(S (.) D+)
        (E7)  dg_i = sum_{m >= i} dgamma_m              inside the chunk
        (E8)  dq = qr (dqn - qn <dqn, qn>), dk likewise, dqn and dkn first summed over the value heads of a key head

    - **Shapes.** `qn`, `kn`, `dq`, `dk`: `[T,Hk,dk]`; `qr`, `kr`: `[T,Hk]`; `v`, `do`, `dv`: `[T,Hv,dv]`; `beta`, `dg`,
      `dbeta`: `[T,Hv]`; `gamma`: `[Nc,Hv,64]`; `states`, `dstates`: `[Nc,Hv,dk,dv]`; `vnew`, `z`: `[Nc,Hv,64,dv]`.
    - **Rounding.** Computed in f32 (f64 where values are); both sums of N see the same, unrounded values. Gradients are
      rounded once, `dg` to the type of `gamma`, the others to that of their operand.
    - **Constraints.** (C1) `qn` and `kn` have one type, `qr` and `kr` are `[T,Hk]`. (C2) Hk divides Hv. (C3) `v` and `do`
      have one type and the tokens of `kn`, `beta` is `[T,Hv]`. (C4) `gamma`, `states`, `dstates`, `vnew` and `z` are the
      tiles of Nc chunks and Hv heads. (C5) tokens of `seq` agree. (C6) `qr`, `kr`, `beta` and `gamma` are f32, the others
      have one element type.

    Example:
    ```mlir
    %dq, %dk, %dv, %dg, %dbeta = qkern.gdn_local_bwd
        %qn, %kn, %qr, %kr, %v, %do, %beta, %gamma, %states, %dstates, %vnew, %z, %seq <{scale = 0.25}>
        : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x2xf32>, tensor<64x2xf32>, tensor<64x4x16xf32>,
          tensor<64x4x16xf32>, tensor<64x4xf32>, tensor<4x4x64xf32>, tensor<4x4x16x16xf32>, tensor<4x4x16x16xf32>,
          tensor<4x4x64x16xf32>, tensor<4x4x64x16xf32>, !qwen35.seq<64, 3>
    ```
  }];
  let arguments = (ins Qwen35_Heads:$qn, Qwen35_Heads:$kn, Qwen35_Matrix:$qr, Qwen35_Matrix:$kr, Qwen35_Heads:$v,
                       Qwen35_Heads:$d_o, Qwen35_Matrix:$beta, Qwen35_Heads:$gamma, QKern_States:$states,
                       QKern_States:$dstates, QKern_States:$vnew, QKern_States:$z, Qwen35_SeqType:$seq,
                       F64Attr:$scale);
  let results = (outs Qwen35_Heads:$dq, Qwen35_Heads:$dk, Qwen35_Heads:$dv, Qwen35_Matrix:$dg, Qwen35_Matrix:$dbeta);
}

// Stripes of a row that is cut over a context-parallel group (qwen35 StripeOps.td): the documents of `seq` are segments, and
// a state enters the first segment of a stripe and leaves its last.

def QKern_CpGdnAffineOp : QKern_MathOp<"cp_gdn_affine"> {
  let summary = "S -> M S + b of the rank's stripes, chunk by chunk";
  let description = [{
    `b` is S of `gdn_scan` after the last chunk of the stripe's last segment. `m` is the same from S = I with V = 0, of a
    stripe that is one segment whose document begins before it; else 0.

    - **Shapes.** `kn`, `v`, `beta`, `gamma`, `tinv`: as `gdn_scan`; `m`: `[2,Hv,dk,dk]`; `b`: `[2,Hv,dk,dv]`.
    - **Rounding.** `m` and `b` are f32 (f64 where values are).
    - **Constraints.** Those of `gdn_scan`; the tables agree.

    Example:
    ```mlir
    %m, %b = qkern.cp_gdn_affine %kn, %v, %beta, %gamma, %tinv, %seq, %stripes
        : tensor<64x2x16xf32>, tensor<64x4x8xf32>, tensor<64x4xf32>, tensor<5x4x64xf32>, tensor<5x4x64x64xf32>,
          !qwen35.seq<64, 4>, tensor<20xi32>
    ```
  }];
  let arguments = (ins Qwen35_Heads:$kn, Qwen35_Heads:$v, Qwen35_Matrix:$beta, Qwen35_Heads:$gamma, QKern_States:$tinv,
                       Qwen35_SeqType:$seq, Qwen35_Stripes:$stripes);
  let results = (outs QKern_States:$m, QKern_States:$b);
}

def QKern_CpGdnScanOp : QKern_MathOp<"cp_gdn_scan"> {
  let summary = "gdn_scan, where states enter the stripes";
  let description = [{
    As `gdn_scan`, from S = `before[j]` at the first chunk of stripe j unless a document begins there.

    - **Shapes.** As `gdn_scan`; `before`: `[2,Hv,dk,dv]`.
    - **Constraints.** Those of `gdn_scan`; `before` is f32; the tables agree.

    Example:
    ```mlir
    %states, %vnew = qkern.cp_gdn_scan %kn, %v, %beta, %gamma, %tinv, %before, %seq, %stripes
        : tensor<64x2x16xf32>, tensor<64x4x8xf32>, tensor<64x4xf32>, tensor<5x4x64xf32>, tensor<5x4x64x64xf32>,
          tensor<2x4x16x8xf32>, !qwen35.seq<64, 4>, tensor<20xi32>
    ```
  }];
  let arguments = (ins Qwen35_Heads:$kn, Qwen35_Heads:$v, Qwen35_Matrix:$beta, Qwen35_Heads:$gamma, QKern_States:$tinv,
                       QKern_States:$before, Qwen35_SeqType:$seq, Qwen35_Stripes:$stripes);
  let results = (outs QKern_States:$states, QKern_States:$vnew);
}

def QKern_CpGdnScanBwdOp : QKern_MathOp<"cp_gdn_scan_bwd"> {
  let summary = "gdn_scan_bwd, where state gradients enter the stripes from behind";
  let description = [{
    As `gdn_scan_bwd`, from D = `after[j]` at the last chunk of stripe j.

    - **Shapes.** As `gdn_scan_bwd`; `after`: `[2,Hv,dk,dv]`.
    - **Constraints.** Those of `gdn_scan_bwd`; `after` is f32; the tables agree.

    Example:
    ```mlir
    %dstates, %z = qkern.cp_gdn_scan_bwd %qn, %kn, %do, %beta, %gamma, %tinv, %after, %seq, %stripes <{scale = 0.25}>
        : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4x8xf32>, tensor<64x4xf32>, tensor<5x4x64xf32>,
          tensor<5x4x64x64xf32>, tensor<2x4x16x8xf32>, !qwen35.seq<64, 4>, tensor<20xi32>
    ```
  }];
  let arguments = (ins Qwen35_Heads:$qn, Qwen35_Heads:$kn, Qwen35_Heads:$d_o, Qwen35_Matrix:$beta, Qwen35_Heads:$gamma,
                       QKern_States:$tinv, QKern_States:$after, Qwen35_SeqType:$seq, Qwen35_Stripes:$stripes,
                       F64Attr:$scale);
  let results = (outs QKern_States:$dstates, QKern_States:$z);
}

def QKern_CpGdnStateGradOp : QKern_MathOp<"cp_gdn_state_grad"> {
  let summary = "State gradient before each of the rank's stripes by its own outputs";
  let description = [{
    D of `gdn_scan_bwd` before the first chunk of the stripe's first segment, 0 if a document begins there.

    - **Shapes.** As `gdn_scan_bwd`; `c`: `[2,Hv,dk,dv]`.
    - **Rounding.** `c` is f32 (f64 where values are).
    - **Constraints.** Those of `gdn_scan_bwd`; the tables agree.

    Example:
    ```mlir
    %c = qkern.cp_gdn_state_grad %qn, %kn, %do, %beta, %gamma, %tinv, %seq, %stripes <{scale = 0.25}>
        : tensor<64x2x16xf32>, tensor<64x2x16xf32>, tensor<64x4x8xf32>, tensor<64x4xf32>, tensor<5x4x64xf32>,
          tensor<5x4x64x64xf32>, !qwen35.seq<64, 4>, tensor<20xi32>
    ```
  }];
  let arguments = (ins Qwen35_Heads:$qn, Qwen35_Heads:$kn, Qwen35_Heads:$d_o, Qwen35_Matrix:$beta, Qwen35_Heads:$gamma,
                       QKern_States:$tinv, Qwen35_SeqType:$seq, Qwen35_Stripes:$stripes, F64Attr:$scale);
  let results = (outs QKern_States:$c);
}
