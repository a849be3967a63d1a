#include "tools/qwen35c/Driver.h"

#include "codegen/bundle/bundle_writer.h"
#include "codegen/cpu/Compile.h"
#include "codegen/cpu/Target.h"
#include "codegen/cuda/Compile.h"
#include "codegen/cuda/Target.h"
#include "codegen/cuda/WriteSources.h"
#include "codegen/emit/DescribeStage.h"
#include "codegen/emit/EmitBundle.h"
#include "codegen/emit/TunedProducts.h"
#include "dialect/QDist/IR/QDistDialect.h"
#include "dialect/QKern/IR/QKernDialect.h"
#include "dialect/QPlan/IR/QPlanDialect.h"
#include "frontend/config/ModelFiles.h"
#include "frontend/config/Parameters.h"
#include "frontend/model/TrainModel.h"
#include "passes/Pipelines/Pipelines.h"
#include "runtime/schema/mesh.h"
#include "runtime/schema/seq_table.h"
#include "tools/qwen35c/PlanReport.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/SHA256.h"
#include "llvm/TargetParser/Host.h"

#include <chrono>
#include <map>
#include <set>
#include <thread>

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
    for (const std::string &name : request.targets)
      if (name != "cpu" && !codegen::cuda::gpuTarget(name))
        return fail("--target is \"" + name + "\", expected cpu, " +
                    codegen::cuda::gpuTargetNames() +
                    ", or several with commas");
    if (std::set<std::string>(request.targets.begin(), request.targets.end())
            .size() != request.targets.size())
      return fail("--target names a target twice");
    llvm::Expected<ModelSource> parsed = parseModel(request.model);
    if (!parsed)
      return fail(llvm::toString(parsed.takeError()));
    source = std::move(*parsed);
    for (const std::string &warning : source.warnings)
      llvm::errs() << "qwen35c: warning: " << warning << "\n";
    if (std::string refusal = unsupported(); !refusal.empty())
      return fail(refusal);

    bundle::Bundle message;
    describe(message);
    for (const std::string &name : request.targets) {
      bundle::Bundle plan;
      if (int status = compileFor(name, plan))
        return status;
      if (!request.dryRun)
        addPlan(std::move(plan), message);
    }
    if (request.dryRun)
      return 0;

    begin("bundle");
    std::vector<NamedBlob> table;
    for (const auto &[name, bytes] : blobs)
      table.push_back({name, absl::Span<const uint8_t>(
                                 reinterpret_cast<const uint8_t *>(
                                     bytes.data()),
                                 bytes.size())});
    absl::Status written = writeBundle(request.output, message, table);
    if (!written.ok())
      return fail(std::string(written.message()));
    uint64_t size = 0;
    (void)llvm::sys::fs::file_size(request.output, size);
    end(request.output + ", " + formatBytes(size));
    return 0;
  }

