include "dialect/Qwen35/IR/Qwen35Dialect.td"

def Qwen35_LmLossOp : Qwen35_DiffOp<"lm_loss"> {
  let summary = "Cross entropy of the language-model head, without T x V logits";
  let description = [{
    Over tokens whose label is not -100, with logits = weight h_t:

        (E1)  loss = inv_count * sum_t (logsumexp(logits_t) - logits_t[label_t])

    Labels are shifted already: label_t is the target of token t. `inv_count` is a run-time scalar, one over the number
    of targets of the whole step, so the losses of its microbatches add up.

    - **Shapes.** `h`: `[T,D]`; `weight`: `[V,D]`; `labels`: `[T]` i32; `inv_count`, `loss`: scalars.
    - **Rounding.** Logits and loss are f32 and never rounded further.
    - **Constraints.** (C1) `weight` has the columns and element type of `h`. (C2) one label per token. (C3) `inv_count` is
      f32.

    Example:
    ```mlir
    %loss = qwen35.lm_loss %h, %w, %labels, %inv_count : tensor<64x32xf32>, tensor<256x32xf32>, tensor<64xi32>, tensor<f32>
    ```
  }];
  let arguments = (ins Qwen35_Matrix:$h, Qwen35_Matrix:$weight, Qwen35_Ids:$labels, Qwen35_Scalar:$inv_count);
  let results = (outs Qwen35_Scalar:$loss);
}

def Qwen35_LmLossGradOp : Qwen35_Op<"lm_loss_grad"> {
  let summary = "Loss and gradients of lm_loss in one pass";
  let description = [{
    The cotangent of the loss is known when the logits of a chunk are, so loss and both gradients come from one pass of
    three products:

        (E1)  dlogits = (softmax(logits) - onehot(label)) * inv_count, 0 for label -100
        (E2)  dh = dlogits weight        (E3)  dweight = dlogits^T h

    - **Rounding.** `dlogits` and `dh` are rounded to the type of `h`; `dweight` is f32 as accumulated.

    Example:
    ```mlir
    %loss, %dh, %dw = qwen35.lm_loss_grad %h, %w, %labels, %inv_count
        : tensor<64x32xf32>, tensor<256x32xf32>, tensor<64xi32>, tensor<f32>
    ```
  }];
  let arguments = (ins Qwen35_Matrix:$h, Qwen35_Matrix:$weight, Qwen35_Ids:$labels, Qwen35_Scalar:$inv_count);
  let results = (outs Qwen35_Scalar:$loss, Qwen35_Matrix:$dh, Qwen35_Matrix:$dweight);
}

// The head split by vocabulary: what lm_loss_grad is made of when every rank holds some rows of the weight. Labels count
// from the rank's first row (qdist.local_ids): -1 is the row of another rank, -100 no target at all.

def Qwen35_LmStatsOp : Qwen35_Op<"lm_stats"> {
  let summary = "Maximum, sum of exponentials and target logit of every token, over the rows of one rank";
  let description = [{
    With logits = weight h_t over the V rows given:

        (E1)  highest[t] = max_v logits[t,v]        (E2)  sum[t] = sum_v exp(logits[t,v] - highest[t])
        (E3)  target[t] = logits[t, labels[t]] where labels[t] >= 0, else 0

    - **Shapes.** `h`: `[T,D]`; `weight`: `[V,D]`; `labels`: `[T]`; results: `[T]` in f32.
    - **Constraints.** (C1) `weight` has the columns and element type of `h`. (C2) one label per token.

    Example:
    ```mlir
    %highest, %sum, %target = qwen35.lm_stats %h, %w, %labels : tensor<64x32xf32>, tensor<128x32xf32>, tensor<64xi32>
    ```
  }];
  let arguments = (ins Qwen35_Matrix:$h, Qwen35_Matrix:$weight, Qwen35_Ids:$labels);
  let results = (outs Qwen35_Vector:$highest, Qwen35_Vector:$sum, Qwen35_Vector:$target);
}

