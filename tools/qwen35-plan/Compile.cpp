#include "tools/qwen35-plan/LocalStep.h"

#include "codegen/cuda/Cost.h"
#include "codegen/cuda/Target.h"
#include "dialect/QDist/IR/QDistDialect.h"
#include "dialect/QKern/IR/KernelTarget.h"
#include "dialect/QKern/IR/QKernDialect.h"
#include "dialect/QPlan/IR/QPlanDialect.h"
#include "dialect/Qwen35/IR/Qwen35Dialect.h"
#include "frontend/model/TrainModel.h"
#include "passes/Pipelines/Pipelines.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

#include <chrono>
#include <cmath>
#include <mutex>
#include <set>

using namespace mlir;

namespace qwen35::plan {
namespace {

using codegen::KernelSpec;
using codegen::cuda::GpuTarget;
using codegen::cuda::KernelPlan;

constexpr llvm::StringLiteral kPrefix = "plan:";

/// A GPU target that has every kernel: what its own code generator refuses gets
/// one task and no workspace. Only plans are made for it, never code.
class AnyKernelTarget : public qkern::KernelTarget {
public:
  explicit AnyKernelTarget(const qkern::KernelTarget &real)
      : real(real), fullName((kPrefix + real.name()).str()) {}

  StringRef name() const override { return fullName; }
  FailureOr<qkern::LaunchShape> launchShape(
      const qkern::KernelSignature &signature,
      llvm::function_ref<InFlightDiagnostic()> emitError) const override {
    ScopedDiagnosticHandler quiet(signature.config.getContext(),
                                  [](Diagnostic &) { return success(); });
    FailureOr<qkern::LaunchShape> shape =
        real.launchShape(signature, emitError);
    if (succeeded(shape))
      return shape;
    qkern::LaunchShape fallback;
    fallback.grids = {1};
    return fallback;
  }
  int64_t maxListArguments() const override { return real.maxListArguments(); }
  bool writesViews(StringRef kernel, unsigned result) const override {
    return real.writesViews(kernel, result);
  }
  ArrayRef<unsigned> squares(StringRef kernel) const override {
    return real.squares(kernel);
  }

private:
  const qkern::KernelTarget &real;
  std::string fullName;
};

void registerTargets() {
  static std::once_flag once;
  std::call_once(once, [] {
    codegen::cuda::registerGpuKernelTargets();
    for (StringRef name : {"sm_80", "sm_90a", "sm_100a", "sm_120"})
      qkern::registerKernelTarget(
          std::make_unique<AnyKernelTarget>(*qkern::lookupKernelTarget(name)));
  });
}

double bytesOf(MemRefType type) {
  return double(codegen::elementCount(type)) *
         codegen::cuda::bytesOf(type.getElementType());
}

/// What every stage of a kernel costs.
struct KernelCosts {
  struct Stage {
    std::string function;
    double flops = 0, bytes = 0;
    bool fp32 = false;
  };
  std::vector<Stage> stages;
  bool missing = false;
};

class StepReader {
public:
  StepReader(ModuleOp module, const GpuTarget &target, int64_t experts,
             LocalStep &step)
      : module(module), target(target), experts(experts), step(step) {}

