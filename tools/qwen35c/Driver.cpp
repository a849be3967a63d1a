#include "tools/qwen35c/Driver.h"

#include "codegen/bundle/bundle_writer.h"
#include "codegen/cpu/Compile.h"
#include "codegen/cpu/Target.h"
#include "codegen/emit/EmitBundle.h"
#include "dialect/QKern/IR/QKernDialect.h"
#include "dialect/QPlan/IR/QPlanDialect.h"
#include "frontend/config/ModelFiles.h"
#include "frontend/config/Parameters.h"
#include "frontend/model/TrainModel.h"
#include "passes/Pipelines/Pipelines.h"
#include "tools/qwen35c/PlanReport.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/SHA256.h"
#include "llvm/TargetParser/Host.h"

#include <chrono>

using namespace mlir;

namespace qwen35 {

namespace {

constexpr llvm::StringLiteral kVersion = "qwen35c 0.1.0";

class Driver {
public:
  explicit Driver(const CompileRequest &request)
      : request(request), context(makeRegistry()) {
    context.loadAllAvailableDialects();
  }

  int run() {
    if (!resolveCpu())
      return fail("--cpu is \"" + request.cpu +
                  "\", expected x86-64-v3, x86-64-v4 or native");
    llvm::Expected<ModelSource> source = parseModel(request.model);
    if (!source)
      return fail(llvm::toString(source.takeError()));
    for (const std::string &warning : source->warnings)
      llvm::errs() << "qwen35c: warning: " << warning << "\n";
    if (std::string refusal = unsupported(); !refusal.empty())
      return fail(refusal);

    const DataRecipe &data = request.recipe.data;
    TrainModelOptions options;
    options.tokens = data.tokens;
    options.maxDocs = data.maxDocs + 1; // padding is a document of its own
    const std::string &aux = request.recipe.loss.aux;
    options.aux = aux == "pooled"      ? AuxScope::Pooled
                  : aux == "per_layer" ? AuxScope::PerLayer
                                       : AuxScope::None;
    options.auxCoefficient = request.recipe.loss.auxCoef;
    begin("model");
    OwningOpRef<ModuleOp> module =
        buildTrainModel(context, source->config, options);
    if (!module || failed(runStage("S0-model", *module, [](PassManager &pm) {
          buildModelPipeline(pm);
        })))
      return 1;
    end(llvm::formatv("{0}: {1} parameters, {2} layers, rows of {3} tokens",
                      source->name,
                      countParameters(source->config).total,
                      source->config.numLayers(), data.tokens)
            .str());

    begin("autodiff");
    if (failed(runStage("S1-differentiated", *module, [&](PassManager &pm) {
          AutodiffPipelineOptions options;
          const OptimRecipe &optim = request.recipe.optim;
          options.beta1 = optim.betas[0];
          options.beta2 = optim.betas[1];
          options.eps = optim.eps;
          options.weightDecay = optim.weightDecay;
          options.gradClip = optim.gradClip;
          buildAutodiffPipeline(pm, options);
        })))
      return 1;
    end(llvm::formatv("{0} ops", countOps(*module)).str());

    begin("schedule");
    if (failed(runStage("S4-scheduled", *module, [&](PassManager &pm) {
          SchedulePipelineOptions options;
          options.remat = request.recipe.memory.remat;
          buildSchedulePipeline(pm, options);
        })))
      return 1;
    end("remat " + request.recipe.memory.remat);

    begin("kernels");
    if (failed(runStage("S5-kernels", *module, [](PassManager &pm) {
          buildKernelsPipeline(pm, KernelsPipelineOptions());
        })))
      return 1;
    end(llvm::formatv("{0} ops", countOps(*module)).str());

    begin("plan");
    if (failed(runStage("S6-buffers", *module, [](PassManager &pm) {
          buildPlanPipeline(pm);
        })))
      return 1;
    int64_t total = 0;
    for (auto arena : module->getOps<qplan::ArenaOp>())
      total += arena.getBytes();
    end(formatBytes(total) + " over all arenas");
    double budget = request.recipe.memory.budgetGb;
    if (budget > 0 && total > budget * 1e9) {
      printPlanReport(*module, llvm::outs());
      return fail("the plan needs " + formatBytes(total) +
                  " but memory.budget_gb allows " +
                  formatBytes(static_cast<int64_t>(budget * 1e9)) +
                  ": lower data.tokens or set memory.remat to selective or "
                  "full");
    }
    if (request.dryRun) {
      printDryRun(*source, *module);
      return 0;
    }

    begin("codegen");
    SmallVector<codegen::cpu::NamedKernel> kernels = collectKernels(*module);
    codegen::cpu::CpuTarget target;
    target.cpu = cpu;
    FailureOr<std::string> object = codegen::cpu::compileKernels(
        &context, kernels, target,
        [&] { return emitError(UnknownLoc::get(&context)); });
    if (failed(object))
      return 1;
    end(llvm::formatv("{0} kernels for {1}, {2}", kernels.size(), cpu,
                      formatBytes(object->size()))
            .str());

    begin("bundle");
    bundle::Bundle message;
    describe(*source, message);
    if (failed(codegen::emitPlan(*module, options.tokens, options.maxDocs,
                                 message)))
      return 1;
    NamedBlob blob{"cpu.so", absl::Span<const uint8_t>(
                                 reinterpret_cast<const uint8_t *>(
                                     object->data()),
                                 object->size())};
    absl::Status written = writeBundle(request.output, message, {blob});
    if (!written.ok())
      return fail(std::string(written.message()));
    uint64_t size = 0;
    (void)llvm::sys::fs::file_size(request.output, size);
    end(request.output + ", " + formatBytes(size));
    return 0;
  }

private:
  static DialectRegistry makeRegistry() {
    DialectRegistry registry;
    registry.insert<func::FuncDialect, Qwen35Dialect, qkern::QKernDialect,
                    qplan::QPlanDialect>();
    codegen::cpu::registerCpuDialects(registry);
    codegen::cpu::registerCpuKernelTarget();
    return registry;
  }

