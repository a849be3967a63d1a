include "dialect/Qwen35/IR/Qwen35Dialect.td"

def Qwen35_ParamOp : Op<Qwen35_Dialect, "param", [Pure]> {
  let summary = "A parameter of the model";
  let description = [{
    The parameter of Hugging Face name `name` (flat form). `init` is `zeros`, `ones`, `normal(STD)` or
    `log_uniform(LO,HI)`; `decay` puts it into the group with weight decay; `file_dtype` is the dtype of a checkpoint
    that has no original to follow.

    Example:
    ```mlir
    %w = qwen35.param "model.norm.weight" <{init = "zeros", decay = false, file_dtype = "bf16"}> : tensor<64xf32>
    ```
  }];
  let arguments = (ins StrAttr:$name, StrAttr:$init, BoolAttr:$decay, StrAttr:$file_dtype);
  let results = (outs Qwen35_Tensor:$result);
  let assemblyFormat = "$name prop-dict attr-dict `:` type($result)";
}

def Qwen35_LinearOp : Qwen35_DiffOp<"linear"> {
  let summary = "Linear layer without bias: y = x weight^T";
  let description = [{
    - **Shapes.** `x`: `[T,K]`; `weight`: `[N,K]` as checkpoints store it; `y`: `[T,N]`.
    - **Rounding.** Accumulated in f32, rounded once, to the type of `x` or to `out_type`. The weight's gradient is f32 as
      accumulated; the others are products in the type of `x`, to which a wider cotangent is rounded first.
    - **Constraints.** (C1) `x` and `weight` have as many columns and (C2) one element type. (C3) `out_type` is that type, or
      f32.

    Example:
    ```mlir
    %y = qwen35.linear %x, %w : tensor<64x32xf32>, tensor<96x32xf32>
    %logits = qwen35.linear %h, %gate <{out_type = f32}> : tensor<64x32xbf16>, tensor<8x32xbf16>
    ```
  }];
  let arguments = (ins Qwen35_Matrix:$x, Qwen35_Matrix:$weight, OptionalAttr<TypeAttr>:$out_type);
  let results = (outs Qwen35_Matrix:$y);
}

def Qwen35_MatmulOp : Qwen35_Op<"matmul"> {
  let summary = "Matrix product of optionally transposed operands";
  let description = [{
    result = op(a) op(b), where op transposes if asked: the two products of a linear layer's VJP.

    - **Rounding.** Accumulated in f32, rounded once, to the type of `a` or to `out_type`.
    - **Constraints.** (C1) the inner dimensions agree. (C2) `a` and `b` have one element type. (C3) `out_type` is that type,
      or f32.

    Example:
    ```mlir
    %dw = qwen35.matmul %dy, %x <{out_type = f32, transpose_a = true}> : tensor<64x96xbf16>, tensor<64x32xbf16>
    ```
  }];
  let arguments = (ins Qwen35_Matrix:$a, Qwen35_Matrix:$b, DefaultValuedAttr<BoolAttr, "false">:$transpose_a,
                       DefaultValuedAttr<BoolAttr, "false">:$transpose_b, OptionalAttr<TypeAttr>:$out_type);
  let results = (outs Qwen35_Matrix:$result);
}

def Qwen35_SwigluOp : Qwen35_DiffOp<"swiglu"> {
  let summary = "silu(gate) * up";
  let description = [{
    - **Constraints.** (C1) `gate` and `up` have one type.

    Example:
    ```mlir
    %y = qwen35.swiglu %gate, %up : tensor<64x96xf32>, tensor<64x96xf32>
    ```
  }];
  let arguments = (ins Qwen35_Matrix:$gate, Qwen35_Matrix:$up);
  let results = (outs Qwen35_Matrix:$y);
}

def Qwen35_SwigluBwdOp : Qwen35_Op<"swiglu_bwd"> {
  let summary = "Gradient of swiglu";
  let description = [{
    dup = dy * silu(gate); dgate = dy * up * silu'(gate).

    Example:
    ```mlir
    %dgate, %dup = qwen35.swiglu_bwd %dy, %gate, %up : tensor<64x96xf32>, tensor<64x96xf32>, tensor<64x96xf32>
    ```
  }];
  let arguments = (ins Qwen35_Matrix:$dy, Qwen35_Matrix:$gate, Qwen35_Matrix:$up);
  let results = (outs Qwen35_Matrix:$dgate, Qwen35_Matrix:$dup);
}

def Qwen35_AddOp : Qwen35_DiffOp<"add"> {
  let summary = "Elementwise sum";
  let description = [{
    - **Constraints.** (C1) `a` and `b` have one type.

    Example:
    ```mlir
    %h = qwen35.add %x, %d : tensor<64x32xf32>, tensor<64x32xf32>
    ```
  }];
  let arguments = (ins Qwen35_Tensor:$a, Qwen35_Tensor:$b);
  let results = (outs Qwen35_Tensor:$sum);
}