  void run() {
    for (auto kernel : module.getOps<qplan::KernelOp>())
      costs[kernel.getSymName()] = costsOf(kernel);
    for (auto buffer : module.getOps<qplan::BufferOp>())
      buffers[buffer.getSymName()] = buffer;
    for (auto program : module.getOps<qplan::ProgramOp>())
      readProgram(program);
    readState();
    std::set<std::string> ops;
    for (auto kernel : module.getOps<qplan::KernelOp>())
      if (costs[kernel.getSymName()].missing)
        ops.insert(kernel.getKernel().str());
    step.missingKernels.assign(ops.begin(), ops.end());
  }

private:
  KernelCosts costsOf(qplan::KernelOp op) {
    KernelSpec spec;
    spec.op = op.getKernel().str();
    spec.attrs = op.getConfig();
    for (Type type : op.getInputs().getAsValueRange<TypeAttr>())
      spec.inputs.push_back(cast<MemRefType>(type));
    for (Type type : op.getOutputs().getAsValueRange<TypeAttr>())
      spec.outputs.push_back(cast<MemRefType>(type));
    KernelCosts result;
    const codegen::cuda::KernelFamily *family =
        codegen::cuda::lookupKernel(spec.op);
    FailureOr<KernelPlan> plan = failure();
    if (family) {
      ScopedDiagnosticHandler quiet(module.getContext(),
                                    [](Diagnostic &) { return success(); });
      plan = family->plan(spec, target, [&] { return module.emitError(); });
    }
    if (failed(plan)) {
      result.missing = true;
      result.stages.push_back(guess(spec));
      return result;
    }
    for (unsigned s = 0; s < plan->stages.size(); ++s) {
      codegen::cuda::StageCost cost = codegen::cuda::costOf(spec, *plan, s);
      KernelCosts::Stage stage{"", cost.flops, cost.bytes, false};
      if (const auto *device =
              std::get_if<codegen::cuda::DeviceStage>(&plan->stages[s])) {
        StringRef name = device->function;
        name.consume_back("_hopper");
        stage.function = name.str();
        stage.fp32 =
            !spec.inputs.empty() && spec.inputs[0].getElementType().isF32();
      } else {
        stage.fp32 =
            std::get<codegen::cuda::GemmStage>(plan->stages[s]).typeA.isF32();
      }
      expectRows(spec, stage);
      result.stages.push_back(std::move(stage));
    }
    return result;
  }

  /// Routed experts of an ep rank are counted as if every token had chosen
  /// them, which is the worst case. Tokens choose evenly here.
  void expectRows(const KernelSpec &spec, KernelCosts::Stage &stage) const {
    if (!StringRef(spec.op).starts_with("moe_experts") || experts == 0)
      return;
    unsigned x = StringRef(spec.op).starts_with("moe_experts_bwd") ? 1 : 0;
    if (spec.inputs.size() <= x + 4)
      return;
    double share = double(spec.inputs[x + 3].getDimSize(0)) / double(experts);
    if (share >= 1)
      return;
    double weights = 0;
    if (stage.function == "moe_up" || stage.function == "moe_up_bwd")
      weights = bytesOf(spec.inputs[x + 3]);
    else if (stage.function == "moe_down" || stage.function == "moe_down_bwd")
      weights = bytesOf(spec.inputs[x + 4]);
    else if (stage.function == "moe_gate_up_gradient" &&
             spec.outputs.size() > 3)
      weights = bytesOf(spec.outputs[2]) * (spec.flag("accumulate") ? 2 : 1);
    else if (stage.function == "moe_down_gradient" && spec.outputs.size() > 3)
      weights = bytesOf(spec.outputs[3]) * (spec.flag("accumulate") ? 2 : 1);
    weights = std::min(weights, stage.bytes);
    stage.flops *= share;
    stage.bytes = weights + (stage.bytes - weights) * share;
  }

