// qwen35-interpret: runs a function of stage S0 or S1 on the reference ops.

#include "dialect/Interpreter/Interpreter.h"
#include "dialect/Interpreter/Names.h"
#include "dialect/QKern/IR/QKernDialect.h"
#include "tools/qwen35-interpret/Arguments.h"
#include "tools/qwen35-interpret/TensorFiles.h"
#include "tools/qwen35-interpret/Text.h"

#include "mlir/IR/AsmState.h"
#include "mlir/Parser/Parser.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/WithColor.h"

using namespace mlir;
using namespace qwen35;
namespace cl = llvm::cl;

static cl::OptionCategory category("qwen35-interpret options");
static cl::opt<std::string> file(cl::Positional, cl::desc("FILE.mlir"),
                                 cl::init("-"), cl::cat(category));
static cl::opt<std::string> functionName("function",
                                         cl::desc("Function to run"),
                                         cl::value_desc("name"),
                                         cl::init("model"), cl::cat(category));
static cl::opt<bool> fp64("fp64",
                          cl::desc("Compute in double, never round (default)"),
                          cl::cat(category));
static cl::opt<bool>
    fp32("fp32", cl::desc("Compute f32 in float, round bf16 values to bf16"),
         cl::cat(category));
static cl::opt<std::string>
    inputs("inputs", cl::desc("Arguments by name: qwen35.name, after the role "
                              "for grad., m., v. and sum.; arg0, arg1, ... "
                              "without; tensors of other names are ignored"),
           cl::value_desc("file.safetensors"), cl::cat(category));
static cl::opt<std::string>
    weights("weights", cl::desc("Parameters: a safetensors file or a Hugging "
                                "Face folder"),
            cl::value_desc("path"), cl::cat(category));
static cl::opt<std::string>
    outputs("outputs", cl::desc("Write the results here instead of printing "
                                "them"),
            cl::value_desc("file.safetensors"), cl::cat(category));
static cl::list<int64_t>
    documents("documents", cl::desc("Document lengths, for the document table"),
              cl::value_desc("37,43"), cl::CommaSeparated, cl::cat(category));
static cl::list<std::string> scalars("scalar", cl::desc("A scalar argument"),
                                     cl::value_desc("name=value"),
                                     cl::cat(category));
static cl::opt<bool>
    zeroState("zero-state",
              cl::desc("m, v, grad and sum arguments not in inputs are 0"),
              cl::cat(category));
static cl::opt<bool> printCost("cost", // --stats is LLVM's
                               cl::desc("Print ops run and peak memory"),
                               cl::cat(category));

static llvm::raw_ostream &error() { return llvm::WithColor::error(); }

static LogicalResult run() {
  if (fp64 && fp32) {
    error() << "--fp64 and --fp32 exclude each other\n";
    return failure();
  }
  DialectRegistry registry;
  registry.insert<arith::ArithDialect, func::FuncDialect, Qwen35Dialect,
                  qkern::QKernDialect>();
  MLIRContext context(registry);
  llvm::SourceMgr sources;
  SourceMgrDiagnosticHandler diagnostics(sources, &context);
  auto module = parseSourceFile<ModuleOp>(file, sources, &context);
  if (!module)
    return failure();
  auto function = module->lookupSymbol<func::FuncOp>(functionName);
  if (!function) {
    error() << file << " has no function @" << functionName << ", only";
    for (auto other : module->getOps<func::FuncOp>())
      llvm::errs() << " @" << other.getName();
    llvm::errs() << "\n";
    return failure();
  }

  auto collected = interpret::collectInputs(
      function, {inputs, weights, {documents.begin(), documents.end()},
                 {scalars.begin(), scalars.end()}, zeroState});
  if (failed(collected))
    return failure();
  interpreter::Stats stats;
  interpreter::Options options{!fp32, &stats};
  auto results = interpreter::interpret(function, collected->arguments,
                                        collected->params, options);
  if (failed(results))
    return failure();
  if (printCost)
    llvm::errs() << stats.operations << " ops, " << stats.peakBytes
                 << " bytes at the peak\n";

  if (outputs.empty()) {
    for (auto [i, result] : llvm::enumerate(*results))
      interpret::print(llvm::outs(), interpreter::resultName(function, i),
                       result);
    return success();
  }
  std::map<std::string, interpreter::Tensor> named;
  for (auto [i, result] : llvm::enumerate(*results)) {
    std::string name = interpreter::resultName(function, i);
    if (!named.emplace(name, std::move(result)).second) {
      error() << "two results of @" << functionName << " are named " << name
              << "\n";
      return failure();
    }
  }
  absl::Status status = interpret::writeTensors(outputs, named);
  if (!status.ok()) {
    error() << std::string(status.message()) << "\n";
    return failure();
  }
  return success();
}

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  cl::HideUnrelatedOptions(category);
  cl::ParseCommandLineOptions(
      argc, argv,
      "Runs a function of a Qwen3.5 training step on the reference ops\n");
  return failed(run());
}