def Qwen35_ScaleOp : Qwen35_DiffOp<"scale"> {
  let summary = "Product with a constant";
  let description = [{
    Example:
    ```mlir
    %y = qwen35.scale %x <{factor = 0.5}> : tensor<f32>
    ```
  }];
  let arguments = (ins Qwen35_Tensor:$x, F64Attr:$factor);
  let results = (outs Qwen35_Tensor:$y);
  let hasFolder = 1;
}

def Qwen35_MulScalarOp : Qwen35_DiffOp<"mul_scalar"> {
  let summary = "Product with a run-time scalar";
  let description = [{
    The scalar is an input of the step and carries no gradient.

    - **Constraints.** (C1) `s` is a statistic: f32 where `x` is bf16 or f32.

    Example:
    ```mlir
    %y = qwen35.mul_scalar %x, %s : tensor<64x32xf32>, tensor<f32>
    ```
  }];
  let arguments = (ins Qwen35_Tensor:$x, Qwen35_Scalar:$s);
  let results = (outs Qwen35_Tensor:$y);
}

def Qwen35_ReshapeOp : Op<Qwen35_Dialect, "reshape", [Pure, DeclareOpInterfaceMethods<Qwen35_DifferentiableOp>]> {
  let summary = "The same elements in row-major order under another shape";
  let description = [{
    - **Constraints.** (C1) as many elements on both sides.

    Example:
    ```mlir
    %y = qwen35.reshape %x : tensor<64x64xf32> to tensor<64x4x16xf32>
    ```
  }];
  let arguments = (ins Qwen35_Tensor:$x);
  let results = (outs Qwen35_Tensor:$y);
  let assemblyFormat = "$x attr-dict `:` type($x) `to` type($y)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

def Qwen35_CastOp : Op<Qwen35_Dialect, "cast", [Pure, SameOperandsAndResultShape,
                                                DeclareOpInterfaceMethods<Qwen35_DifferentiableOp>]> {
  let summary = "The same values in another element type";
  let description = [{
    - **Rounding.** To nearest even. A cotangent that has the type of `x` already passes through: the gradient of a parameter
      is not rounded to the type in which it was multiplied.
    - **Constraints.** (C1) `x` and the result have one shape.

    Example:
    ```mlir
    %w16 = qwen35.cast %w : tensor<96x32xf32> to tensor<96x32xbf16>
    ```
  }];
  let arguments = (ins Qwen35_Tensor:$x);
  let results = (outs Qwen35_Tensor:$y);
  let assemblyFormat = "$x attr-dict `:` type($x) `to` type($y)";
  let hasFolder = 1;
}

def Qwen35_SliceOp : Qwen35_DiffOp<"slice"> {
  let summary = "A range of one dimension";
  let description = [{
    - **Constraints.** (C1) `axis` is a dimension of `x`. (C2) [start, start + size) lies inside it and is not empty.

    Example:
    ```mlir
    %q = qwen35.slice %x <{axis = 2, start = 0, size = 16}> : tensor<64x4x32xf32>
    ```
  }];
  let arguments = (ins Qwen35_Tensor:$x, I64Attr:$axis, I64Attr:$start, I64Attr:$size);
  let results = (outs Qwen35_Tensor:$y);
  let hasFolder = 1;
}

def Qwen35_ConcatOp : Qwen35_Op<"concat"> {
  let summary = "Tensors joined along one dimension";
  let description = [{
    - **Constraints.** (C1) all dimensions but `axis` agree.

    Example:
    ```mlir
    %y = qwen35.concat %a, %b <{axis = 1}> : tensor<64x32xf32>, tensor<64x32xf32>
    ```
  }];
  let arguments = (ins Variadic<Qwen35_Tensor>:$inputs, I64Attr:$axis);
  let results = (outs Qwen35_Tensor:$y);
}

def Qwen35_ZerosOp : Op<Qwen35_Dialect, "zeros", [Pure]> {
  let summary = "A tensor of zeros";
  let description = [{
    Example:
    ```mlir
    %z = qwen35.zeros : tensor<f64>
    ```
  }];
  let arguments = (ins);
  let results = (outs Qwen35_Tensor:$result);
  let assemblyFormat = "attr-dict `:` type($result)";
}

def Qwen35_OnesOp : Op<Qwen35_Dialect, "ones", [Pure]> {
  let summary = "A tensor of ones: the seed of differentiation";
  let description = [{
    Example:
    ```mlir
    %one = qwen35.ones : tensor<f32>
    ```
  }];
  let arguments = (ins);
  let results = (outs Qwen35_Tensor:$result);
  let assemblyFormat = "attr-dict `:` type($result)";
}
