// qwen35-import MODEL: the training model of a preset or a Hugging Face config
// at stage S0, as text.
#include "frontend/config/ConfigJson.h"
#include "frontend/config/ModelFiles.h"
#include "frontend/config/Parameters.h"
#include "frontend/config/Text.h"
#include "frontend/model/TrainModel.h"

#include "mlir/IR/MLIRContext.h"
#include "mlir/Support/FileUtilities.h"

#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/ToolOutputFile.h"

namespace cl = llvm::cl;

namespace {

cl::OptionCategory category("qwen35-import options");
cl::opt<std::string>
    model(cl::Positional, cl::Required,
          cl::desc("MODEL (preset, config.json or folder with one)"),
          cl::cat(category));
cl::opt<std::string> output("o", cl::desc("Output file"),
                            cl::value_desc("file"), cl::init("-"),
                            cl::cat(category));
cl::opt<int64_t> tokens("tokens", cl::desc("Token slots of a packed row"),
                        cl::value_desc("T"), cl::init(256), cl::cat(category));
cl::opt<int64_t>
    maxDocs("max-docs",
            cl::desc("Documents a row may hold, padding not included"),
            cl::value_desc("N"), cl::init(16), cl::cat(category));
cl::opt<qwen35::AuxScope>
    aux("aux", cl::desc("Auxiliary load-balance loss of a MoE model"),
        cl::init(qwen35::AuxScope::None),
        cl::values(clEnumValN(qwen35::AuxScope::None, "none", "no such loss"),
                   clEnumValN(qwen35::AuxScope::Pooled, "pooled",
                              "over all layers at once, as transformers does"),
                   clEnumValN(qwen35::AuxScope::PerLayer, "per_layer",
                              "one per layer, summed")),
        cl::cat(category));
cl::opt<double>
    auxCoefficient("aux-coef",
                   cl::desc("Its coefficient; the config's by default"),
                   cl::cat(category));
cl::opt<bool> locations("locations",
                        cl::desc("Print the module path of every op"),
                        cl::cat(category));

enum class Show { Model, Config, Parameters };
cl::opt<Show>
    show(cl::desc("What to print instead of the S0 module:"),
         cl::init(Show::Model),
         cl::values(clEnumValN(Show::Config, "show-config",
                               "the text model as a flat config.json"),
                    clEnumValN(Show::Parameters, "show-parameters",
                               "one line per parameter, then the counts")),
         cl::cat(category));

void printParameters(const qwen35::ModelConfig &config, llvm::raw_ostream &os) {
  for (const qwen35::ParameterSpec &row : qwen35::parameterTable(config)) {
    std::string shape;
    for (int64_t size : row.shape)
      shape += (shape.empty() ? "" : "x") + std::to_string(size);
    os << llvm::formatv("{0,-60} {1,-16} {2,-22} {3,-8} {4}\n", row.name, shape,
                        row.init, row.decay ? "decay" : "no decay",
                        qwen35::fileTypeName(row.fileType));
  }
  qwen35::ParameterCount count = qwen35::countParameters(config);
  os << llvm::formatv("parameters {0}, active per token {1} without and {2} "
                      "with the head\n",
                      count.total, count.activeBody, count.activeWithHead);
}

int fail(const llvm::Twine &message) {
  llvm::errs() << "qwen35-import: error: " << message << "\n";
  return 1;
}

int run() {
  llvm::Expected<qwen35::ModelSource> source = qwen35::parseModel(model);
  if (!source)
    return fail(llvm::toString(source.takeError()));
  for (const std::string &warning : source->warnings)
    llvm::errs() << "qwen35-import: warning: " << warning << "\n";

  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  mlir::OwningOpRef<mlir::ModuleOp> module;
  if (show == Show::Model) {
    qwen35::TrainModelOptions options;
    options.tokens = tokens;
    options.maxDocs = maxDocs < 1 ? maxDocs : maxDocs + 1;
    options.aux = aux;
    options.auxCoefficient = auxCoefficient.getNumOccurrences()
                                 ? double(auxCoefficient)
                                 : source->config.routerAuxLossCoef;
    module = qwen35::buildTrainModel(context, source->config, options);
    if (!module)
      return 1; // A diagnostic has said why.
  }

  std::string message;
  auto file = mlir::openOutputFile(output, &message);
  if (!file)
    return fail(message);
  if (show == Show::Config) {
    file->os() << qwen35::toConfigJson(source->config);
  } else if (show == Show::Parameters) {
    printParameters(source->config, file->os());
  } else {
    mlir::OpPrintingFlags flags;
    flags.enableDebugInfo(locations, /*prettyForm=*/false);
    module->print(file->os(), flags);
  }
  file->keep();
  return 0;
}

} // namespace

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  cl::HideUnrelatedOptions(category);
  cl::ParseCommandLineOptions(
      argc, argv, "The training model of a config at stage S0, as text\n");
  return run();
}