private:
  /// The whole pipeline for one target. `plan` gets its target and everything
  /// that stage S6 determines.
  int compileFor(const std::string &name, bundle::Bundle &plan) {
    std::optional<codegen::cuda::GpuTarget> gpu =
        codegen::cuda::gpuTarget(name);
    const DataRecipe &data = request.recipe.data;
    TrainModelOptions options;
    // Up to S1 the step is that of all data ranks: their rows, one after the
    // other. What a rank gets is a row of these sizes.
    row = {data.tokens, data.maxDocs + 1}; // padding is a document of its own
    options.tokens = row.tokens * dataRanks();
    options.maxDocs = row.maxDocs * dataRanks();
    const std::string &aux = request.recipe.loss.aux;
    options.aux = aux == "pooled"      ? AuxScope::Pooled
                  : aux == "per_layer" ? AuxScope::PerLayer
                                       : AuxScope::None;
    options.auxCoefficient = request.recipe.loss.auxCoef;
    begin("model");
    OwningOpRef<ModuleOp> module =
        buildTrainModel(context, source.config, options);
    ModelPipelineOptions types;
    types.compute = request.recipe.compute.dtype;
    if (request.recipe.compute.dtype == "auto")
      types.compute = gpu ? "bf16" : "fp32";
    if (!module || failed(runStage(name, "S0-model", *module,
                                   [&](PassManager &pm) {
                                     buildModelPipeline(pm, types);
                                   })))
      return 1;
    end(llvm::formatv("{0}: {1} parameters, {2} layers, rows of {3} tokens{4}",
                      source.name, countParameters(source.config).total,
                      source.config.numLayers(), data.tokens,
                      types.compute == "bf16" ? " in bf16" : "")
            .str());

    begin("autodiff");
    if (failed(runStage(name, "S1-differentiated", *module,
                        [&](PassManager &pm) {
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

    if (meshShape().ranks() > 1 && failed(partition(name, *module)))
      return 1;

    begin("schedule");
    if (failed(runStage(name, "S4-scheduled", *module, [&](PassManager &pm) {
          SchedulePipelineOptions options;
          options.remat = request.recipe.memory.remat;
          buildSchedulePipeline(pm, options);
        })))
      return 1;
    end("remat " + request.recipe.memory.remat);

    begin("kernels");
    if (failed(runStage(name, "S5-kernels", *module, [&](PassManager &pm) {
          KernelsPipelineOptions options;
          options.target = name;
          buildKernelsPipeline(pm, options);
        })))
      return 1;
    end(llvm::formatv("{0} ops for {1}", countOps(*module), name).str());

    begin("plan");
    if (failed(runStage(name, "S6-buffers", *module,
                        [](PassManager &pm) { buildPlanPipeline(pm); })))
      return 1;
    int64_t total = 0;
    for (auto arena : module->getOps<qplan::ArenaOp>())
      total += arena.getBytes();
    end(formatBytes(total) + " over all arenas");
    double budget = request.recipe.memory.budgetGb;
    if (budget > 0 && total > budget * 1e9) {
      printPlanReport(*module, llvm::outs());
      return fail("the plan for " + name + " needs " + formatBytes(total) +
                  " but memory.budget_gb allows " +
                  formatBytes(static_cast<int64_t>(budget * 1e9)) +
                  ": lower data.tokens or set memory.remat to selective or "
                  "full");
    }
    if (request.dryRun) {
      printDryRun(name, *module);
      return 0;
    }
    return gpu ? codegenGpu(*gpu, *module, plan) : codegenCpu(*module, plan);
  }

  /// S1 to S3: the program of one rank.
  LogicalResult partition(const std::string &name, ModuleOp module) {
    begin("ranks");
    PartitionPipelineOptions options;
    options.mesh = printMeshShape(meshShape());
    options.zero = request.recipe.parallel.zero;
    if (failed(runStage(
            name, "S2-annotated", module,
            [&](PassManager &pm) { buildShardPipeline(pm, options); })) ||
        failed(runStage(name, "S3-partitioned", module, [&](PassManager &pm) {
          buildSplitPipeline(pm, options);
        })))
      return failure();
    // In stripes, a rank has a part of a row, and a table of its own.
    auto finish = module.lookupSymbol<func::FuncOp>("finish");
    for (Type type : finish.getArgumentTypes())
      if (auto seq = dyn_cast<SeqType>(type))
        row = {seq.getTokens(), seq.getMaxDocs()};
    int64_t collectives = 0;
    for (StringRef function : {"only", "finish"})
      if (auto step = module.lookupSymbol<func::FuncOp>(function)) {
        step.walk([&](Operation *op) {
          collectives +=
              isa<qdist::AllGatherOp, qdist::AllReduceOp,
                  qdist::ReduceScatterOp, qdist::AllToAllOp, qdist::ShiftOp>(
                  op);
        });
        break;
      }
    end(llvm::formatv("{0} ({1}), {2} collectives in a step of one microbatch",
                      meshShape().ranks(), printMeshShape(meshShape()),
                      collectives)
            .str());
    return success();
  }

  int codegenCpu(ModuleOp module, bundle::Bundle &plan) {
    begin("codegen");
    SmallVector<codegen::cpu::NamedKernel> kernels =
        collectKernels<codegen::cpu::NamedKernel>(module);
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
    bundle::Target *entry = plan.add_targets();
    entry->set_kind("cpu");
    entry->set_triple("x86_64-unknown-linux-gnu");
    entry->set_cpu(cpu);
    entry->set_blob(blobs.size());
    blobs.emplace_back("cpu.so", std::move(*object));
    auto describeKernel = [](qplan::KernelOp op, unsigned stage,
                             bundle::Kernel &out) {
      out.set_symbol(codegen::cpu::stageSymbol(op.getSymName(), stage));
    };
    return failed(codegen::emitPlan(module, row.tokens, row.maxDocs,
                                    describeKernel, plan));
  }

  int codegenGpu(const codegen::cuda::GpuTarget &target, ModuleOp module,
                 bundle::Bundle &plan) {
    begin("codegen");
    SmallVector<codegen::cuda::NamedKernel> kernels =
        collectKernels<codegen::cuda::NamedKernel>(module);
    auto stages = codegen::cuda::planStages(kernels, target, [&] {
      return emitError(UnknownLoc::get(&context));
    });
    if (failed(stages))
      return 1;
    if (!request.emitCuda.empty())
      if (std::string problem = codegen::cuda::writeSources(
              request.emitCuda, target, *stages, module);
          !problem.empty())
        return fail(problem);
    codegen::cuda::CompileOptions compile;
    compile.threads = request.threads > 0
                          ? request.threads
                          : std::max(1u, std::thread::hardware_concurrency());
    if (request.useKernelCache)
      compile.cacheFolder = request.kernelCache.empty()
                                ? codegen::cuda::defaultCacheFolder()
                                : request.kernelCache;
    bool terminal = llvm::outs().is_displayed() && !request.quiet;
    auto progress = [&](size_t done, size_t total) {
      if (!terminal)
        return;
      llvm::outs() << "\r[codegen ] " << done << " of " << total
                   << " GPU kernels ";
      llvm::outs().flush();
    };
    compile.progress = progress;
    llvm::Expected<codegen::cuda::CompileStatistics> compiled =
        codegen::cuda::compileStages(*stages, target, compile);
    if (!compiled)
      return fail(llvm::toString(compiled.takeError()));
    if (terminal)
      llvm::outs() << "\r[codegen ] ";

    bundle::Target *entry = plan.add_targets();
    entry->set_kind("cuda");
    entry->set_arch(target.name);
    // Equal images are one blob: the same template often serves two shapes.
    std::map<std::string, uint32_t> images;
    std::map<std::string, const codegen::cuda::CompiledStage *> bySymbol;
    uint64_t bytes = 0;
    for (const codegen::cuda::CompiledStage &stage : *stages) {
      bySymbol[stage.symbol] = &stage;
      if (stage.image.empty() || images.count(stage.image))
        continue;
      images[stage.image] = blobs.size();
      blobs.emplace_back(stage.symbol + ".cubin", stage.image);
      bytes += stage.image.size();
    }
    end(llvm::formatv("{0} kernels for {1}, {2}; {3} compiled, {4} from the "
                      "cache",
                      images.size(), target.name, formatBytes(bytes),
                      compiled->compiled, compiled->fromCache)
            .str());
    auto describeKernel = [&](qplan::KernelOp op, unsigned stage,
                              bundle::Kernel &out) {
      const codegen::cuda::CompiledStage &compiled =
          *bySymbol.at(codegen::cpu::stageSymbol(op.getSymName(), stage));
      codegen::describeStage(compiled, out);
      if (out.has_gemm() && request.tunedProducts)
        codegen::tunedProducts().apply(target.name, *out.mutable_gemm());
      if (!compiled.image.empty())
        out.set_blob(images.at(compiled.image));
    };
    return failed(codegen::emitPlan(module, row.tokens, row.maxDocs,
                                    describeKernel, plan));
  }

  /// The first plan is the bundle's own, later ones are alternatives.
  static void addPlan(bundle::Bundle plan, bundle::Bundle &message) {
    if (message.targets_size() == 0) {
      uint64_t peak = plan.provenance().planned_peak();
      message.mutable_targets()->Swap(plan.mutable_targets());
      message.mutable_kernels()->Swap(plan.mutable_kernels());
      message.mutable_arenas()->Swap(plan.mutable_arenas());
      message.mutable_buffers()->Swap(plan.mutable_buffers());
      message.mutable_params()->Swap(plan.mutable_params());
      message.mutable_io()->Swap(plan.mutable_io());
      message.mutable_programs()->Swap(plan.mutable_programs());
      message.mutable_communicators()->Swap(plan.mutable_communicators());
      message.mutable_rank_vars()->Swap(plan.mutable_rank_vars());
      if (plan.has_mesh()) {
        message.mutable_mesh()->Swap(plan.mutable_mesh());
        message.mutable_header()->mutable_features()->Swap(
            plan.mutable_header()->mutable_features());
      }
      message.mutable_provenance()->set_planned_peak(peak);
      message.mutable_model()->set_parameters(plan.model().parameters());
      return;
    }
    bundle::Plan *other = message.add_alternatives();
    other->mutable_target()->Swap(plan.mutable_targets(0));
    other->mutable_kernels()->Swap(plan.mutable_kernels());
    other->mutable_arenas()->Swap(plan.mutable_arenas());
    other->mutable_buffers()->Swap(plan.mutable_buffers());
    other->mutable_params()->Swap(plan.mutable_params());
    other->mutable_io()->Swap(plan.mutable_io());
    other->mutable_programs()->Swap(plan.mutable_programs());
    other->mutable_communicators()->Swap(plan.mutable_communicators());
    other->mutable_rank_vars()->Swap(plan.mutable_rank_vars());
    other->set_planned_peak(plan.provenance().planned_peak());
  }

  static DialectRegistry makeRegistry() {
    DialectRegistry registry;
    registry.insert<func::FuncDialect, Qwen35Dialect, qkern::QKernDialect,
                    qplan::QPlanDialect, qdist::QDistDialect>();
    codegen::cpu::registerCpuDialects(registry);
    codegen::cpu::registerCpuKernelTarget();
    codegen::cuda::registerGpuKernelTargets();
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
    MeshShape shape = meshShape();
    if (shape.pp != 1)
      return llvm::formatv("parallel.pp is {0}, but pipeline stages are not "
                           "built: expected 1",
                           shape.pp)
          .str();
    if (std::string why = explainMesh(shape, meshLimits()); !why.empty())
      return "the model cannot be split so: " + why;
    if (request.recipe.compute.dtype == "bf16" &&
        llvm::is_contained(request.targets, "cpu"))
      return "compute.dtype is bf16, but the cpu target computes in fp32: "
             "expected auto or fp32";
    return "";
  }

  MeshShape meshShape() const {
    const ParallelRecipe &p = request.recipe.parallel;
    return {p.pp, p.dpr, p.dps, p.cp, p.tp, p.ep};
  }

  int64_t dataRanks() const { return meshShape().dpr * meshShape().dps; }

  /// What the mesh has to divide, before there is a module to ask.
  MeshLimits meshLimits() const {
    const ModelConfig &c = source.config;
    MeshLimits limits;
    if (c.numLayers(LayerType::FullAttention)) {
      limits.queryHeads = c.numAttentionHeads;
      limits.kvHeads = c.numKeyValueHeads;
    }
    if (c.numLayers(LayerType::LinearAttention)) {
      limits.keyHeads = c.linearNumKeyHeads;
      limits.valueHeads = c.linearNumValueHeads;
    }
    limits.ffn = c.moe ? c.sharedExpertIntermediateSize : c.intermediateSize;
    limits.experts = c.numExperts;
    limits.vocab = c.vocabSize;
    limits.rowTokens = request.recipe.data.tokens;
    return limits;
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
  LogicalResult runStage(StringRef target, StringRef name, ModuleOp module,
                         Build build) {
    PassManager pm(&context);
    build(pm);
    if (failed(pm.run(module)))
      return failure();
    if (request.dumpIr.empty())
      return success();
    SmallString<128> path(request.dumpIr);
    if (request.targets.size() > 1)
      llvm::sys::path::append(path, target);
    std::error_code error = llvm::sys::fs::create_directories(path);
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

  template <typename NamedKernel>
  static SmallVector<NamedKernel> collectKernels(ModuleOp module) {
    SmallVector<NamedKernel> kernels;
    for (auto op : module.getOps<qplan::KernelOp>()) {
      NamedKernel kernel{op.getSymName().str(), {}};
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

  void describe(bundle::Bundle &message) {
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
    provenance->set_pipeline(meshShape().ranks() > 1
                                 ? "model,autodiff,partition,kernels,plan,"
                                   "codegen"
                                 : "model,autodiff,kernels,plan,codegen");
    auto digest = llvm::SHA256::hash(
        llvm::arrayRefFromStringRef(source.configJson));
    provenance->set_config_sha256(llvm::toHex(digest, /*LowerCase=*/true));
  }

  void printDryRun(const std::string &target, ModuleOp module) {
    llvm::raw_ostream &out = llvm::outs();
    if (target != request.targets.front()) {
      out << "\n" << target << ": ";
      printPlanReport(module, out);
      return;
    }
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
  ModelSource source;
  SeqTable row{0, 0}; // of one rank and microbatch
  std::vector<std::pair<std::string, std::string>> blobs; // name and bytes
  MLIRContext context;
  std::chrono::steady_clock::time_point started;
  bool open = false; // a progress line waits for its end
};

} // namespace

int compile(const CompileRequest &request) { return Driver(request).run(); }

} // namespace qwen35