  /// A kernel that the target does not have yet: every operand once, and the
  /// products of what it is named after.
  KernelCosts::Stage guess(const KernelSpec &spec) const {
    KernelCosts::Stage stage;
    for (MemRefType type : spec.inputs)
      stage.bytes += bytesOf(type);
    for (MemRefType type : spec.outputs)
      stage.bytes += bytesOf(type);
    StringRef op = spec.op;
    auto rank = [](MemRefType type, int64_t dims) {
      return type.getRank() == dims;
    };
    if (op.starts_with("attention")) {
      bool backward = op.contains("bwd");
      unsigned first = backward ? 1 : 0;
      if (spec.inputs.size() > first + 1 && rank(spec.inputs[first], 3) &&
          rank(spec.inputs[first + 1], 3)) {
        MemRefType q = spec.inputs[first], k = spec.inputs[first + 1];
        // A causal half, of all keys: both stripes of a rank together.
        double product = double(q.getDimSize(0)) * q.getDimSize(1) *
                         q.getDimSize(2) * k.getDimSize(0);
        stage.flops = product * (backward ? 7 : 2);
      }
    } else if (op.starts_with("gdn_") && !op.starts_with("gdn_gates")) {
      for (MemRefType type : spec.inputs)
        if (rank(type, 3)) { // [T, H, d]: about three products of d x d each
          stage.flops = 6.0 * type.getDimSize(0) * type.getDimSize(1) *
                        type.getDimSize(2) * type.getDimSize(2);
          break;
        }
    } else if (op.starts_with("lm_loss") && spec.inputs.size() > 1) {
      double products = op.contains("grad") ? 3 : 1;
      stage.flops = 2 * products * codegen::elementCount(spec.inputs[1]) *
                    double(spec.inputs[0].getDimSize(0));
    } else if (op.starts_with("moe_experts")) {
      unsigned x = op.starts_with("moe_experts_bwd") ? 1 : 0;
      if (spec.inputs.size() > x + 4) {
        double rows = double(codegen::elementCount(spec.inputs[x + 2])) *
                      spec.inputs[x + 3].getDimSize(0) /
                      std::max<double>(1, double(experts));
        double one = double(codegen::elementCount(spec.inputs[x + 3]) +
                            codegen::elementCount(spec.inputs[x + 4])) /
                     spec.inputs[x + 3].getDimSize(0);
        stage.flops = 2 * rows * one * (x ? 8.0 / 3 : 1);
      }
    } else if ((op.starts_with("linear") || op.starts_with("matmul")) &&
               spec.inputs.size() > 1 && !spec.outputs.empty()) {
      double inner =
          codegen::elementCount(spec.inputs[0]) *
          double(codegen::elementCount(spec.inputs[1])) /
          std::max<double>(1, codegen::elementCount(spec.outputs[0]));
      stage.flops =
          2 * double(codegen::elementCount(spec.outputs[0])) * std::sqrt(inner);
    }
    return stage;
  }

  static int layerOf(StringRef tag) {
    size_t at = tag.find("layers.");
    int layer = -1;
    if (at == StringRef::npos || tag.substr(at + 7).consumeInteger(10, layer))
      return -1;
    return layer;
  }

  struct Use {
    int first = -1, last = -1;
    std::string what;
  };

