include "dialect/QDist/IR/QDistDialect.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"

def QDist_Numbers : StaticShapeTensorOf<[F32, F64, BF16]>;
def QDist_Tensor : StaticShapeTensorOf<[F32, F64, BF16, I32]>;
def QDist_Ids : StaticShapeTensorOf<[I32]>;

// Every rank of a group runs it with inputs of the same types. Pure: what one rank drops, all drop.
class QDist_Collective<string mnemonic, Type element, dag attributes>
    : Op<QDist_Dialect, mnemonic, [Pure]> {
  // `async`: the op starts it, and `qdist.wait` ends it.
  let arguments = !con((ins Variadic<element>:$inputs, StrArrayAttr:$axes, OptionalAttr<QDist_WireAttr>:$wire), attributes,
                       (ins UnitAttr:$async));
  let results = (outs Variadic<element>:$outputs);
  let assemblyFormat = [{
    $inputs `over` $axes prop-dict attr-dict `:` functional-type($inputs, $outputs)
  }];
  let hasVerifier = 1;
}

def QDist_AllGatherOp : QDist_Collective<"all_gather", QDist_Tensor, (ins I64Attr:$dim)> {
  let summary = "The pieces of every rank of the group, joined along a dimension";
  let description = [{
    Every rank of a group of n gets the n inputs in the order of coordinates.

    - **Constraints.** (C1) `axes` are axes or atoms of the mesh, at least one, none twice. (C2) one output per input. (C3)
      `dim` is a dimension. (C4) an output is its input with `dim` n times as long.

    Example:
    ```mlir
    %y = qdist.all_gather %x over ["tp"] <{dim = 0}> : (tensor<32x64xf32>) -> tensor<64x64xf32>
    ```
  }];
}

def QDist_AllReduceOp : QDist_Collective<"all_reduce", QDist_Numbers, (ins DefaultValuedAttr<StrAttr, "\"sum\"">:$kind)> {
  let summary = "The sum or the maximum over the group, on every rank of it";
  let description = [{
    - **Rounding.** Combined in the order of coordinates in f32 (or as `wire` says), rounded once to the type of the output;
      what is sent, the total as well, is rounded to the type of the wire first.
    - **Constraints.** (C1), (C2) as all_gather. (C3) an output has the type of its input. (C4) `kind` is "sum" or "max".

    Example:
    ```mlir
    %y = qdist.all_reduce %x over ["dps", "tp"] : (tensor<64xf32>) -> tensor<64xf32>
    ```
  }];
}

def QDist_ReduceScatterOp : QDist_Collective<"reduce_scatter", QDist_Numbers, (ins I64Attr:$dim)> {
  let summary = "The sum over the group, of which every rank keeps its piece";
  let description = [{
    `all_slice(all_reduce(x))`, at half of the bytes.

    - **Rounding.** As all_reduce, but that the total is not sent.
    - **Constraints.** (C1), (C2) as all_gather. (C3) `dim` is a dimension whose length the group divides. (C4) an output is
      its input with `dim` n times as short.

    Example:
    ```mlir
    %y = qdist.reduce_scatter %x over ["tp"] <{dim = 0}> : (tensor<64x64xf32>) -> tensor<32x64xf32>
    ```
  }];
}

def QDist_AllToAllOp : QDist_Collective<"all_to_all", QDist_Tensor, (ins I64Attr:$split_dim, I64Attr:$concat_dim)> {
  let summary = "Moves the split from one dimension to another";
  let description = [{
    Rank i sends piece j of its input along `split_dim` to rank j, which joins what it gets along `concat_dim`, in the order
    of coordinates: `all_slice(all_gather(x, concat_dim), split_dim)`.

    - **Constraints.** (C1), (C2) as all_gather. (C3) both are dimensions and differ; the group divides `split_dim`. (C4) an
      output has `split_dim` n times as short and `concat_dim` n times as long as its input.

    Example:
    ```mlir
    %y = qdist.all_to_all %x over ["cp"] <{split_dim = 1, concat_dim = 0}>
        : (tensor<32x4x16xf32>) -> tensor<64x2x16xf32>
    ```
  }];
}

def QDist_AllSliceOp : QDist_Collective<"all_slice", QDist_Tensor, (ins I64Attr:$dim)> {
  let summary = "The rank's piece of what all ranks of the group hold alike";
  let description = [{
    Sends nothing.

    - **Constraints.** As reduce_scatter.

    Example:
    ```mlir
    %y = qdist.all_slice %x over ["tp"] <{dim = 0}> : (tensor<64x64xf32>) -> tensor<32x64xf32>
    ```
  }];
}

