// Prints the plan of one GPU kernel, or the unit of one of its stages, for
// tests and readers:
//
//   qwen35-cuda-kernel rms_norm --attrs='{eps = 1.0e-6, offset = 1.0}'
//     --types='(memref<3x64xbf16>, memref<64xf32>)
//              -> (memref<3x64xbf16>, memref<3xf32>)' --emit=source

#include "codegen/cuda/Kernel.h"
#include "codegen/cuda/Target.h"

#include "mlir/AsmParser/AsmParser.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/MLIRContext.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace qwen35::codegen;
using namespace qwen35::codegen::cuda;
namespace cl = llvm::cl;

namespace {

enum class Emit { Plan, Source, Emulated };

cl::opt<std::string> op(cl::Positional, cl::Required, cl::desc("<op>"));
cl::opt<std::string> attrs("attrs", cl::desc("Attributes of the kernel"),
                           cl::init("{}"));
cl::opt<std::string>
    types("types", cl::Required,
          cl::desc("Function type: memrefs of inputs and outputs"));
cl::opt<std::string> targetName("target", cl::desc("GPU target (sm_90a)"),
                                cl::init("sm_90a"));
cl::opt<unsigned> stageNumber("stage", cl::desc("Of which the unit is printed"),
                              cl::init(0));
cl::opt<Emit> emit("emit", cl::desc("What to print"), cl::init(Emit::Source),
                   cl::values(clEnumValN(Emit::Plan, "plan",
                                         "stages, workspace, aliases"),
                              clEnumValN(Emit::Source, "source", "CUDA C++"),
                              clEnumValN(Emit::Emulated, "emulated",
                                         "the same for the host")));

void printPlan(const KernelPlan &plan) {
  for (const Stage &stage : plan.stages) {
    if (const auto *device = std::get_if<DeviceStage>(&stage))
      llvm::outs() << device->function << ": " << device->blocks
                   << " blocks of " << device->threads << " threads, "
                   << device->sharedBytes << " bytes shared, "
                   << device->minBlocks << " per multiprocessor\n";
    else
      llvm::outs() << "library product\n";
  }
  llvm::outs() << "workspace: " << plan.workspaceBytes << "\nmay alias:";
  for (auto [output, input] : plan.mayAlias)
    llvm::outs() << " (output " << output << ", input " << input << ')';
  llvm::outs() << '\n';
}

} // namespace

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  cl::ParseCommandLineOptions(argc, argv, "Prints a GPU kernel\n");
  registerAllKernels();
  MLIRContext context;
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
  KernelSpec spec{op, config, {}, {}};
  for (Type type : signature.getInputs())
    spec.inputs.push_back(cast<MemRefType>(type));
  for (Type type : signature.getResults())
    spec.outputs.push_back(cast<MemRefType>(type));

  std::optional<GpuTarget> target = gpuTarget(targetName);
  const KernelFamily *family = lookupKernel(op);
  if (!target || !family) {
    emitError() << "no GPU kernel for op " << op << " on " << targetName;
    return 1;
  }
  FailureOr<KernelPlan> plan = family->plan(spec, *target, emitError);
  if (failed(plan))
    return 1;
  if (emit == Emit::Plan) {
    printPlan(*plan);
    return 0;
  }
  if (stageNumber >= plan->stages.size() ||
      !std::holds_alternative<DeviceStage>(plan->stages[stageNumber])) {
    emitError() << "stage " << stageNumber << " of " << op << " has no source";
    return 1;
  }
  llvm::outs() << (emit == Emit::Source
                       ? printSource(op, spec, *plan, stageNumber)
                       : printEmulated(op, spec, *plan, stageNumber));
  return 0;
}
