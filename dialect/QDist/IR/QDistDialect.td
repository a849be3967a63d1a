#ifndef QWEN35_DIALECT_QDIST_IR_QDISTDIALECT_TD
#define QWEN35_DIALECT_QDIST_IR_QDISTDIALECT_TD

include "mlir/IR/OpBase.td"
include "mlir/IR/AttrTypeBase.td"

def QDist_Dialect : Dialect {
  let name = "qdist";
  let cppNamespace = "::qwen35::qdist";
  let summary = "Meshes of ranks, shardings and collectives";
  let description = [{
    Stages S2 and S3. A module that is annotated or partitioned has the attribute `qdist.mesh`; arguments and results of its
    functions have `qdist.sharding`. At S2 every op says in `qdist.operands` and `qdist.results` how its values are split; at
    S3 shapes are those of one rank and everything that ranks exchange is an op of this dialect.

    Collectives name the axes of the mesh over which they run: ranks that differ only in those form a group, in the order of
    their coordinates, the innermost axis fastest.
  }];
  let useDefaultAttributePrinterParser = 1;
  let hasOperationAttrVerify = 1;
}

class QDist_Attr<string name, string attrMnemonic> : AttrDef<QDist_Dialect, name> {
  let mnemonic = attrMnemonic;
}

def QDist_MeshAttr : QDist_Attr<"Mesh", "mesh"> {
  let summary = "Sizes of the axes of a mesh of ranks";
  let description = [{
    Axes from the outermost: `pp`, `dpr`, `dps`, `cp`, `tp`. `ep` is the contiguous innermost run of (dps, cp, tp) that holds
    different experts, `kv` how many of the tp ranks hold different key/value heads (0: all). An axis that `ep` or `kv` cuts
    consists of atoms, `tp.0` outside of `tp.1`.

    Example: `#qdist.mesh<dps = 2, cp = 2, tp = 2, ep = 4>`
  }];
  let parameters = (ins DefaultValuedParameter<"int64_t", "1">:$pp, DefaultValuedParameter<"int64_t", "1">:$dpr,
                        DefaultValuedParameter<"int64_t", "1">:$dps, DefaultValuedParameter<"int64_t", "1">:$cp,
                        DefaultValuedParameter<"int64_t", "1">:$tp, DefaultValuedParameter<"int64_t", "1">:$ep,
                        DefaultValuedParameter<"int64_t", "0">:$kv);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    ::qwen35::MeshShape getShape() const;
    ::qwen35::Mesh getMesh() const;
    static MeshAttr get(::mlir::MLIRContext *context, const ::qwen35::MeshShape &shape);
  }];
}

def QDist_ShardingAttr : QDist_Attr<"Sharding", "sharding"> {
  let summary = "Over which axes the dimensions of a value are split, and over which it is still a partial result";
  let description = [{
    One set of axes per dimension; a dimension is cut into equal contiguous pieces, the innermost axis fastest. A dimension
    with sections is a row of tensors that are cut each on its own: a rank holds its piece of every section, one after the
    other. The value is the sum, or the maximum, over the axes of `partial`; over all others ranks hold the same.

    Example: `#qdist.sharding<[{dps, tp}, {} ]>`, `#qdist.sharding<[{tp : 64, 64, 128}, {} ]>`,
    `#qdist.sharding<[{dps}, {} ], partial = {tp}>`, `#qdist.sharding<[{dps} ], max = {tp}>`
  }];
  let parameters = (ins "::mlir::ArrayAttr":$dims, "::mlir::ArrayAttr":$sections, "::mlir::ArrayAttr":$partial,
                        "bool":$isMax);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def QDist_WireAttr : QDist_Attr<"Wire", "wire"> {
  let summary = "The type in which a collective sends, and in which it adds";
  let description = [{
    Without it a collective sends its elements as they are and a reduction adds f32 (f64 where values are).

    - **Constraints.** (C1) `type` is bf16, f32 or f64. (C2) `acc` is f32 or f64 and not narrower than `type`.

    Example: `#qdist.wire<type = bf16, acc = f32>`
  }];
  let parameters = (ins "::mlir::Type":$type, "::mlir::Type":$acc);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

#endif
