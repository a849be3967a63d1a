include "dialect/QKern/IR/QKernDialect.td"
include "mlir/Interfaces/ControlFlowInterfaces.td"

def QKern_GroupOp : Op<QKern_Dialect, "group", [SingleBlock, RecursiveMemoryEffects]> {
  let summary = "Ops that one kernel computes";
  let description = [{
    The body reads values from above; its yield names what leaves the group. Values that only the body uses never reach
    memory.

    Example:
    ```mlir
    %s, %y = qkern.group {
      %0 = qwen35.add %h, %d : tensor<64x32xf32>, tensor<64x32xf32>
      %1, %r = qwen35.rms_norm %0, %w <{eps = 1.0e-6, offset = 1.0}> : tensor<64x32xf32>, tensor<32xf32>
      qkern.yield %0, %1 : tensor<64x32xf32>, tensor<64x32xf32>
    } : tensor<64x32xf32>, tensor<64x32xf32>
    ```
  }];
  let results = (outs Variadic<AnyType>:$results);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$body attr-dict `:` type($results)";
  let hasVerifier = 1;
}

def QKern_YieldOp : Op<QKern_Dialect, "yield", [Pure, ReturnLike, Terminator, ParentOneOf<["GroupOp"]>]> {
  let summary = "What leaves a group";
  let description = [{
    Example:
    ```mlir
    qkern.yield %0, %1 : tensor<64x32xf32>, tensor<64x32xf32>
    ```
  }];
  let arguments = (ins Variadic<AnyType>:$values);
  let assemblyFormat = "$values attr-dict `:` type($values)";
}

def QKern_ViewOp : Op<QKern_Dialect, "view", [Pure]> {
  let summary = "The bytes of a tensor addressed another way";
  let description = [{
    Element (i0, i1, ...) of the result is element `offset + i0*strides[0] + ...` of the storage of `source`, counted
    in elements from the first element of the buffer that `source` itself may be a view of. Copies nothing.

    - **Constraints.** (C1) one stride per dimension. (C2) the last element lies inside the root buffer; the planner
      checks it, since only it knows the root.

    Example:
    ```mlir
    %q = qkern.view %x <{offset = 0, strides = array<i64: 128, 16, 1>}> : tensor<64x128xf32> to tensor<64x2x16xf32>
    ```
  }];
  let arguments = (ins Qwen35_Tensor:$source, I64Attr:$offset, DenseI64ArrayAttr:$strides);
  let results = (outs Qwen35_Tensor:$result);
  let assemblyFormat = "$source prop-dict attr-dict `:` type($source) `to` type($result)";
  let hasVerifier = 1;
}

def QKern_JoinOp : Op<QKern_Dialect, "join", [Pure]> {
  let summary = "A tensor whose parts are written where they lie in it";
  let description = [{
    Element (i0, i1, ...) of part p is element `offsets[p] + i0*strides[p][0] + ...` of the result. Copies nothing: the kernel
    that makes a part gets that place to write to.

    - **Constraints.** (C1) one offset and one array of strides per part, one stride per dimension. (C2) a part has the
      element type of the result and lies inside it. (C3) a part is a result of a `qkern.dispatch` which overwrites nothing
      and which only the join reads.

    Example:
    ```mlir
    %x = qkern.join %q, %k <{offsets = array<i64: 0, 32>, strides = [array<i64: 64, 16, 1>, array<i64: 64, 16, 1>]}>
        : (tensor<8x2x16xf32>, tensor<8x2x16xf32>) -> tensor<8x64xf32>
    ```
  }];
  let arguments = (ins Variadic<Qwen35_Tensor>:$parts, DenseI64ArrayAttr:$offsets,
                       TypedArrayAttrBase<DenseI64ArrayAttr, "arrays of strides">:$strides);
  let results = (outs Qwen35_Tensor:$result);
  let assemblyFormat = "$parts prop-dict attr-dict `:` functional-type($parts, $result)";
  let extraClassDeclaration = [{
    ::llvm::ArrayRef<int64_t> stridesOf(unsigned part) {
      return ::llvm::cast<::mlir::DenseI64ArrayAttr>(getStrides()[part]).asArrayRef();
    }
  }];
  let hasVerifier = 1;
}

