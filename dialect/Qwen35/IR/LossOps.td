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

def Qwen35_EmbedOp : Qwen35_DiffOp<"embed"> {
  let summary = "Row lookup";
  let description = [{
        (E1)  y[t] = table[ids[t]]

    - **Shapes.** `ids`: `[T]` i32 in [0, V); `table`: `[V,D]`; `y`: `[T,D]`.

    Example:
    ```mlir
    %y = qwen35.embed %ids, %table : tensor<64xi32>, tensor<256x32xf32>
    ```
  }];
  let arguments = (ins Qwen35_Ids:$ids, Qwen35_Matrix:$table);
  let results = (outs Qwen35_Matrix:$y);
}

def Qwen35_EmbedBwdOp : Qwen35_Op<"embed_bwd"> {
  let summary = "Gradient of embed: rows summed by id, in token order";
  let description = [{
        (E1)  dtable[i] = sum over t with ids[t] = i of dy[t];  0 for ids that do not occur

    - **Rounding.** Summed in f32; `dtable` is f32.

    Example:
    ```mlir
    %dtable = qwen35.embed_bwd %dy, %ids <{vocab = 256}> : tensor<64x32xf32>, tensor<64xi32>
    ```
  }];
  let arguments = (ins Qwen35_Matrix:$dy, Qwen35_Ids:$ids, I64Attr:$vocab);
  let results = (outs Qwen35_Matrix:$dtable);
}