  int fail(const std::string &message) {
    if (open && !request.quiet)
      llvm::outs() << "\n";
    llvm::outs().flush();
    llvm::errs() << "qwen35c: " << message << "\n";
    return 1;
  }

  /// Sets the feature level to compile for. `native` is the best level of this
  /// machine: a level, unlike a model name, is what a runtime can check.
  bool resolveCpu() {
    cpu = request.cpu;
    if (cpu == "native") {
      auto features = llvm::sys::getHostCPUFeatures();
      bool avx512 = llvm::all_of(
          ArrayRef<StringRef>{"avx512f", "avx512bw", "avx512cd", "avx512dq",
                              "avx512vl"},
          [&](StringRef feature) { return features.lookup(feature); });
      cpu = avx512 ? "x86-64-v4" : "x86-64-v3";
    }
    return cpu == "x86-64-v3" || cpu == "x86-64-v4";
  }

  /// Why this build cannot do what the recipe asks, or nothing.
  std::string unsupported() {
    const ParallelRecipe &p = request.recipe.parallel;
    for (auto [name, value] :
         {std::make_pair("pp", p.pp), std::make_pair("dpr", p.dpr),
          std::make_pair("dps", p.dps), std::make_pair("cp", p.cp),
          std::make_pair("tp", p.tp), std::make_pair("ep", p.ep)})
      if (value != 1)
        return llvm::formatv("parallel.{0} is {1}, but this build compiles for "
                             "one rank: expected 1",
                             name, value)
            .str();
    return "";
  }

  void begin(StringRef stage) {
    started = std::chrono::steady_clock::now();
    open = true;
    if (!request.quiet)
      llvm::outs() << llvm::format("[%-8s] ", stage.str().c_str());
    llvm::outs().flush();
  }

  void end(const std::string &what) {
    std::chrono::duration<double> seconds =
        std::chrono::steady_clock::now() - started;
    open = false;
    if (!request.quiet)
      llvm::outs() << what
                   << llvm::format(" (%.2f s)\n", seconds.count());
    llvm::outs().flush();
  }