def QKern_DispatchOp : Op<QKern_Dialect, "dispatch", [Pure]> {
  let summary = "One kernel launch per stage, on tensors";
  let description = [{
    Runs the kernel family `kernel` with the constants `config`, once per entry of `grids`, each launch with that many
    tasks. Operands, then results, then a workspace of `workspace` bytes are the kernel's arguments.
    `aliases[i]` is the operand whose storage result i overwrites, or -1.

    - **Constraints.** (C1) one alias per result, each an operand of the result's type or -1. (C2) every grid is
      positive. (C3) `workspace` is not negative.

    Example:
    ```mlir
    %y, %r = qkern.dispatch "rms_norm"(%x, %w)
        <{aliases = array<i64: -1, -1>, config = {eps = 1.0e-6, offset = 1.0}, grids = array<i64: 4>, workspace = 0 : i64}>
        : (tensor<64x128xf32>, tensor<128xf32>) -> (tensor<64x128xf32>, tensor<64xf32>)
    ```
  }];
  let arguments = (ins StrAttr:$kernel, Variadic<AnyType>:$inputs, DictionaryAttr:$config, DenseI64ArrayAttr:$aliases,
                       DenseI64ArrayAttr:$grids, I64Attr:$workspace);
  let results = (outs Variadic<AnyType>:$outputs);
  let assemblyFormat = "$kernel `(` $inputs `)` prop-dict attr-dict `:` functional-type($inputs, $outputs)";
  let hasVerifier = 1;
}

// What ranks exchange: numbers, and ids.
def QKern_Exchanged : StaticShapeTensorOf<[F32, F64, BF16, I32]>;

def QKern_CollectiveOp : Op<QKern_Dialect, "collective", [Pure]> {
  let summary = "One exchange between the ranks of a group, on tensors in memory";
  let description = [{
    A `qdist` collective with its numbers: part p takes input p to output p. `kind` is the name of the op, `axes` what it
    runs over, `ranks` how many that are. A rank's piece of part p has `counts[p]` elements; pieces of a send that is cut
    (reduce_scatter, all_to_all, all_slice) lie in `sendOuter[p]` rows of the input, those of a receive that is joined
    (all_gather, all_to_all) in `receiveOuter[p]` rows of the output. What does not lie in one piece, and several parts,
    go through `workspace` bytes, first what is sent, then what is received (an all_reduce receives where it sends).
    `aliases[i]` is the operand whose storage result i overwrites, or -1: an all_reduce may. With `async` it is only started, and
    ended by a `qkern.wait`.

    - **Constraints.** (C1) `kind` is known and `ranks` is 2 or more. (C2) as many outputs, counts, outer sizes and aliases as
      inputs, all of one element type. (C3) inputs and outputs have the elements that `counts` say. (C4) an alias is the
      operand of its own part, of an all_reduce.

    Example:
    ```mlir
    %y = qkern.collective "all_gather"(%x) over ["tp"]
        <{aliases = array<i64: -1>, counts = array<i64: 8>, ranks = 2 : i64, receiveOuter = array<i64: 1>,
          sendOuter = array<i64: 1>, workspace = 0 : i64}> : (tensor<2x4xf32>) -> tensor<4x4xf32>
    ```
  }];
  let arguments = (ins StrAttr:$kind, Variadic<QKern_Exchanged>:$inputs, StrArrayAttr:$axes, I64Attr:$ranks,
                       DenseI64ArrayAttr:$counts, DenseI64ArrayAttr:$sendOuter, DenseI64ArrayAttr:$receiveOuter,
                       DenseI64ArrayAttr:$aliases, I64Attr:$workspace,
                       DefaultValuedAttr<StrAttr, "\"sum\"">:$reduction, OptionalAttr<TypeAttr>:$wire,
                       OptionalAttr<TypeAttr>:$accumulate, DefaultValuedAttr<I64Attr, "0">:$offset, UnitAttr:$async);
  let results = (outs Variadic<QKern_Exchanged>:$outputs);
  let assemblyFormat = "$kind `(` $inputs `)` `over` $axes prop-dict attr-dict `:` functional-type($inputs, $outputs)";
  let extraClassDeclaration = [{
    ::mlir::Type getElementType() { return ::llvm::cast<::mlir::ShapedType>(getInputs()[0].getType()).getElementType(); }
    /// Pieces that a rank sends of every part, and receives.
    int64_t sendPieces();
    int64_t receivePieces();
    /// Whether a side goes through the workspace.
    bool isSendStaged();
    bool isReceiveStaged();
    /// Bytes from the start of the workspace to where it receives, and of all of it.
    int64_t receiveStage();
    int64_t stageBytes();
  }];
  let hasVerifier = 1;
}

def QKern_WaitOp : Op<QKern_Dialect, "wait", [Pure]> {
  let summary = "The end of a collective that was started: its results, where they are";
  let description = [{
    From the start to here, what the collective reads, writes and goes through is its own.

    - **Constraints.** (C1) the inputs are all results of one `qkern.collective` with `async`, in order. (C2) an output has the
      type of its input.

    Example:
    ```mlir
    %y = qkern.wait %0 : (tensor<4x4xf32>) -> tensor<4x4xf32>
    ```
  }];
  let arguments = (ins Variadic<QKern_Exchanged>:$inputs);
  let results = (outs Variadic<QKern_Exchanged>:$outputs);
  let assemblyFormat = "$inputs attr-dict `:` functional-type($inputs, $outputs)";
  let extraClassDeclaration = [{
    /// What it waits for; null before verification only.
    ::qwen35::qkern::CollectiveOp getStarted();
  }];
  let hasVerifier = 1;
}