def Qwen35_RescaleSumOp : Qwen35_Op<"rescale_sum"> {
  let summary = "A sum of exponentials, counted from another maximum";
  let description = [{
        (E1)  result[t] = sum[t] * exp(from[t] - to[t])

    `to` is the maximum over all ranks; the results of the ranks then add up.

    - **Constraints.** (C1) all have one type.

    Example:
    ```mlir
    %s = qwen35.rescale_sum %sum, %highest, %global : tensor<64xf32>, tensor<64xf32>, tensor<64xf32>
    ```
  }];
  let arguments = (ins Qwen35_Vector:$sum, Qwen35_Vector:$from, Qwen35_Vector:$to);
  let results = (outs Qwen35_Vector:$result);
}

def Qwen35_LmStatsLossOp : Qwen35_Op<"lm_stats_loss"> {
  let summary = "Cross entropy from the statistics of all ranks";
  let description = [{
    Over tokens whose label is not -100:

        (E1)  loss = inv_count * sum_t (highest[t] + log(sum[t]) - target[t])

    - **Constraints.** (C1) one label per token. (C2) the statistics have one type, `[T]`, and `inv_count` its elements.

    Example:
    ```mlir
    %loss = qwen35.lm_stats_loss %labels, %inv_count, %highest, %sum, %target
        : tensor<64xi32>, tensor<f32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>
    ```
  }];
  let arguments = (ins Qwen35_Ids:$labels, Qwen35_Scalar:$inv_count, Qwen35_Vector:$highest, Qwen35_Vector:$sum,
                       Qwen35_Vector:$target);
  let results = (outs Qwen35_Scalar:$loss);
}

def Qwen35_LmStatsGradOp : Qwen35_Op<"lm_stats_grad"> {
  let summary = "Gradients of the head's rows of one rank, from the statistics of all ranks";
  let description = [{
        (E1)  dlogits[t,v] = (exp(logits[t,v] - highest[t]) / sum[t] - [v = labels[t]]) * inv_count, 0 for label -100
        (E2)  dh = dlogits weight        (E3)  dweight = dlogits^T h

    `dh` is the rank's part of a sum over the ranks.

    - **Rounding.** As lm_loss_grad.
    - **Constraints.** (C1) `weight` has the columns and element type of `h`. (C2) one label per token. (C3) `highest` and `sum`
      are `[T]`, in f32, `inv_count` too.

    Example:
    ```mlir
    %dh, %dw = qwen35.lm_stats_grad %h, %w, %labels, %inv_count, %highest, %sum
        : tensor<64x32xf32>, tensor<128x32xf32>, tensor<64xi32>, tensor<f32>, tensor<64xf32>, tensor<64xf32>
    ```
  }];
  let arguments = (ins Qwen35_Matrix:$h, Qwen35_Matrix:$weight, Qwen35_Ids:$labels, Qwen35_Scalar:$inv_count,
                       Qwen35_Vector:$highest, Qwen35_Vector:$sum);
  let results = (outs Qwen35_Matrix:$dh, Qwen35_Matrix:$dweight);
}

def Qwen35_EmbedOp : Qwen35_DiffOp<"embed"> {
  let summary = "Row lookup";
  let description = [{
        (E1)  y[t] = table[ids[t]]

    With `shard` the table is a rank's part of a larger one, and the id -1 a row of another rank:

        (E2)  y[t] = 0    where ids[t] = -1

    - **Shapes.** `ids`: `[T]` i32 in [0, V); `table`: `[V,D]`; `y`: `[T,D]`.

    Example:
    ```mlir
    %y = qwen35.embed %ids, %table : tensor<64xi32>, tensor<256x32xf32>
    ```
  }];
  let arguments = (ins Qwen35_Ids:$ids, Qwen35_Matrix:$table, UnitAttr:$shard);
  let results = (outs Qwen35_Matrix:$y);
}

def Qwen35_EmbedBwdOp : Qwen35_Op<"embed_bwd"> {
  let summary = "Gradient of embed: rows summed by id, in token order";
  let description = [{
        (E1)  dtable[i] = sum over t with ids[t] = i of dy[t];  0 for ids that do not occur

    With `shard` the id -1 belongs to another rank and adds nothing.

    - **Rounding.** Summed in f32; `dtable` is f32.

    Example:
    ```mlir
    %dtable = qwen35.embed_bwd %dy, %ids <{vocab = 256}> : tensor<64x32xf32>, tensor<64xi32>
    ```
  }];
  let arguments = (ins Qwen35_Matrix:$dy, Qwen35_Ids:$ids, I64Attr:$vocab, UnitAttr:$shard);
  let results = (outs Qwen35_Matrix:$dtable);
}
