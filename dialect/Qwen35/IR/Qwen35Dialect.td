#ifndef QWEN35_DIALECT_QWEN35_IR_QWEN35DIALECT_TD
#define QWEN35_DIALECT_QWEN35_IR_QWEN35DIALECT_TD

include "mlir/IR/OpBase.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/BuiltinAttributeInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "dialect/Qwen35/IR/Qwen35Interfaces.td"

def Qwen35_Dialect : Dialect {
  let name = "qwen35";
  let cppNamespace = "::qwen35";
  let summary = "Model math of the Qwen3.5 hybrid decoder on static tensors";
  let description = [{
    Ops of stages S0 (model) to S4 (scheduled). Every value is a ranked tensor of static shape, or the document table
    of the row, `!qwen35.seq`. Ops are pure; rounding happens once per op, to the element type of the result.
  }];
  let useDefaultTypePrinterParser = 1;
  let dependentDialects = ["::mlir::arith::ArithDialect"];
}

def Qwen35_SeqType : TypeDef<Qwen35_Dialect, "Seq"> {
  let mnemonic = "seq";
  let summary = "Table of the documents packed into one row";
  let description = [{
    `!qwen35.seq<tokens, maxDocs>`: cumulative lengths, chunk grid and document bounds of a row of `tokens` slots that
    holds at most `maxDocs` documents, padding included. One description drives conv, delta rule, attention, positions
    and losses. Its words are those of `SeqTable` in runtime/schema/seq_table.h.
  }];
  let parameters = (ins "int64_t":$tokens, "int64_t":$maxDocs);
  let assemblyFormat = "`<` $tokens `,` $maxDocs `>`";
  let genVerifyDecl = 1;
}

def Qwen35_Float : AnyTypeOf<[F32, F64, BF16]>;
class Qwen35_Static<list<Type> types, int rank, string summary>
    : RankedTensorOf<types, [HasStaticShapePred, HasAnyRankOfPred<[rank]>], summary>;
def Qwen35_Tensor : StaticShapeTensorOf<[Qwen35_Float]>;
def Qwen35_Vector : Qwen35_Static<[Qwen35_Float], 1, "static vector">;
def Qwen35_Matrix : Qwen35_Static<[Qwen35_Float], 2, "static matrix">;
def Qwen35_Heads : Qwen35_Static<[Qwen35_Float], 3, "static rank-3 tensor">;
def Qwen35_States : Qwen35_Static<[Qwen35_Float], 4, "static rank-4 tensor">;
def Qwen35_Stripes : Qwen35_Static<[I32], 1, "static vector of i32">;
def Qwen35_Scalar : Qwen35_Static<[Qwen35_Float], 0, "scalar tensor">;
def Qwen35_Ids : StaticShapeTensorOf<[I32]>;

// An op whose result types follow from its operands and attributes, printed as
// `%r = qwen35.name %a, %b <{attrs}> : type(a), type(b)`.
class Qwen35_Op<string mnemonic, list<Trait> traits = []>
    : Op<Qwen35_Dialect, mnemonic, !listconcat([Pure, InferTypeOpAdaptor], traits)> {
  let assemblyFormat = "operands prop-dict attr-dict `:` type(operands)";
}

// Also has a VJP.
class Qwen35_DiffOp<string mnemonic, list<Trait> traits = []>
    : Qwen35_Op<mnemonic, !listconcat(traits, [DeclareOpInterfaceMethods<Qwen35_DifferentiableOp>])>;

#endif
