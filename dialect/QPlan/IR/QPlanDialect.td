#ifndef QWEN35_DIALECT_QPLAN_IR_QPLANDIALECT_TD
#define QWEN35_DIALECT_QPLAN_IR_QPLANDIALECT_TD

include "mlir/IR/OpBase.td"
include "mlir/IR/BuiltinAttributeInterfaces.td"
include "mlir/IR/SymbolInterfaces.td"

def QPlan_Dialect : Dialect {
  let name = "qplan";
  let cppNamespace = "::qwen35::qplan";
  let summary = "Arenas, buffers and launches: the bundle as IR";
  let description = [{
    Stage S6. A module of symbols: arenas, the buffers inside them, the kernels, the parameters and, per program, the list
    of launches. One op per entry of the bundle.
  }];
}

class QPlan_Op<string mnemonic, list<Trait> traits = []> : Op<QPlan_Dialect, mnemonic, traits>;

def QPlan_ArenaOp : QPlan_Op<"arena", [Symbol]> {
  let summary = "A memory block that the runtime allocates once";
  let description = [{
    Example:
    ```mlir
    qplan.arena @act bytes 65536 align 256
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, I64Attr:$bytes, I64Attr:$align);
  let assemblyFormat = "$sym_name `bytes` $bytes `align` $align attr-dict";
  let hasVerifier = 1;
}

def QPlan_BufferOp : QPlan_Op<"buffer", [Symbol]> {
  let summary = "A range of an arena";
  let description = [{
    `type` is the tensor it holds; workspaces are `tensor<Nxi8>`. `category` is what memory reports count it as: weights,
    optimizer, gradients, activations, loss, workspace or io.

    - **Constraints.** (C1) the offset is a multiple of the arena's alignment. (C2) it lies inside the arena.

    Example:
    ```mlir
    qplan.buffer @finish.12 in @act at 4096 : tensor<64x128xf32> as "activations"
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, FlatSymbolRefAttr:$arena, I64Attr:$offset, TypeAttr:$type,
                       StrAttr:$category);
  let assemblyFormat = "$sym_name `in` $arena `at` $offset `:` $type `as` $category attr-dict";
  let extraClassDeclaration = [{
    /// Size of the tensor in bytes.
    int64_t bytes();
  }];
}

def QPlan_KernelOp : QPlan_Op<"kernel", [Symbol]> {
  let summary = "One compiled kernel: a family, its constants and its argument types";
  let description = [{
    Example:
    ```mlir
    qplan.kernel @rms_norm_0 "rms_norm" {eps = 1.0e-6, offset = 1.0} stages 1
        (memref<64x128xf32>, memref<128xf32>) to (memref<64x128xf32>, memref<64xf32>)
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, StrAttr:$kernel, DictionaryAttr:$config, I64Attr:$stages,
                       TypeArrayAttr:$inputs, TypeArrayAttr:$outputs, UnitAttr:$workspace);
  let assemblyFormat = [{
    $sym_name $kernel $config `stages` $stages custom<TypeList>($inputs) `to` custom<TypeList>($outputs)
    (`workspace` $workspace^)? attr-dict
  }];
}

def QPlan_ParamOp : QPlan_Op<"param"> {
  let summary = "A parameter and its state";
  let description = [{
    `work` is the copy of the weight in the type in which products read it, where there is one: the optimizer writes it
    with the weight, and program `refresh` makes it after anything else has written the weight.

    Example:
    ```mlir
    qplan.param "model.norm.weight" weight @w.0 m @m.0 v @v.0 grad @g.0 {init = "zeros", decay = false, file_dtype = "bf16"}
    qplan.param "lm_head.weight" weight @w.1 m @m.1 v @v.1 grad @g.1 work @c.1 {init = "zeros", decay = true, file_dtype = "bf16"}
    ```
  }];
  let arguments = (ins StrAttr:$name, FlatSymbolRefAttr:$weight, FlatSymbolRefAttr:$m, FlatSymbolRefAttr:$v,
                       FlatSymbolRefAttr:$grad, OptionalAttr<FlatSymbolRefAttr>:$work, StrAttr:$init, BoolAttr:$decay,
                       StrAttr:$file_dtype);
  let assemblyFormat = "$name `weight` $weight `m` $m `v` $v `grad` $grad (`work` $work^)? attr-dict";
}

def QPlan_IoOp : QPlan_Op<"io"> {
  let summary = "A buffer that the host writes before a program or reads after it";
  let description = [{
    `kind` is input, scalar or output.

    Example:
    ```mlir
    qplan.io "scalar" "lr" @io.lr
    ```
  }];
  let arguments = (ins StrAttr:$kind, StrAttr:$name, FlatSymbolRefAttr:$buffer);
  let assemblyFormat = "$kind $name $buffer attr-dict";
}

def QPlan_ProgramOp : QPlan_Op<"program", [Symbol, NoTerminator, SingleBlock]> {
  let summary = "Launches in order";
  let description = [{
    Example:
    ```mlir
    qplan.program @begin {
      qplan.memset @g.0 value 0
    }
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$sym_name $body attr-dict";
}

def QPlan_LaunchOp : QPlan_Op<"launch", [HasParent<"ProgramOp">]> {
  let summary = "One stage of a kernel on planned memory";
  let description = [{
    Argument i starts `offsets[i]` bytes into `buffers[i]` and touches at most `bytes[i]` from there; `writes[i]` says
    whether the kernel writes it.

    - **Constraints.** (C1) the arrays have one entry per argument. (C2) the grid is positive.

    Example:
    ```mlir
    qplan.launch @rms_norm_0 stage 0 grid 4 buffers [@a, @w.0, @b, @c] offsets [0, 0, 0, 0] bytes [8192, 512, 8192, 256]
        writes [false, false, true, true] tag "layers.0.input_layernorm"
    ```
  }];
  let arguments = (ins FlatSymbolRefAttr:$kernel, I64Attr:$stage, I64Attr:$grid, FlatSymbolRefArrayAttr:$buffers,
                       DenseI64ArrayAttr:$offsets, DenseI64ArrayAttr:$bytes, DenseBoolArrayAttr:$writes, StrAttr:$tag);
  let assemblyFormat = [{
    $kernel `stage` $stage `grid` $grid `buffers` $buffers `offsets` $offsets `bytes` $bytes `writes` $writes `tag` $tag
    attr-dict
  }];
  let hasVerifier = 1;
}

def QPlan_MemsetOp : QPlan_Op<"memset", [HasParent<"ProgramOp">]> {
  let summary = "Fills a buffer with one byte value";
  let description = [{
    Example:
    ```mlir
    qplan.memset @g.0 value 0
    ```
  }];
  let arguments = (ins FlatSymbolRefAttr:$buffer, I64Attr:$value);
  let assemblyFormat = "$buffer `value` $value attr-dict";
}

def QPlan_CollectiveOp : QPlan_Op<"collective", [HasParent<"ProgramOp">]> {
  let summary = "One exchange between the ranks of a group, on planned memory";
  let description = [{
    `qkern.collective` with places: part p goes from `offsets[2p]` bytes into `buffers[2p]` to `offsets[2p+1]` bytes into
    `buffers[2p+1]`. Where parts do not lie in one piece they are gathered at `sendStage` bytes of `stage`, and what comes
    is received at `receiveStage`; -1: from and to the parts themselves. `sequence` numbers the collectives of the plan: all
    ranks run them in that order. With `async` it is started here and ends at its `qplan.wait`; until then nothing writes what it
    reads, or touches what it writes.

    - **Constraints.** (C1) the arrays have one entry per part, two where it has two ends. (C2) `ranks` is that of the axes.

    Example:
    ```mlir
    qplan.collective "all_reduce" 7 over ["dps"] buffers [@a, @b] <{counts = array<i64: 64>, dtype = f32,
        offsets = array<i64: 0, 0>, ranks = 2 : i64, receiveOuter = array<i64: 1>, receiveStage = -1 : i64,
        sendOuter = array<i64: 1>, sendStage = -1 : i64}> tag "layers.0.mlp"
    ```
  }];
  let arguments = (ins StrAttr:$kind, I64Attr:$sequence, StrArrayAttr:$axes, FlatSymbolRefArrayAttr:$buffers,
                       DenseI64ArrayAttr:$offsets, I64Attr:$ranks, TypeAttr:$dtype, DenseI64ArrayAttr:$counts,
                       DenseI64ArrayAttr:$sendOuter, DenseI64ArrayAttr:$receiveOuter,
                       OptionalAttr<FlatSymbolRefAttr>:$stage, I64Attr:$sendStage, I64Attr:$receiveStage,
                       DefaultValuedAttr<StrAttr, "\"sum\"">:$reduction, OptionalAttr<TypeAttr>:$wire,
                       OptionalAttr<TypeAttr>:$accumulate, DefaultValuedAttr<I64Attr, "0">:$offset, StrAttr:$tag,
                       UnitAttr:$async);
  let assemblyFormat = [{
    $kind $sequence `over` $axes `buffers` $buffers prop-dict `tag` $tag attr-dict
  }];
  let extraClassDeclaration = [{
    /// Pieces of a rank's own end and of the other: what `qkern.collective` says.
    int64_t sendPieces();
    int64_t receivePieces();
    int64_t elementBytes();
    /// Bytes of one piece of every part.
    int64_t pieceBytes();
  }];
  let hasVerifier = 1;
}

def QPlan_WaitOp : QPlan_Op<"wait", [HasParent<"ProgramOp">]> {
  let summary = "Goes on once a collective of the program has ended";
  let description = [{
    - **Constraints.** (C1) `sequence` is that of a collective with `async` before it in its program, for which nothing has waited.

    Example:
    ```mlir
    qplan.wait 7
    ```
  }];
  let arguments = (ins I64Attr:$sequence);
  let assemblyFormat = "$sequence attr-dict";
}

def QPlan_RankVarOp : QPlan_Op<"rank_var"> {
  let summary = "A buffer that holds the coordinate of the rank in its group";
  let description = [{
    The runtime writes it once.

    Example:
    ```mlir
    qplan.rank_var @rank.tp over ["tp"]
    ```
  }];
  let arguments = (ins FlatSymbolRefAttr:$buffer, StrArrayAttr:$axes);
  let assemblyFormat = "$buffer `over` $axes attr-dict";
}

#endif