  template <typename Build>
  LogicalResult runStage(StringRef name, ModuleOp module, Build build) {
    PassManager pm(&context);
    build(pm);
    if (failed(pm.run(module)))
      return failure();
    if (request.dumpIr.empty())
      return success();
    std::error_code error = llvm::sys::fs::create_directories(request.dumpIr);
    SmallString<128> path(request.dumpIr);
    llvm::sys::path::append(path, name + ".mlir");
    if (!error) {
      llvm::raw_fd_ostream file(path, error);
      if (!error) {
        module.print(file, OpPrintingFlags().enableDebugInfo(true, true));
        return success();
      }
    }
    fail(("cannot write " + path + ": " + error.message()).str());
    return failure();
  }

  static int64_t countOps(ModuleOp module) {
    int64_t count = 0;
    module.walk([&](Operation *) { ++count; });
    return count;
  }

  SmallVector<codegen::cpu::NamedKernel> collectKernels(ModuleOp module) {
    SmallVector<codegen::cpu::NamedKernel> kernels;
    for (auto op : module.getOps<qplan::KernelOp>()) {
      codegen::cpu::NamedKernel kernel{op.getSymName().str(), {}};
      kernel.spec.op = op.getKernel().str();
      kernel.spec.attrs = op.getConfig();
      for (Type type : op.getInputs().getAsValueRange<TypeAttr>())
        kernel.spec.inputs.push_back(cast<MemRefType>(type));
      for (Type type : op.getOutputs().getAsValueRange<TypeAttr>())
        kernel.spec.outputs.push_back(cast<MemRefType>(type));
      kernels.push_back(std::move(kernel));
    }
    return kernels;
  }

  void describe(const ModelSource &source, bundle::Bundle &message) {
    bundle::Target *target = message.add_targets();
    target->set_kind("cpu");
    target->set_triple("x86_64-unknown-linux-gnu");
    target->set_cpu(cpu);
    target->set_blob(0);
    bundle::Model *model = message.mutable_model();
    model->set_name(source.name);
    model->set_config_json(source.configJson);
    model->set_vocab_size(source.config.vocabSize);
    model->set_byte_vocabulary(source.config.vocabSize == 256);
    for (LayerType type : source.config.layerTypes)
      model->add_layer_types(layerTypeName(type).str());
    model->set_flops_per_token(
        trainingFlops(source.config, request.recipe.data.tokens,
                      DeltaRuleCount::Useful));
    message.mutable_recipe()->set_toml(printRecipe(request.recipe));
    bundle::Provenance *provenance = message.mutable_provenance();
    provenance->set_compiler(kVersion.str());
    provenance->set_llvm(LLVM_VERSION_STRING);
    provenance->set_pipeline("model,autodiff,kernels,plan,codegen");
    auto digest = llvm::SHA256::hash(
        llvm::arrayRefFromStringRef(source.configJson));
    provenance->set_config_sha256(llvm::toHex(digest, /*LowerCase=*/true));
  }

  void printDryRun(const ModelSource &source, ModuleOp module) {
    llvm::raw_ostream &out = llvm::outs();
    out << "\nrecipe\n" << printRecipe(request.recipe) << "\nparameters\n";
    for (const ParameterSpec &param : parameterTable(source.config)) {
      std::string shape;
      for (int64_t size : param.shape)
        shape += (shape.empty() ? "" : "x") + std::to_string(size);
      out << llvm::format("  %-60s %-18s %14lld  %s\n", param.name.c_str(),
                          shape.c_str(), (long long)param.elements(),
                          param.decay ? "decay" : "no decay");
    }
    out << "\n";
    printPlanReport(module, out);
  }

  const CompileRequest &request;
  std::string cpu; // x86-64-v3 or x86-64-v4
  MLIRContext context;
  std::chrono::steady_clock::time_point started;
  bool open = false; // a progress line waits for its end
};

} // namespace

int compile(const CompileRequest &request) { return Driver(request).run(); }

} // namespace qwen35