def QDist_ShiftOp : QDist_Collective<"shift", QDist_Tensor, (ins I64Attr:$offset)> {
  let summary = "The input of the neighbour in the group";
  let description = [{
    Rank i of the group gets the input of rank i - `offset`; zeros where there is none: a shift does not wrap around.

    - **Constraints.** (C1), (C2) as all_gather. (C3) an output has the type of its input. (C4) `offset` is not 0 and smaller
      than the group.

    Example:
    ```mlir
    %y = qdist.shift %x over ["cp"] <{offset = 1}> : (tensor<3x64xf32>) -> tensor<3x64xf32>
    ```
  }];
}

def QDist_WaitOp : Op<QDist_Dialect, "wait", [Pure]> {
  let summary = "The results of a collective that was started, once it has ended";
  let description = [{
    A collective with `async` is only started where it stands; what it reads must not change and what it makes must not be read
    until the wait that takes all of its results. `qdist.wait` gives them as they are. Collectives end in the order in which they
    were started, which is the order of the program on every rank.

    - **Constraints.** (C1) the inputs are all results of one collective with `async`, in order. (C2) an output has the type of
      its input. That nothing else reads those results is checked by --qwen35-verify-s3 and --qwen35-verify-s4.

    Example:
    ```mlir
    %0 = qdist.all_gather %x over ["tp"] <{async, dim = 0}> : (tensor<32x64xf32>) -> tensor<64x64xf32>
    %y = qdist.wait %0 : (tensor<64x64xf32>) -> tensor<64x64xf32>
    ```
  }];
  let arguments = (ins Variadic<QDist_Tensor>:$inputs);
  let results = (outs Variadic<QDist_Tensor>:$outputs);
  let assemblyFormat = "$inputs attr-dict `:` functional-type($inputs, $outputs)";
  let hasVerifier = 1;
}

def QDist_RankVarOp : Op<QDist_Dialect, "rank_var", [Pure]> {
  let summary = "The coordinate of the rank in its group";
  let description = [{
    With `local_ids`, the only difference between the programs of two ranks.

    - **Constraints.** (C1) as all_gather.

    Example:
    ```mlir
    %c = qdist.rank_var over ["cp", "tp"] : tensor<i32>
    ```
  }];
  let arguments = (ins StrArrayAttr:$axes);
  let results = (outs QDist_Ids:$coordinate);
  let assemblyFormat = "`over` $axes attr-dict `:` type($coordinate)";
  let hasVerifier = 1;
}

def QDist_LocalIdsOp : Op<QDist_Dialect, "local_ids", [Pure, SameOperandsAndResultType]> {
  let summary = "Row numbers of a table that is split over the group, counted from the rank's own first row";
  let description = [{
    The rank of coordinate c holds rows [c * size, (c + 1) * size):

        (E1)  y = x - c * size   where x is one of the rank's rows
        (E2)  y = -1             where x is a row of another rank
        (E3)  y = x              where x < 0: ids that mean something else, such as the label -100

    - **Constraints.** (C1) as all_gather. (C2) `size` is greater than zero.

    Example:
    ```mlir
    %y = qdist.local_ids %x over ["tp"] <{size = 128}> : tensor<64xi32>
    ```
  }];
  let arguments = (ins QDist_Ids:$x, StrArrayAttr:$axes, I64Attr:$size);
  let results = (outs QDist_Ids:$y);
  let assemblyFormat = "$x `over` $axes prop-dict attr-dict `:` type($x)";
  let hasVerifier = 1;
}

def QDist_ShardConstraintOp : Op<QDist_Dialect, "shard_constraint", [Pure, SameOperandsAndResultType]> {
  let summary = "From here on the value is split so";
  let description = [{
    A seed of sharding inside of a function: closed, like those of arguments. Partitioning turns it into the collective that it
    takes, if any. With `keep_partial` a sum over ranks stays one over the axes that the sharding does not split over: a
    gradient is scattered where it is made and reduced over the other axes later.

    - **Constraints.** (C1) the sharding fits the value: one set of axes per dimension, which the ranks divide. (C2) with
      `keep_partial` it is not partial itself.

    Example:
    ```mlir
    %y = qdist.shard_constraint %x <{sharding = #qdist.sharding<[{dps, tp}, {} ]>}> : tensor<64x64xf32>
    ```
  }];
  let arguments = (ins QDist_Numbers:$x, QDist_ShardingAttr:$sharding, UnitAttr:$keep_partial);
  let results = (outs QDist_Numbers:$y);
  let assemblyFormat = "$x prop-dict attr-dict `:` type($x)";
  let hasVerifier = 1;
}