  void readProgram(qplan::ProgramOp program) {
    std::vector<PlannedOp> &entries = step.programs[program.getSymName().str()];
    llvm::StringMap<int> writer;
    llvm::StringMap<std::vector<int>> readers;
    std::map<std::string, Use> uses; // of act
    std::map<int64_t, int> started;  // collectives by sequence
    for (Operation &op : program.getBody().front()) {
      int index = static_cast<int>(entries.size());
      PlannedOp entry;
      SmallVector<std::pair<StringRef, bool>> touched; // and whether written
      StringRef stageBuffer;
      if (auto launch = dyn_cast<qplan::LaunchOp>(op)) {
        const KernelCosts &cost = costs[launch.getKernel()];
        auto kernel = module.lookupSymbol<qplan::KernelOp>(launch.getKernel());
        unsigned s =
            std::min<size_t>(launch.getStage(), cost.stages.size() - 1);
        entry.op = kernel.getKernel().str();
        entry.function = cost.stages[s].function;
        entry.flops = cost.stages[s].flops;
        entry.bytes = cost.stages[s].bytes;
        entry.fp32 = cost.stages[s].fp32;
        entry.tag = launch.getTag().str();
        for (auto [buffer, write] : llvm::zip_equal(
                 launch.getBuffers().getAsRange<FlatSymbolRefAttr>(),
                 launch.getWrites()))
          touched.push_back({buffer.getValue(), write});
      } else if (auto exchange = dyn_cast<qplan::CollectiveOp>(op)) {
        entry.kind = PlannedOp::Kind::Collective;
        entry.op = exchange.getKind().str();
        entry.tag = exchange.getTag().str();
        for (auto axis : exchange.getAxes().getAsValueRange<StringAttr>())
          entry.axes.push_back(axis.str());
        entry.ranks = exchange.getRanks();
        entry.sequence = exchange.getSequence();
        bool pieces = entry.op == "all_gather" ||
                      entry.op == "reduce_scatter" || entry.op == "all_to_all";
        entry.fullBytes =
            double(exchange.pieceBytes()) * (pieces ? entry.ranks : 1);
        unsigned end = 0;
        for (auto buffer :
             exchange.getBuffers().getAsRange<FlatSymbolRefAttr>())
          touched.push_back({buffer.getValue(), end++ % 2 == 1});
        if (auto staging = exchange.getStage()) {
          stageBuffer = *staging;
          touched.push_back({stageBuffer, true});
        }
        started[entry.sequence] = index;
      } else if (auto wait = dyn_cast<qplan::WaitOp>(op)) {
        entry.kind = PlannedOp::Kind::Wait;
        entry.op = "wait";
        if (auto found = started.find(wait.getSequence());
            found != started.end())
          entry.after.push_back(found->second);
        entries.push_back(std::move(entry));
        continue;
      } else if (auto fill = dyn_cast<qplan::MemsetOp>(op)) {
        entry.kind = PlannedOp::Kind::Fill;
        entry.op = "memset";
        auto buffer = buffers.lookup(fill.getBuffer());
        entry.bytes = buffer ? double(buffer.bytes()) : 0;
        touched.push_back({fill.getBuffer(), true});
      } else {
        continue;
      }
      entry.layer = layerOf(entry.tag);
      std::set<int> after;
      for (auto [name, write] : touched) {
        if (auto found = writer.find(name); found != writer.end())
          after.insert(found->second);
        if (write)
          after.insert(readers[name].begin(), readers[name].end());
      }
      for (auto [name, write] : touched) {
        if (write) {
          writer[name] = index;
          readers[name].clear();
        } else {
          readers[name].push_back(index);
        }
        qplan::BufferOp buffer = buffers.lookup(name);
        if (!buffer || buffer.getArena() != "act")
          continue;
        Use &use = uses[name.str()];
        if (use.first < 0) {
          use.first = index;
          use.what = describe(entry, buffer, name == stageBuffer, write);
        }
        use.last = index;
      }
      after.erase(index);
      entry.after.assign(after.begin(), after.end());
      entries.push_back(std::move(entry));
    }

    std::vector<double> change(entries.size() + 1, 0);
    for (const auto &[name, use] : uses) {
      double bytes = double(buffers.lookup(name).bytes());
      change[use.first] += bytes;
      change[use.last + 1] -= bytes;
    }
    double live = 0, peak = 0;
    int peakAt = -1;
    for (size_t i = 0; i < entries.size(); ++i) {
      entries[i].liveBytes = live += change[i];
      if (live > peak) {
        peak = live;
        peakAt = static_cast<int>(i);
      }
    }
    if (peak <= actPeak)
      return;
    actPeak = peak;
    act.clear();
    for (const auto &[name, use] : uses)
      if (use.first <= peakAt && peakAt <= use.last)
        act[use.what] += double(buffers.lookup(name).bytes());
  }

  static std::string describe(const PlannedOp &entry, qplan::BufferOp buffer,
                              bool stage, bool write) {
    if (stage)
      return "staging of collectives";
    if (entry.kind == PlannedOp::Kind::Collective && write)
      return "received from ranks";
    if (StringRef(entry.op).starts_with("moe_experts"))
      return buffer.getCategory() == "workspace" ? "routed rows, worst case"
                                                 : "activations";
    return buffer.getCategory().str();
  }

  void readState() {
    std::map<std::string, double> state;
    double arenas = 0;
    for (auto arena : module.getOps<qplan::ArenaOp>())
      arenas += double(arena.getBytes());
    for (const auto &entry : buffers) {
      StringRef name = entry.getKey();
      qplan::BufferOp buffer = entry.getValue();
      if (buffer.getArena() == "act")
        continue;
      StringRef role = name;
      size_t colon = role.find(':');
      role = colon == StringRef::npos ? StringRef() : role.take_front(colon);
      double bytes = double(buffer.bytes());
      if (role == "weight")
        state["weights, f32"] += bytes;
      else if (role == "work")
        state["weights, bf16"] += bytes;
      else if (role == "m" || role == "v")
        state["moments"] += bytes;
      else if (role == "grad")
        state["gradients"] += bytes;
      else
        state["inputs and outputs"] += bytes;
    }
    for (const char *name : {"weights, f32", "weights, bf16", "moments",
                             "gradients", "inputs and outputs"})
      if (state.count(name)) {
        step.memory.emplace_back(name, state[name]);
        step.totalBytes += state[name];
      }
    step.stateBytes = step.totalBytes;
    for (const auto &[name, bytes] : act) {
      step.memory.emplace_back(name, bytes);
      step.totalBytes += bytes;
    }
    // Alignment, and what the placement of buffers loses.
    double rest = arenas - step.totalBytes;
    step.memory.emplace_back("alignment and gaps", rest);
    step.totalBytes = arenas;
  }

