// Prints one CPU kernel at any stage of its compilation, for tests and readers:
//
//   qwen35-cpu-kernel rms_norm --attrs='{eps = 1.0e-6, offset = 1.0}'
//     --types='(memref<3x64xf32>, memref<64xf32>)
//              -> (memref<3x64xf32>, memref<3xf32>)' --emit=mlir

#include "codegen/cpu/Compile.h"

#include "mlir/AsmParser/AsmParser.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/MLIRContext.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace qwen35::codegen::cpu;
namespace cl = llvm::cl;

namespace {

enum class Emit { Plan, Mlir, LlvmIr, OptimizedLlvmIr, Assembly };

cl::opt<std::string> op(cl::Positional, cl::Required, cl::desc("<op>"));
cl::opt<std::string> attrs("attrs", cl::desc("Attributes of the kernel"),
                           cl::init("{}"));
cl::opt<std::string>
    types("types", cl::Required,
          cl::desc("Function type: memrefs of inputs and outputs"));
cl::opt<std::string> cpuName("cpu", cl::desc("Target cpu (x86-64-v3)"),
                             cl::init("x86-64-v3"));
cl::opt<Emit> emit(
    "emit", cl::desc("What to print"), cl::init(Emit::Mlir),
    cl::values(clEnumValN(Emit::Plan, "plan", "grids, workspace, aliases"),
               clEnumValN(Emit::Mlir, "mlir", "before lowering"),
               clEnumValN(Emit::LlvmIr, "llvm", "LLVM IR"),
               clEnumValN(Emit::OptimizedLlvmIr, "opt", "optimized LLVM IR"),
               clEnumValN(Emit::Assembly, "asm", "assembly")));

} // namespace

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  cl::ParseCommandLineOptions(argc, argv, "Prints a CPU kernel\n");
  registerAllKernels();
  DialectRegistry registry;
  registerCpuDialects(registry);
  MLIRContext context(registry);
  auto emitError = [&] { return mlir::emitError(UnknownLoc::get(&context)); };

  auto config =
      dyn_cast_or_null<DictionaryAttr>(parseAttribute(attrs, &context));
  auto signature = dyn_cast_or_null<FunctionType>(parseType(types, &context));
  auto areMemRefs = [](TypeRange types) {
    return llvm::all_of(types, [](Type type) { return isa<MemRefType>(type); });
  };
  if (!config || !signature || !areMemRefs(signature.getInputs()) ||
      !areMemRefs(signature.getResults())) {
    emitError() << "--attrs must be a dictionary and --types a function type "
                   "of memrefs";
    return 1;
  }
  NamedKernel kernel{op, {op, config, {}, {}}};
  for (Type type : signature.getInputs())
    kernel.spec.inputs.push_back(cast<MemRefType>(type));
  for (Type type : signature.getResults())
    kernel.spec.outputs.push_back(cast<MemRefType>(type));

  if (emit == Emit::Plan) {
    const KernelFamily *family = lookupKernel(op);
    if (!family) {
      emitError() << "no CPU kernel for op " << op;
      return 1;
    }
    FailureOr<KernelPlan> plan = family->plan(kernel.spec, emitError);
    if (failed(plan))
      return 1;
    llvm::outs() << "grids:";
    for (int64_t grid : plan->grids)
      llvm::outs() << ' ' << grid;
    llvm::outs() << "\nworkspace: " << plan->workspaceBytes << "\nmay alias:";
    for (auto [output, input] : plan->mayAlias)
      llvm::outs() << " (output " << output << ", input " << input << ')';
    llvm::outs() << '\n';
    return 0;
  }
  KernelText what = emit == Emit::Mlir     ? KernelText::Mlir
                    : emit == Emit::LlvmIr ? KernelText::LlvmIr
                    : emit == Emit::OptimizedLlvmIr
                        ? KernelText::OptimizedLlvmIr
                        : KernelText::Assembly;
  CpuTarget target;
  target.cpu = cpuName;
  FailureOr<std::string> text =
      printKernel(&context, kernel, target, what, emitError);
  if (failed(text))
    return 1;
  llvm::outs() << *text;
  return 0;
}
