#include "codegen/cpu/Backend.h"
#include "codegen/cpu/KernelBuilder.h"

#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/FuncToLLVM/ConvertFuncToLLVM.h"
#include "mlir/Conversion/LLVMCommon/ConversionTarget.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/MemRefToLLVM/MemRefToLLVM.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVM.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "mlir/Transforms/DialectConversion.h"
#include "llvm/ADT/SmallSet.h"

using namespace mlir;

namespace qwen35::codegen::cpu {
namespace {

constexpr llvm::StringLiteral kBodySuffix = ".body";

/// The pointer passed is that of the first element, whatever the layout says.
MemRefType argumentType(MemRefType type) {
  auto [strides, offset] = type.getStridesAndOffset();
  if (offset == 0)
    return type;
  return MemRefType::get(type.getShape(), type.getElementType(),
                         StridedLayoutAttr::get(type.getContext(), 0, strides),
                         type.getMemorySpace());
}

} // namespace

void registerCpuDialects(DialectRegistry &registry) {
  registry
      .insert<arith::ArithDialect, cf::ControlFlowDialect, func::FuncDialect,
              LLVM::LLVMDialect, math::MathDialect, memref::MemRefDialect,
              scf::SCFDialect, vector::VectorDialect>();
  registerBuiltinDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
}

OwningOpRef<ModuleOp> buildModule(MLIRContext *context,
                                  const NamedKernel &kernel,
                                  const KernelFamily &family,
                                  const KernelPlan &plan,
                                  const ResolvedTarget &target) {
  Location loc = NameLoc::get(StringAttr::get(context, kernel.symbol));
  OwningOpRef<ModuleOp> module = ModuleOp::create(loc);
  OpBuilder builder(module->getBodyRegion());

  const KernelSpec &spec = kernel.spec;
  SmallVector<Type> types;
  for (MemRefType type : spec.inputs)
    types.push_back(argumentType(type));
  for (MemRefType type : spec.outputs)
    types.push_back(argumentType(type));
  if (plan.workspaceBytes > 0)
    types.push_back(
        MemRefType::get({plan.workspaceBytes}, builder.getIntegerType(8)));
  llvm::SmallSet<unsigned, 8> aliased;
  for (auto [output, input] : plan.mayAlias) {
    aliased.insert(input);
    aliased.insert(spec.inputs.size() + output);
  }
  unsigned pointers = types.size();
  types.push_back(builder.getI64Type());

  for (unsigned stage = 0; stage < plan.grids.size(); ++stage) {
    std::string name = stageSymbol(kernel.symbol, stage) + kBodySuffix.str();
    auto function = func::FuncOp::create(builder, loc, name,
                                         builder.getFunctionType(types, {}));
    for (unsigned i = 0; i < pointers; ++i)
      if (!aliased.contains(i))
        function.setArgAttr(i, LLVM::LLVMDialect::getNoAliasAttrName(),
                            builder.getUnitAttr());
    function.addEntryBlock();
    KernelBuilder k(function, spec, plan, target.vectorBytes,
                    target.vectorRegisters);
    family.emit(spec, stage, k);
    func::ReturnOp::create(k.b(), loc);
  }
  return module;
}

LogicalResult lowerModule(ModuleOp module, llvm::StringRef dataLayout) {
  MLIRContext *context = module.getContext();
  module->setAttr(LLVM::LLVMDialect::getDataLayoutAttrName(),
                  StringAttr::get(context, dataLayout));
  LowerToLLVMOptions options(context);
  options.useBarePtrCallConv = true;
  options.dataLayout = llvm::DataLayout(dataLayout);
  LLVMTypeConverter converter(context, options);
  RewritePatternSet patterns(context);
  populateSCFToControlFlowConversionPatterns(patterns);
  arith::populateArithToLLVMConversionPatterns(converter, patterns);
  populateMathToLLVMConversionPatterns(converter, patterns);
  populateVectorToLLVMConversionPatterns(converter, patterns);
  populateFinalizeMemRefToLLVMConversionPatterns(converter, patterns);
  cf::populateControlFlowToLLVMConversionPatterns(converter, patterns);
  populateFuncToLLVMConversionPatterns(converter, patterns);
  LLVMConversionTarget target(*context);
  target.addLegalOp<ModuleOp>();
  if (failed(applyFullConversion(module, target, std::move(patterns))))
    return failure();

  // void symbol(void *const *args, int64_t task): loads the pointers and calls
  // the body, where each is a parameter of its own that can be noalias.
  OpBuilder builder(context);
  auto pointer = LLVM::LLVMPointerType::get(context);
  for (auto body :
       llvm::make_early_inc_range(module.getOps<LLVM::LLVMFuncOp>())) {
    llvm::StringRef name = body.getSymName();
    if (!name.consume_back(kBodySuffix))
      continue;
    body.setLinkage(LLVM::Linkage::Internal);
    Location loc = body.getLoc();
    builder.setInsertionPointAfter(body);
    auto entry = LLVM::LLVMFuncOp::create(
        builder, loc, name,
        LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(context),
                                    {pointer, builder.getI64Type()}));
    Block *block = entry.addEntryBlock(builder);
    builder.setInsertionPointToEnd(block);
    SmallVector<Value> operands;
    for (unsigned i = 0; i + 1 < body.getNumArguments(); ++i) {
      Value slot = LLVM::GEPOp::create(builder, loc, pointer, pointer,
                                       block->getArgument(0),
                                       ArrayRef<LLVM::GEPArg>{int32_t(i)});
      operands.push_back(LLVM::LoadOp::create(builder, loc, pointer, slot));
    }
    operands.push_back(block->getArgument(1));
    LLVM::CallOp::create(builder, loc, body, operands);
    LLVM::ReturnOp::create(builder, loc, ValueRange());
  }
  return success();
}

std::unique_ptr<llvm::Module> translateModule(ModuleOp module,
                                              llvm::LLVMContext &context,
                                              const ResolvedTarget &target,
                                              llvm::TargetMachine &machine) {
  auto translated = translateModuleToLLVMIR(module, context, "kernel");
  if (!translated)
    return nullptr;
  translated->setTargetTriple(machine.getTargetTriple());
  translated->setDataLayout(machine.createDataLayout());
  for (llvm::Function &function : *translated) {
    if (function.isDeclaration())
      continue;
    function.addFnAttr("target-cpu", target.cpu);
    if (!target.features.empty())
      function.addFnAttr("target-features", target.features);
    function.addFnAttr(llvm::Attribute::NoUnwind);
    // Vectors are written with the width of the machine; without this LLVM
    // splits 512-bit ones on machines whose tuning prefers 256.
    function.addFnAttr("prefer-vector-width",
                       std::to_string(target.vectorBytes * 8));
  }
  return translated;
}

} // namespace qwen35::codegen::cpu