  ModuleOp module;
  const GpuTarget &target;
  int64_t experts;
  LocalStep &step;
  llvm::StringMap<KernelCosts> costs;
  llvm::StringMap<qplan::BufferOp> buffers;
  double actPeak = 0;
  std::map<std::string, double> act; // at the peak
};

DialectRegistry makeRegistry() {
  DialectRegistry registry;
  registry.insert<func::FuncDialect, Qwen35Dialect, qkern::QKernDialect,
                  qplan::QPlanDialect, qdist::QDistDialect>();
  return registry;
}

} // namespace

std::unique_ptr<LocalStep> compileStep(const ModelConfig &config,
                                       const CompileOptions &options,
                                       std::string &error) {
  auto started = std::chrono::steady_clock::now();
  registerTargets();
  std::optional<GpuTarget> gpu = codegen::cuda::gpuTarget(options.target);
  if (!gpu) {
    error = "target is \"" + options.target + "\", expected " +
            codegen::cuda::gpuTargetNames();
    return nullptr;
  }
  MLIRContext context(makeRegistry(), MLIRContext::Threading::DISABLED);
  context.loadAllAvailableDialects();
  ScopedDiagnosticHandler first(&context, [&](Diagnostic &diagnostic) {
    if (diagnostic.getSeverity() == DiagnosticSeverity::Error && error.empty())
      error = diagnostic.str();
    return success();
  });
  const Recipe &recipe = options.recipe;
  int64_t data = options.mesh.dpr * options.mesh.dps;
  auto step = std::make_unique<LocalStep>();
  step->mesh = options.mesh;
  step->zero = options.zero;
  step->rowTokens = recipe.data.tokens;
  step->maxDocs = recipe.data.maxDocs + 1;
  TrainModelOptions model;
  model.tokens = step->rowTokens * data;
  model.maxDocs = step->maxDocs * data;
  model.aux = recipe.loss.aux == "pooled"      ? AuxScope::Pooled
              : recipe.loss.aux == "per_layer" ? AuxScope::PerLayer
                                               : AuxScope::None;
  model.auxCoefficient = recipe.loss.auxCoef;
  OwningOpRef<ModuleOp> module = buildTrainModel(context, config, model);
  auto refuse = [&]() -> std::unique_ptr<LocalStep> {
    if (error.empty())
      error = "the compiler refuses the step and does not say why";
    return nullptr;
  };
  if (!module)
    return refuse();

  PassManager pm(&context);
  ModelPipelineOptions types;
  types.compute =
      recipe.compute.dtype == "auto" ? "bf16" : recipe.compute.dtype;
  buildModelPipeline(pm, types);
  AutodiffPipelineOptions autodiff;
  autodiff.beta1 = recipe.optim.betas[0];
  autodiff.beta2 = recipe.optim.betas[1];
  autodiff.eps = recipe.optim.eps;
  autodiff.weightDecay = recipe.optim.weightDecay;
  autodiff.gradClip = recipe.optim.gradClip;
  buildAutodiffPipeline(pm, autodiff);
  if (options.mesh.ranks() > 1) {
    PartitionPipelineOptions partition;
    partition.mesh = printMeshShape(options.mesh);
    partition.zero = options.zero;
    partition.regather = options.regather;
    buildPartitionPipeline(pm, partition);
  }
  SchedulePipelineOptions schedule;
  schedule.remat = recipe.memory.remat;
  schedule.overlap = options.overlap && options.mesh.ranks() > 1;
  buildSchedulePipeline(pm, schedule);
  KernelsPipelineOptions kernels;
  kernels.target = (kPrefix + options.target).str();
  buildKernelsPipeline(pm, kernels);
  buildPlanPipeline(pm);
  if (failed(pm.run(*module)))
    return refuse();
  error.clear();
  StepReader(*module, *gpu, config.numExperts, *step).run();
  step->compileSeconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - started)
          .count();
  return step;
}

} // namespace qwen35::plan
