#include "test/unit/ranks/RankBundle.h"

#include "codegen/bundle/bundle_writer.h"
#include "codegen/cpu/Compile.h"
#include "codegen/cpu/Target.h"
#include "codegen/emit/EmitBundle.h"
#include "dialect/QDist/IR/QDistDialect.h"
#include "dialect/QKern/IR/QKernDialect.h"
#include "dialect/QPlan/IR/QPlanDialect.h"
#include "passes/Pipelines/Pipelines.h"

#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"

#include <gtest/gtest.h>

using namespace mlir;

namespace qwen35::test {

static DialectRegistry dialects() {
  DialectRegistry registry;
  registry.insert<func::FuncDialect, Qwen35Dialect, qkern::QKernDialect,
                  qplan::QPlanDialect, qdist::QDistDialect>();
  codegen::cpu::registerCpuDialects(registry);
  codegen::cpu::registerCpuKernelTarget();
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

std::string
RankBundle::compile(OwningOpRef<ModuleOp> module, int64_t tokens,
                    int64_t maxDocs,
                    const std::function<void(bundle::Bundle &)> &change) {
  PassManager pm(&context);
  buildKernelsPipeline(pm, {});
  buildPlanPipeline(pm);
  if (failed(pm.run(*module))) {
    ADD_FAILURE() << "the module does not become a plan";
    return "";
  }
  SmallVector<codegen::cpu::NamedKernel> kernels;
  for (auto op : module->getOps<qplan::KernelOp>()) {
    codegen::cpu::NamedKernel kernel{op.getSymName().str(), {}};
    kernel.spec.op = op.getKernel().str();
    kernel.spec.attrs = op.getConfig();
    for (Type type : op.getInputs().getAsValueRange<TypeAttr>())
      kernel.spec.inputs.push_back(cast<MemRefType>(type));
    for (Type type : op.getOutputs().getAsValueRange<TypeAttr>())
      kernel.spec.outputs.push_back(cast<MemRefType>(type));
    kernels.push_back(std::move(kernel));
  }
  FailureOr<std::string> object = codegen::cpu::compileKernels(
      &context, kernels, {},
      [&] { return emitError(UnknownLoc::get(&context)); });
  bundle::Bundle message;
  auto describe = [](qplan::KernelOp op, unsigned stage, bundle::Kernel &out) {
    out.set_symbol(codegen::cpu::stageSymbol(op.getSymName(), stage));
  };
  if (failed(object) || failed(codegen::emitPlan(*module, tokens, maxDocs,
                                                 describe, message))) {
    ADD_FAILURE() << "the plan does not become a bundle";
    return "";
  }
  bundle::Target *target = message.add_targets();
  target->set_kind("cpu");
  target->set_triple("x86_64-unknown-linux-gnu");
  target->set_cpu("x86-64-v3");
  message.mutable_model()->set_name("ranks");
  message.mutable_model()->set_vocab_size(256);
  if (change)
    change(message);
  NamedBlob code{"cpu.so",
                 absl::Span<const uint8_t>(
                     reinterpret_cast<const uint8_t *>(object->data()),
                     object->size())};
  absl::StatusOr<std::string> bytes = serializeBundle(message, {&code, 1});
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
