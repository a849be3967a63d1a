#include "test/unit/ranks/RankBundle.h"

#include "codegen/bundle/bundle_writer.h"
#include "codegen/cpu/Compile.h"
#include "codegen/cpu/Target.h"
#include "codegen/cuda/Compile.h"
#include "codegen/cuda/Target.h"
#include "codegen/emit/DescribeStage.h"
#include "codegen/emit/EmitBundle.h"
#include "codegen/emulated/HostCompiler.h"
#include "dialect/QDist/IR/QDistDialect.h"
#include "dialect/QKern/IR/QKernDialect.h"
#include "dialect/QPlan/IR/QPlanDialect.h"
#include "passes/Pipelines/Pipelines.h"

#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"

#include <gtest/gtest.h>

#include <map>

using namespace mlir;

namespace qwen35::test {

static DialectRegistry dialects() {
  DialectRegistry registry;
  registry.insert<func::FuncDialect, Qwen35Dialect, qkern::QKernDialect,
                  qplan::QPlanDialect, qdist::QDistDialect>();
  codegen::cpu::registerCpuDialects(registry);
  codegen::cpu::registerCpuKernelTarget();
  codegen::cuda::registerGpuKernelTargets();
  return registry;
}

RankBundle::RankBundle() : context(dialects()) {
  context.loadAllAvailableDialects();
}

OwningOpRef<ModuleOp> RankBundle::parse(const std::string &text) {
  auto module = parseSourceString<ModuleOp>(text, &context);
  EXPECT_TRUE(module);
  return module;
}

template <typename NamedKernel>
static SmallVector<NamedKernel> kernelsOf(ModuleOp module) {
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

using Blobs = std::vector<std::pair<std::string, std::string>>;

Blobs RankBundle::emitCpu(ModuleOp module, int64_t tokens, int64_t maxDocs,
                          bundle::Bundle &message) {
  FailureOr<std::string> object = codegen::cpu::compileKernels(
      &context, kernelsOf<codegen::cpu::NamedKernel>(module), {},
      [&] { return emitError(UnknownLoc::get(&context)); });
  auto describe = [](qplan::KernelOp op, unsigned stage, bundle::Kernel &out) {
    out.set_symbol(codegen::cpu::stageSymbol(op.getSymName(), stage));
  };
  if (failed(object) ||
      failed(codegen::emitPlan(module, tokens, maxDocs, describe, message)))
    return {};
  bundle::Target *entry = message.add_targets();
  entry->set_kind("cpu");
  entry->set_triple("x86_64-unknown-linux-gnu");
  entry->set_cpu("x86-64-v3");
  return {{"cpu.so", *object}};
}

Blobs RankBundle::emitGpu(ModuleOp module, int64_t tokens, int64_t maxDocs,
                          bundle::Bundle &message) {
  auto kernels = kernelsOf<codegen::cuda::NamedKernel>(module);
  codegen::cuda::GpuTarget gpu = *codegen::cuda::gpuTarget(target);
  auto error = [&] { return emitError(UnknownLoc::get(&context)); };
  auto stages = codegen::cuda::planStages(kernels, gpu, error);
  if (failed(stages))
    return {};
  std::map<std::string, const codegen::cuda::CompiledStage *> bySymbol;
  for (const codegen::cuda::CompiledStage &stage : *stages)
    bySymbol[stage.symbol] = &stage;
  Blobs blobs;
  std::map<std::string, uint32_t> images; // by symbol
  if (StringRef(target).starts_with("emulated")) {
    for (const codegen::cuda::NamedKernel &kernel : kernels) {
      auto plan = codegen::cuda::lookupKernel(kernel.spec.op)
                      ->plan(kernel.spec, gpu, error);
      if (failed(plan))
        return {};
      for (unsigned stage = 0; stage < plan->stages.size(); ++stage) {
        std::string symbol = codegen::cpu::stageSymbol(kernel.symbol, stage);
        auto image = codegen::compileForHost(
            codegen::cuda::printEmulated(symbol, kernel.spec, *plan, stage),
            symbol);
        if (!image) {
          ADD_FAILURE() << llvm::toString(image.takeError());
          return {};
        }
        images[symbol] = blobs.size();
        blobs.emplace_back(symbol, std::move(*image));
      }
    }
  } else {
    auto compiled = codegen::cuda::compileStages(*stages, gpu, {});
    if (!compiled) {
      ADD_FAILURE() << llvm::toString(compiled.takeError());
      return {};
    }
    for (codegen::cuda::CompiledStage &stage : *stages) {
      images[stage.symbol] = blobs.size();
      blobs.emplace_back(stage.symbol, std::move(stage.image));
    }
  }
  auto describe = [&](qplan::KernelOp op, unsigned stage, bundle::Kernel &out) {
    std::string symbol = codegen::cpu::stageSymbol(op.getSymName(), stage);
    codegen::describeStage(*bySymbol.at(symbol), out);
    out.set_blob(images.at(symbol));
  };
  if (failed(codegen::emitPlan(module, tokens, maxDocs, describe, message)))
    return {};
  bundle::Target *entry = message.add_targets();
  entry->set_kind("cuda");
  entry->set_arch(target);
  return blobs;
}

std::string
RankBundle::compile(OwningOpRef<ModuleOp> module, int64_t tokens,
                    int64_t maxDocs,
                    const std::function<void(bundle::Bundle &)> &change) {
  PassManager pm(&context);
  KernelsPipelineOptions options;
  options.target = target;
  buildKernelsPipeline(pm, options);
  buildPlanPipeline(pm);
  if (failed(pm.run(*module))) {
    ADD_FAILURE() << "the module does not become a plan";
    return "";
  }
  bundle::Bundle message;
  Blobs blobs = target == "cpu" ? emitCpu(*module, tokens, maxDocs, message)
                                : emitGpu(*module, tokens, maxDocs, message);
  if (blobs.empty()) {
    ADD_FAILURE() << "the plan does not become a bundle";
    return "";
  }
  message.mutable_model()->set_name("ranks");
  message.mutable_model()->set_vocab_size(256);
  if (change)
    change(message);
  std::vector<NamedBlob> table;
  for (const auto &[name, image] : blobs)
    table.push_back({name, absl::Span<const uint8_t>(
                               reinterpret_cast<const uint8_t *>(image.data()),
                               image.size())});
  absl::StatusOr<std::string> bytes = serializeBundle(message, table);
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  return bytes.ok() ? *bytes : "";
}

std::shared_ptr<const BundleFile> open(const std::string &bytes) {
  auto file = BundleFile::parse(absl::Span<const uint8_t>(
      reinterpret_cast<const uint8_t *>(bytes.data()), bytes.size()));
  EXPECT_TRUE(file.ok()) << file.status();
  return file.ok() ? *file : nullptr;
}

} // namespace qwen35::test
